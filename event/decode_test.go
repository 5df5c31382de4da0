package event

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
)

const plainLine = `{"v":1,"seq":42,"id":"s-42","type":"text.delta","time":"2026-11-30T12:00:00.001250Z","session_id":"s","run_id":"r","trace_id":"t","command_id":"c","agent":"a","internal":true,"data":{"message_id":"m","delta":"één \u2028\n"}}`

// Lines as the log holds them take the fast way, or there would be no point in it.
func TestLinesOfALogAreParsedFast(t *testing.T) {
	example, err := os.ReadFile("testdata/events.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(example)), "\n")
	for _, gone := range []string{`,"run_id":"r"`, `,"trace_id":"t"`, `,"command_id":"c"`, `,"agent":"a"`, `,"internal":true`} {
		lines = append(lines, strings.Replace(plainLine, gone, "", 1))
	}
	for _, line := range append(lines, plainLine, plainLine+"\n") {
		if _, ok := new(Decoder).parseLine([]byte(line)); !ok {
			t.Errorf("not parsed: %s", line)
		}
		checkDecode(t, []byte(line))
	}
}

// strange are lines near the plain one whose meaning is in a detail.
func strange() (lines []string) {
	for _, change := range []struct{ old, new string }{
		{`"v":1`, `"v":2`}, {`"v":1`, `"v":01`}, {`"v":1`, `"v":1.0`}, {`"seq":42`, `"seq":042`}, {`"seq":42`, `"seq":-1`}, {`"seq":42`, `"seq":4e1`},
		{`"seq":42`, `"seq":18446744073709551615`}, {`"seq":42`, `"seq":18446744073709551616`}, {`"seq":42`, `"seq":0`}, {`"seq":42`, `"seq":`},
		{`"id":"s-42"`, `"id":"s\u002d42"`}, {`"id":"s-42"`, `"id":"s\"-42"`}, {`"id":"s-42"`, "\"id\":\"s\xff\""}, {`"id":"s-42"`, `"id":null`},
		{`"id":"s-42"`, `"id":"s","data":{"a":1}`}, {`"id":"s-42"`, `"id":"\",\"data\":{}"`}, {`"id":"s-42"`, `"ID":"s-42"`}, {`,"id":"s-42"`, ` ,"id":"s-42"`},
		{`12:00:00.001250Z`, `24:00:00.001250Z`}, {`12:00:00.001250Z`, `12:60:00.001250Z`}, {`12:00:00.001250Z`, `12:00:60.001250Z`}, {`12:00:00.001250Z`, `12:00:00,001250Z`},
		{`11-30T`, `11-31T`}, {`11-30T`, `02-29T`}, {`11-30T`, `13-01T`}, {`11-30T`, `00-10T`}, {`11-30T`, `10-00T`}, {`11-30T`, `11-30t`}, {`001250Z`, `0012Z`}, {`001250Z`, `001250+01:00`},
		{`"internal":true`, `"internal":false`}, {`"internal":true`, `"internal":true,"internal":false`}, {`"agent":"a"`, `"agent":"a","agent":"b"`},
		{`"run_id":"r","trace_id":"t"`, `"trace_id":"t","run_id":"r"`}, {`"message_id":"m"`, `"message_id":m`}, {`"delta":`, `"delta":1,"data":`},
		{`\n"}}`, `\n"},"seq":7}`}, {`\n"}}`, `\n"},"v":2}`}, {`\n"}}`, `\n"}} `}, {`\n"}}`, `\n"}}}`}, {`\n"}}`, `\n"}`}, {`\n"}}`, `\n"`}, {`\n"}}`, ``}, {`"data":{"message_id":"m","delta":`, `"data":"`},
	} {
		lines = append(lines, strings.Replace(plainLine, change.old, change.new, 1))
	}
	return lines
}

func TestStrangeLinesMeanWhatEncodingJSONSays(t *testing.T) {
	for _, line := range strange() {
		if line == plainLine {
			t.Fatal("a change did not apply")
		}
		checkDecode(t, []byte(line))
	}
}

func checkDecode(t *testing.T, line []byte) {
	t.Helper()
	var want Event
	wantErr := json.Unmarshal(line, &want)
	if wantErr == nil {
		wantErr = want.Validate()
	}
	got, err := Decode(line)
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("%q: error %v, encoding/json says %v", line, err, wantErr)
	}
	if err == nil && !reflect.DeepEqual(got, want) {
		t.Fatalf("%q is\n%+v, encoding/json says\n%+v", line, got, want)
	}
}

// Whatever came before a line, it means the same.
func TestLinesMeanTheSameOneAfterAnother(t *testing.T) {
	var d Decoder
	lines := append(strange(), plainLine)
	for i := range 5000 {
		line := []byte(lines[(i*i+i/7)%len(lines)])
		got, err := d.Decode(line)
		want, wantErr := Decode(line)
		if (err == nil) != (wantErr == nil) || !reflect.DeepEqual(got, want) {
			t.Fatalf("%q is\n%+v %v, alone\n%+v %v", line, got, err, want, wantErr)
		}
	}
}

// Lines that are plain mean the same when they are decoded again, and only lines that
// this version does not write are not.
func TestPlainLinesMeanTheSameAgain(t *testing.T) {
	for _, line := range append(strange(), plainLine) {
		var d Decoder
		want, err := d.Decode([]byte(line))
		if line == plainLine && !d.Plain() {
			t.Errorf("not plain: %s", line)
		}
		if err != nil || !d.Plain() {
			continue
		}
		if got, err := d.DecodeAgain([]byte(line)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q is\n%+v, and then %v\n%+v", line, want, err, got)
		}
	}
}

func TestDecodeKeepsNothingOfItsLine(t *testing.T) {
	line := []byte(plainLine)
	e, err := Decode(line)
	if err != nil {
		t.Fatal(err)
	}
	clear(line)
	if again := e.AppendLine(nil); string(bytes.TrimSpace(again)) != plainLine {
		t.Errorf("after its line was overwritten the event is %s", again)
	}
}

func FuzzDecodeLikeEncodingJSON(f *testing.F) {
	for _, line := range append(strange(), plainLine) {
		f.Add([]byte(line))
	}
	f.Fuzz(checkDecode)
}

func FuzzValid(f *testing.F) {
	for _, s := range []string{`{"a":[1,-2.5e+3,true,false,null,"\u00e9\"\\"],"b":{}}`, `[01]`, `[-]`, `[1.]`, `[1e]`, `[0.0E-1]`, `"\u12g4"`, `"\u123`, "\"\x1f\"", "\"\xff\"",
		`[1,]`, `{,}`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{"a" : 1 , "b" : [ ] }`, ` tru`, `truex`, `[1 2]`, ``, ` `, `-`, `-0`, `"`, `"\`, `{`, `[`, `[[`, `{"a":[`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, want := valid(b), json.Valid(b); got != want {
			t.Fatalf("valid(%q) is %v, want %v", b, got, want)
		}
	})
}

func TestValidNestsAsDeepAsEncodingJSON(t *testing.T) {
	for _, depth := range []int{maxNesting, maxNesting + 1} {
		for _, b := range [][]byte{
			[]byte(strings.Repeat("[", depth) + strings.Repeat("]", depth)),
			[]byte(strings.Repeat(`{"a":`, depth) + "1" + strings.Repeat("}", depth)),
		} {
			if got, want := valid(b), json.Valid(b); got != want {
				t.Errorf("%d deep: %v, want %v", depth, got, want)
			}
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	line := []byte(plainLine)
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	var d Decoder
	for b.Loop() {
		if _, err := d.Decode(line); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeAgain(b *testing.B) {
	line := []byte(plainLine)
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	var d Decoder
	for b.Loop() {
		if _, err := d.DecodeAgain(line); err != nil {
			b.Fatal(err)
		}
	}
}
