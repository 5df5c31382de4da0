package stream

import (
	"bytes"
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// fill appends events in as few frames as they come to.
func fill(t testing.TB, l *eventlog.Log, events ...event.Event) {
	t.Helper()
	appendTo(t, newWriter(t, l), events...)
}

func appendTo(t testing.TB, w *eventlog.Writer, events ...event.Event) {
	t.Helper()
	for _, e := range events {
		if _, err := w.Append(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func of(kind event.Type, data any) event.Event {
	e := event.New(kind, data)
	e.RunID = "r"
	return e
}

func said(text string) event.Event {
	return of(event.TextDelta, event.TextDeltaData{MessageID: "m", Delta: text})
}

func golden(t testing.TB) (list []event.Event) {
	t.Helper()
	data, err := os.ReadFile("../../event/testdata/events.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(data) {
		e, err := event.Decode(line)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, e)
	}
	return list
}

// retell folds what a stream said onto a fold, and proves by first_seq that
// nothing is missing.
func retell(t testing.TB, s *event.Session, body string) (events int) {
	t.Helper()
	for line := range strings.Lines(body) {
		e, err := event.Decode([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		first := struct {
			First event.Seq `json:"first_seq"`
		}{e.Seq}
		if err := json.Unmarshal([]byte(line), &first); err != nil {
			t.Fatal(err)
		}
		if first.First != s.Seq+1 {
			t.Fatalf("event %d begins at %d, the client has %d", e.Seq, first.First, s.Seq)
		}
		s.Seq = e.Seq - 1
		if err := s.Apply(e); err != nil {
			t.Fatal(err)
		}
		events++
	}
	return events
}

func foldOf(t testing.TB, list []event.Event) *event.Session {
	t.Helper()
	s := event.NewSession(key.Session)
	for _, e := range list {
		if err := s.Apply(e); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// Whatever a client has, a merged replay brings it to the same state; so does one
// that is cut and taken up anywhere.
func TestMergedReplayComesToTheSameState(t *testing.T) {
	l := openLog(t)
	fill(t, l, golden(t)...)
	h := newHub(t, l, Options{})
	stored := strings.Split(strings.TrimSpace(serve(t, h, Request{NoFollow: true, Audience: dialect.Auditor})), "\n")
	var all []event.Event
	for _, line := range stored {
		e, err := event.Decode([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	want := foldOf(t, all).Encode()
	for k := range len(all) {
		s := foldOf(t, all[:k])
		body := serve(t, h, Request{NoFollow: true, Audience: dialect.Auditor, Catchup: Merged, After: Position{Seq: event.Seq(k)}})
		n := retell(t, s, body)
		if got := s.Encode(); !bytes.Equal(got, want) {
			t.Fatalf("after %d: the state differs:\n%s\n%s", k, got, want)
		}
		if k == 0 && n >= len(all) {
			t.Errorf("%d events, nothing was merged", n)
		}
		if again := retell(t, foldOf(t, all[:k]), strings.Join(stored[k:], "\n")); again != len(all)-k {
			t.Errorf("%d events", again)
		}
	}
}

// Without catchup nothing is merged, byte for byte.
func TestEventsAreNeverMerged(t *testing.T) {
	l := openLog(t)
	fill(t, l, said("a"), said("b"))
	h := newHub(t, l, Options{})
	plain := serve(t, h, Request{NoFollow: true})
	if other := serve(t, h, Request{NoFollow: true, Catchup: Events}); other != plain || strings.Contains(plain, "first_seq") || strings.Count(plain, "\n") != 2 {
		t.Errorf("%s", other)
	}
	if merged := serve(t, h, Request{NoFollow: true, Catchup: Merged}); !strings.Contains(merged, `"seq":2,"first_seq":1`) || !strings.Contains(merged, `"delta":"ab"`) {
		t.Errorf("%s", merged)
	}
}

// What keeps deltas apart: who they are of, and what the client sees in between.
func TestOnlyAdjacentDeltasOfOneThingAreMerged(t *testing.T) {
	l := openLog(t)
	hidden := of(event.Raw, event.RawData{Source: "x", Event: json.RawMessage(`{}`)})
	hidden.Internal = true
	other := said("3")
	other.RunID = "other"
	fill(t, l, said("1"), hidden, said("2"), other, said("4"),
		of(event.ReasoningDelta, event.ReasoningDeltaData{ReasoningID: "m", Delta: "5"}),
		said("6"), of(event.Custom, event.CustomData{Name: "n", Value: json.RawMessage("1")}), said("7"), hidden)
	h := newHub(t, l, Options{})
	var got []string
	for line := range strings.Lines(serve(t, h, Request{NoFollow: true, Catchup: Merged})) {
		var e struct {
			Seq  event.Seq `json:"seq"`
			Data struct {
				Delta string `json:"delta"`
			} `json:"data"`
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		got = append(got, e.Seq.String()+":"+e.Data.Delta)
	}
	if want := "3:12 4:3 5:4 6:5 7:6 8: 9:7 10:"; strings.Join(got, " ") != want { // the last one moves the cursor
		t.Errorf("got %v, want %s", got, want)
	}
}

// A session of 100,000 events opens at the cost of reading each of them once, and is
// about as large as what it says, whether its messages are complete or not. Where a
// fold is stored, a client that takes it costs a page to weigh it by, and what came
// after it.
func TestLongSessionOpensAsLargeAsItsContent(t *testing.T) {
	for _, closed := range []bool{false, true} {
		l := openLog(t)
		n := event.Seq(100_000)
		if !closed { // to fold these takes long
			n = 20_000
		}
		list := long(int(n), closed)
		fill(t, l, list[:n-1000]...)
		store(t, l)
		extend(t, l, list[n-1000:]...)
		read := 0
		h := newHub(t, l, Options{Observe: Observer{Paged: func(events, _ int) { read += events }}})
		body := serve(t, h, Request{NoFollow: true, Catchup: Merged})
		s := event.NewSession(key.Session)
		events := retell(t, s, body)
		folded := len(s.EncodePublic())
		t.Logf("closed %v: %d events as %d, %d bytes for %d folded", closed, n, events, len(body), folded)
		if s.Seq != n || len(body)*10 > folded*11 {
			t.Errorf("closed %v: %d bytes for %d folded", closed, len(body), folded)
		}
		if read > int(n) {
			t.Errorf("closed %v: read %d events", closed, read)
		}
		read = 0
		body = serve(t, h, Request{NoFollow: true, Catchup: ToSnapshot})
		if len(body)*10 > folded*11 {
			t.Errorf("closed %v: with a snapshot %d bytes for %d folded", closed, len(body), folded)
		}
		if read > 5000 {
			t.Errorf("closed %v: with a snapshot, read %d events", closed, read)
		}
	}
}

// long is messages of 2,000 events each.
func long(n int, closed bool) []event.Event {
	const word = "a few words of it "
	list := make([]event.Event, 0, n)
	for len(list) < n {
		id := "m" + strconv.Itoa(len(list))
		for range 1999 {
			list = append(list, of(event.TextDelta, event.TextDeltaData{MessageID: id, Delta: word}))
		}
		last := of(event.TextDelta, event.TextDeltaData{MessageID: id, Delta: word})
		if closed {
			last = of(event.MessageCompleted, event.MessageCompletedData{MessageID: id, Role: event.RoleAssistant,
				Parts: []event.Part{event.TextPart(strings.Repeat(word, 1999))}})
		}
		list = append(list, last)
	}
	return list
}

// store keeps the session's fold as workers do.
func store(t testing.TB, l *eventlog.Log) {
	t.Helper()
	s, head, err := l.Load(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.SaveSnapshot(t.Context(), key, s.Encode(), head.Seq); err != nil {
		t.Fatal(err)
	}
}

// more appends to the session.
func extend(t testing.TB, l *eventlog.Log, events ...event.Event) {
	t.Helper()
	head, err := l.Head(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	w := l.Writer(key, head)
	defer w.Close()
	if _, err := w.Append(events...); err != nil || w.Sync(t.Context()) != nil {
		t.Fatal(err)
	}
}

func BenchmarkOpen100000(b *testing.B) {
	l := openLog(b)
	list := long(100_000, true)
	fill(b, l, list[:99_000]...)
	store(b, l)
	extend(b, l, list[99_000:]...)
	h := newHub(b, l, Options{})
	for _, c := range Catchups {
		b.Run(string(c), func(b *testing.B) {
			b.ReportAllocs()
			size := 0
			for b.Loop() {
				size = len(serve(b, h, Request{NoFollow: true, Catchup: c}))
			}
			b.ReportMetric(float64(size), "B")
		})
	}
}

// A delta that is read at sight is what encoding/json says, and the texts of two
// side by side are one after the other.
func FuzzDelta(f *testing.F) {
	for _, s := range []string{`{"message_id":"m","delta":"a\"b\\"}`, `{"message_id":"m","delta":"\ud83d"}`, `{"message_id":"m","delta":"\ude00x"}`, `{"message_id":"m","delta":"a","delta":"b"}`,
		`{"message_id":"\u006d","delta":""}`, `{"message_id":"m", "delta":"a"}`, `{"delta":"a","message_id":"m"}`, `{"message_id":"m","delta":"a","x":"}"}`, `{"message_id":"m","delta":"\\"}`} {
		f.Add([]byte(s), []byte(s))
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		text, want := []byte(`"`), ""
		for _, data := range [][]byte{first, second} {
			var d struct {
				ids
				Delta string `json:"delta"`
			}
			got, ok := plainDelta(data, "message_id")
			if !ok || !json.Valid(data) {
				return
			}
			if err := json.Unmarshal(data, &d); err != nil || d.MessageID != string(got.of) {
				t.Fatalf("%s is of %q: %v", data, got.of, err)
			}
			text, want = append(text, got.text...), want+d.Delta
		}
		var both string
		if err := json.Unmarshal(append(text, '"'), &both); err != nil || both != want {
			t.Errorf("%s and %s: %q, want %q (%v)", first, second, both, want, err)
		}
	})
}

// Once a client has caught up it gets every event by itself, at once.
func TestLiveEventsAreNotMerged(t *testing.T) {
	l := openLog(t)
	fill(t, l, said("1"), said("2"))
	h := newHub(t, l, Options{})
	head, err := l.Head(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	v, err := h.View(t.Context(), Request{Key: key, RunID: "r", Catchup: Merged, Dialect: counting{}.Dialect, Transport: NDJSON{}})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	w := newPipe()
	served := make(chan error, 1)
	go func() { served <- v.Serve(t.Context(), w) }()
	if line := w.line(t); !strings.Contains(line, `"delta":"12"`) {
		t.Errorf("history: %s", line)
	}
	writer := l.Writer(key, head)
	defer writer.Close()
	for _, e := range []event.Event{said("3"), said("4"), of(event.RunCompleted, event.RunCompletedData{FinishReason: event.FinishStop})} {
		if _, err := writer.Append(e); err != nil || writer.Sync(t.Context()) != nil {
			t.Fatal(err)
		}
		if line := w.line(t); strings.Contains(line, "first_seq") {
			t.Errorf("live: %s", line)
		}
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// Far behind, a snapshot is sent where it is smaller, and only there.
func TestSnapshotWhereItIsSmaller(t *testing.T) {
	l := openLog(t)
	list := []event.Event{said("0")}
	for i := range 2000 {
		list = append(list, of(event.ToolProgress, event.ToolProgressData{CallID: "c", Progress: event.Progress{Progress: float64(i)}}))
	}
	fill(t, l, list...)
	h := newHub(t, l, Options{})
	for _, c := range []struct {
		after    event.Seq
		snapshot bool
	}{{0, true}, {1000, true}, {1990, false}, {2001, false}} {
		body := serve(t, h, Request{NoFollow: true, Catchup: ToSnapshot, After: Position{Seq: c.after}})
		if got := strings.HasPrefix(body, `{"type":"snapshot"`); got != c.snapshot {
			t.Errorf("after %d: snapshot %v: %.100s", c.after, got, body)
		}
		if !c.snapshot && strings.Count(body, "\n") != 2001-int(c.after) {
			t.Errorf("after %d: %d lines", c.after, strings.Count(body, "\n"))
		}
	}
	big := said(strings.Repeat("long ", 100_000)) // the fold is large, what is missed is not
	head, _ := l.Head(t.Context(), key)
	w := l.Writer(key, head)
	defer w.Close()
	rest := []event.Event{big}
	for range 300 {
		rest = append(rest, said("x"))
	}
	if _, err := w.Append(rest...); err != nil || w.Sync(t.Context()) != nil {
		t.Fatal(err)
	}
	body := serve(t, h, Request{NoFollow: true, Catchup: ToSnapshot, After: Position{Seq: 2002}})
	if strings.Count(body, "\n") != 1 || !strings.Contains(body, `"first_seq":2003`) {
		t.Errorf("%.200s", body)
	}
}
