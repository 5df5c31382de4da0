package event

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"testing"
)

// golden reads the example log.
func golden(t *testing.T) []Event {
	t.Helper()
	f, err := os.Open("testdata/events.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var events []Event
	for sc := bufio.NewScanner(f); sc.Scan(); {
		e, err := Decode(sc.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	return events
}

func TestGoldenLinesSurviveARoundTrip(t *testing.T) {
	want, err := os.ReadFile("testdata/events.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	var got []byte
	for _, e := range golden(t) {
		got = e.AppendLine(got)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("re-encoded log differs:\n%s\nwant\n%s", got, want)
	}
}

func TestGoldenFold(t *testing.T) {
	s := NewSession("ses_01k9example")
	for i, e := range golden(t) {
		if err := s.Apply(e); err != nil {
			t.Fatal(err)
		}
		if c := s.Clone(); !reflect.DeepEqual(c.Encode(), s.Encode()) {
			t.Fatalf("after event %d a snapshot does not survive its encoding:\n%s\n%s", i+1, c.Encode(), s.Encode())
		}
	}
	want, err := os.ReadFile("testdata/snapshot.json")
	if err != nil {
		t.Fatal(err)
	}
	if got := s.EncodePublic(); !sameJSON(t, got, want) {
		t.Errorf("fold of the example is\n%s\nwant\n%s", got, want)
	}
}

func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	var x, y any
	if err := json.Unmarshal(a, &x); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &y); err != nil {
		t.Fatal(err)
	}
	return reflect.DeepEqual(x, y)
}

func TestLineKeepsStrangersBytes(t *testing.T) {
	e := New(Custom, CustomData{Name: "a\u2028b\u0085c\r\n", Value: json.RawMessage("{\n \"z\": 9007199254740993, \"a\":\"\u2029<&>\"}")})
	e.Seq, e.ID, e.SessionID = 1, "s-1", "s"
	line := e.AppendLine(nil)
	if bytes.Count(line, []byte("\n")) != 1 || bytes.ContainsAny(line, "\r") || bytes.Contains(line, []byte("\u2028")) || bytes.Contains(line, []byte("\u2029")) {
		t.Fatalf("line is not one line: %q", line)
	}
	back, err := Decode(line)
	if err != nil {
		t.Fatal(err)
	}
	var d CustomData
	if err := back.Into(&d); err != nil {
		t.Fatal(err)
	}
	if d.Name != "a\u2028b\u0085c\r\n" {
		t.Errorf("name came back as %q", d.Name)
	}
	if !bytes.Contains(d.Value, []byte("9007199254740993")) || !bytes.HasPrefix(d.Value, []byte(`{"z"`)) {
		t.Errorf("value came back as %s", d.Value)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"v":1,"seq":1,"id":"s-1","type":"custom","time":"2026-11-30T12:00:00.001250Z","session_id":"s","data":{"a":1}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		e, err := Decode(line)
		if err != nil {
			return
		}
		again, err := Decode(bytes.TrimSpace(e.AppendLine(nil)))
		if err != nil {
			t.Fatalf("%q was read, its own line is not: %v", line, err)
		}
		if again.Seq != e.Seq || again.Type != e.Type || !json.Valid(again.Data) {
			t.Fatalf("%q changed in a round trip: %+v", line, again)
		}
	})
}
