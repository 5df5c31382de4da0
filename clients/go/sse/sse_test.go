package sse_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/runlog-dev/runlog/clients/go/sse"
)

type got struct{ ID, Event, Data string }

// readAll reads until an error that is not the clean end.
func readAll(t testing.TB, r io.Reader, opt sse.Options) ([]got, *sse.Reader) {
	t.Helper()
	reader := sse.NewReader(r, opt)
	var all []got
	for {
		m, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return all, reader
		}
		if err != nil {
			t.Fatalf("after %d messages: %v", len(all), err)
		}
		all = append(all, got{m.ID, m.Event, string(m.Data)})
	}
}

func TestParse(t *testing.T) {
	for name, c := range map[string]struct {
		in     string
		want   []got
		lastID string
	}{
		"one message":                      {in: "id: 1\nevent: a\ndata: x\n\n", want: []got{{"1", "a", "x"}}, lastID: "1"},
		"CRLF":                             {in: "id: 1\r\ndata: x\r\n\r\ndata: y\r\n\r\n", want: []got{{"1", "message", "x"}, {"1", "message", "y"}}, lastID: "1"},
		"CR":                               {in: "data: x\r\rdata: y\r\r", want: []got{{"", "message", "x"}, {"", "message", "y"}}},
		"mixed ends":                       {in: "data: x\r\ndata: y\rdata: z\n\r\n", want: []got{{"", "message", "x\ny\nz"}}},
		"LF CR is two ends":                {in: "data: x\n\rdata: y\n\r", want: []got{{"", "message", "x"}, {"", "message", "y"}}},
		"byte order mark":                  {in: "\uFEFFdata: x\n\n", want: []got{{"", "message", "x"}}},
		"second mark belongs to the name":  {in: "\uFEFF\uFEFFdata: x\n\ndata: y\n\n", want: []got{{"", "message", "y"}}},
		"mark later is no mark":            {in: "data: x\n\n\uFEFFdata: y\n\n", want: []got{{"", "message", "x"}}},
		"comment":                          {in: ": ping\n\n:\ndata: x\n:\n\n", want: []got{{"", "message", "x"}}},
		"several data lines":               {in: "data: a\ndata:\ndata: b\n\n", want: []got{{"", "message", "a\n\nb"}}},
		"only one space is dropped":        {in: "data:  x\n\ndata:y\n\n", want: []got{{"", "message", " x"}, {"", "message", "y"}}},
		"empty data is a message":          {in: "data\n\ndata:\n\n", want: []got{{"", "message", ""}, {"", "message", ""}}},
		"data of one empty line more":      {in: "data\ndata\n\n", want: []got{{"", "message", "\n"}}},
		"id without data moves the cursor": {in: "id: 7\n\ndata: x\n\n", want: []got{{"7", "message", "x"}}, lastID: "7"},
		"event without data is forgotten":  {in: "event: a\n\ndata: x\n\n", want: []got{{"", "message", "x"}}},
		"empty id resets":                  {in: "id: 7\ndata: x\n\nid\ndata: y\n\n", want: []got{{"7", "message", "x"}, {"", "message", "y"}}},
		"id with NUL is ignored":           {in: "id: 7\ndata: x\n\nid: 8\x00\ndata: y\n\n", want: []got{{"7", "message", "x"}, {"7", "message", "y"}}, lastID: "7"},
		"last event field wins":            {in: "event: a\nevent: b\ndata: x\n\n", want: []got{{"", "b", "x"}}},
		"empty event is message":           {in: "event: a\nevent\ndata: x\n\n", want: []got{{"", "message", "x"}}},
		"unknown fields, names are exact":  {in: "Data: x\n data: x\ndata : x\nfoo\ndata: y\n\n", want: []got{{"", "message", "y"}}},
		"colon in the value":               {in: "data: a: b\n\n", want: []got{{"", "message", "a: b"}}},
		"unterminated block is dropped":    {in: "id: 1\ndata: x\n\nid: 2\ndata: y\n", want: []got{{"1", "message", "x"}}, lastID: "1"},
		"unterminated line is dropped":     {in: "id: 1\ndata: x\n\nid: 2\ndata: y", want: []got{{"1", "message", "x"}}, lastID: "1"},
		"CR at the very end dispatches":    {in: "data: x\r\r", want: []got{{"", "message", "x"}}},
		"other line breaks are data":       {in: "data: a\u2028b\u2029c\u0085d\v\f\n\n", want: []got{{"", "message", "a\u2028b\u2029c\u0085d\v\f"}}},
		"nothing":                          {in: ""},
		"half a mark":                      {in: "\xEF\xBB"},
	} {
		t.Run(name, func(t *testing.T) {
			for how, r := range map[string]io.Reader{
				"whole":      strings.NewReader(c.in),
				"bytewise":   iotest.OneByteReader(strings.NewReader(c.in)),
				"with error": iotest.DataErrReader(strings.NewReader(c.in)),
			} {
				all, reader := readAll(t, r, sse.Options{})
				if !reflect.DeepEqual(all, c.want) {
					t.Errorf("%s: got %q, want %q of %q", how, all, c.want, c.in)
				}
				if reader.LastID() != c.lastID {
					t.Errorf("%s: last id %q, want %q of %q", how, reader.LastID(), c.lastID, c.in)
				}
			}
		})
	}
}

func TestRetry(t *testing.T) {
	for value, want := range map[string]time.Duration{
		"1500": 1500 * time.Millisecond, "0": 0, "": 0, "-1": 0, "1s": 0, "１": 0,
		"99999999999999999999999999": 24 * time.Hour,
	} {
		_, reader := readAll(t, strings.NewReader("retry: "+value+"\n\n"), sse.Options{})
		if reader.Retry() != want {
			t.Errorf("retry: %q gave %v, want %v", value, reader.Retry(), want)
		}
	}
	_, reader := readAll(t, strings.NewReader("retry: 10\nretry: x\n\n"), sse.Options{})
	if reader.Retry() != 10*time.Millisecond {
		t.Errorf("a bad retry replaced a good one: %v", reader.Retry())
	}
}

// A message that CR ends is there at once: its reader must not wait for the byte
// that tells CR from CRLF.
func TestCarriageReturnDoesNotWait(t *testing.T) {
	pr, pw := io.Pipe()
	defer pw.Close()
	reader := sse.NewReader(pr, sse.Options{})
	for i := range 3 {
		want := fmt.Sprint(i)
		go pw.Write([]byte("data: " + want + "\r\r"))
		m, err := reader.Next()
		if err != nil || string(m.Data) != want {
			t.Fatalf("got %q, %v; want %q", m.Data, err, want)
		}
	}
}

func TestTooLong(t *testing.T) {
	const limit = 1000
	for name, c := range map[string]struct {
		in string
		ok bool
	}{
		"line at the limit":  {"data: " + strings.Repeat("x", limit-8) + "\n\n", true},
		"line over it":       {"data: " + strings.Repeat("x", limit) + "\n\n", false},
		"line without end":   {strings.Repeat("x", 100*limit), false},
		"many lines":         {strings.Repeat("data: x\n", limit) + "\n", false},
		"many empty fields":  {strings.Repeat("x\n", limit) + "\n", false},
		"many short blocks":  {strings.Repeat("data: x\n\n", limit), true},
		"comments in blocks": {strings.Repeat(": ping\n\n", limit), true},
		"comments alone":     {strings.Repeat(": ping\n", limit), true},
		"comment over it":    {":" + strings.Repeat("x", limit) + "\n", false},
	} {
		reader := sse.NewReader(strings.NewReader(c.in), sse.Options{MaxMessage: limit})
		var err error
		for err == nil {
			_, err = reader.Next()
		}
		if c.ok && !errors.Is(err, io.EOF) || !c.ok && !errors.Is(err, sse.ErrTooLong) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestErrorOfTheReaderIsKept(t *testing.T) {
	broken := errors.New("broken")
	reader := sse.NewReader(io.MultiReader(strings.NewReader("data: x\n\nid: 9\ndata: y\n"), iotest.ErrReader(broken)), sse.Options{})
	if m, err := reader.Next(); err != nil || string(m.Data) != "x" {
		t.Fatalf("got %q, %v", m.Data, err)
	}
	if _, err := reader.Next(); !errors.Is(err, broken) {
		t.Fatalf("got %v, want the reader's own error", err)
	}
	if reader.LastID() != "" {
		t.Fatalf("a cut block moved the id to %q", reader.LastID())
	}
}

// FuzzReader holds the reader to a plain reading of the standard, whatever the
// chunks are, and to its limit.
func FuzzReader(f *testing.F) {
	for _, seed := range []string{
		"id: 1\nevent: a\ndata: x\n\n", "\uFEFFdata: x\r\n\r\n", "data\r\rdata:\n\r\n", ": c\nretry: 5\nid\x00\n\n",
		"id: 1\x00\ndata: x\n\n", "data: a\ndata: b\r\rid: 3\n\ndata: c", "event: e\n\ndata: \u2028\n\n",
	} {
		f.Add([]byte(seed), byte(3))
	}
	f.Fuzz(func(t *testing.T, in []byte, n byte) {
		want, lastID := plain(in)
		for _, r := range []io.Reader{bytes.NewReader(in), &chunks{in, int(n%7) + 1}} {
			all, reader := readAll(t, r, sse.Options{})
			if !reflect.DeepEqual(all, want) || reader.LastID() != lastID {
				t.Fatalf("got %q (last id %q)\nwant %q (%q)\nof %q", all, reader.LastID(), want, lastID, in)
			}
		}
	})
}

type chunks struct {
	rest []byte
	size int
}

func (c *chunks) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.rest[:min(c.size, len(c.rest))])
	c.rest = c.rest[n:]
	return n, nil
}

// plain is the standard's algorithm over the whole text at once.
func plain(in []byte) (all []got, lastID string) {
	text := strings.TrimPrefix(string(in), "\uFEFF")
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	lines := strings.Split(text, "\n")
	var id, data, name string
	for _, line := range lines[:len(lines)-1] { // what follows the last end is no line
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			lastID = id
			if data != "" {
				if name == "" {
					name = "message"
				}
				all = append(all, got{id, name, strings.TrimSuffix(data, "\n")})
			}
			data, name = "", ""
		case field == "data":
			data += value + "\n"
		case field == "event":
			name = value
		case field == "id" && !strings.Contains(value, "\x00"):
			id = value
		}
	}
	return all, lastID
}
