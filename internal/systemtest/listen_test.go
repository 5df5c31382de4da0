package systemtest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/runlog-dev/runlog/event"
)

// The two forms of a stream, as Accept names them.
const (
	sse    = "text/event-stream"
	ndjson = "application/x-ndjson"
)

// A message is one block of SSE or one line of NDJSON, as it came.
type message struct {
	raw  string
	kind string // the event's type
	id   string // the cursor after it; empty if it does not move one
	data string
}

// ofLog tells events of the log from what a stream adds.
func (m message) ofLog() bool {
	return !slices.Contains([]string{"", "ping", "heartbeat", "position", "snapshot", "reset"}, m.kind)
}

func (m message) event(t testing.TB) event.Event {
	t.Helper()
	e, err := event.Decode([]byte(m.data))
	if err != nil {
		t.Fatalf("message %q: %v", m.raw, err)
	}
	if e.Type != event.Type(m.kind) || e.Seq.String() != m.id {
		t.Errorf("message of type %s with id %s holds event %d of type %s", m.kind, m.id, e.Seq, e.Type)
	}
	return e
}

// A stream is one connection to an edge.
type stream struct {
	t      testing.TB
	resp   *http.Response
	in     *bufio.Reader
	cancel context.CancelFunc
	form   string
}

// listen opens a stream; headers are pairs.
func (e edge) listen(t testing.TB, path, form string, headers ...string) *stream {
	t.Helper()
	return e.start(t, http.MethodGet, path, "", form, headers...)
}

// start is listen with any request.
func (e edge) start(t testing.TB, method, path, body, form string, headers ...string) *stream {
	t.Helper()
	s, err := e.tryStart(t, method, path, body, form, headers...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (e edge) tryStart(t testing.TB, method, path, body, form string, headers ...string) (*stream, error) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	resp, err := e.open(ctx, method, path, body, append(headers, "Accept", form)...)
	if err != nil {
		cancel()
		return nil, err
	}
	if resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("Content-Type"), form) {
		defer cancel()
		defer resp.Body.Close()
		said, _ := io.ReadAll(resp.Body)
		return nil, fmt.Errorf("%s %s: %s of type %q: %.500s", method, path, resp.Status, resp.Header.Get("Content-Type"), said)
	}
	return &stream{t: t, resp: resp, in: bufio.NewReader(resp.Body), cancel: cancel, form: form}, nil
}

func (s *stream) close() {
	s.cancel()
	s.resp.Body.Close()
}

// next returns one message, or the error with which the stream ended: io.EOF if it ended in good order.
func (s *stream) next() (message, error) {
	if s.form == ndjson {
		return s.nextLine()
	}
	return s.nextBlock()
}

func (s *stream) nextLine() (message, error) {
	line, err := s.in.ReadString('\n')
	if err != nil {
		return message{}, partial(err, line)
	}
	m := message{raw: line, data: strings.TrimSuffix(line, "\n")}
	var head struct {
		Type string    `json:"type"`
		Seq  event.Seq `json:"seq"`
	}
	if err := json.Unmarshal([]byte(line), &head); err != nil {
		return m, fmt.Errorf("line %q: %w", line, err)
	}
	m.kind = head.Type
	if head.Seq > 0 {
		m.id = head.Seq.String()
	}
	return m, nil
}

// nextBlock reads SSE with nothing but what the edge promises: LF alone, one data line.
func (s *stream) nextBlock() (message, error) {
	var m message
	for {
		line, err := s.in.ReadString('\n')
		if err != nil {
			return m, partial(err, m.raw+line)
		}
		m.raw += line
		line = strings.TrimSuffix(line, "\n")
		field, value, _ := strings.Cut(line, ": ")
		switch {
		case line == "":
			return m, nil
		case field == "id":
			m.id = value
		case field == "event":
			m.kind = value
		case field == "data" && m.data == "":
			m.data = value
		case field == "retry", field == "":
		default:
			return m, fmt.Errorf("stream has the line %q", line)
		}
	}
}

// partial is the end of a stream; one within a message is never in good order.
func partial(err error, begun string) error {
	if errors.Is(err, io.EOF) && begun != "" {
		return fmt.Errorf("cut within %q: %w", begun, io.ErrUnexpectedEOF)
	}
	return err
}

// read returns the next n events of the log.
func (s *stream) read(n int) []message {
	s.t.Helper()
	var list []message
	for len(list) < n {
		m, err := s.next()
		if err != nil {
			s.t.Fatalf("after %d of %d events: %v; they are\n%s", len(list), n, err, joined(list))
		}
		if m.ofLog() {
			list = append(list, m)
		}
	}
	return list
}

// rest returns the log's events up to the end of the stream, which has to be one in good order.
func (s *stream) rest() []message {
	s.t.Helper()
	var list []message
	for {
		m, err := s.next()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			s.t.Fatalf("after %d events: %v", len(list), err)
		}
		if m.ofLog() {
			list = append(list, m)
		}
	}
}

// until returns the log's events up to the first of a type.
func (s *stream) until(kind event.Type) []message {
	s.t.Helper()
	var list []message
	for {
		list = append(list, s.read(1)...)
		if list[len(list)-1].kind == string(kind) {
			return list
		}
	}
}

// events decodes messages.
func events(t testing.TB, list []message) []event.Event {
	t.Helper()
	out := make([]event.Event, len(list))
	for i, m := range list {
		out[i] = m.event(t)
	}
	return out
}

// joined is the bytes of messages, to compare streams.
func joined(list []message) string {
	var b strings.Builder
	for _, m := range list {
		b.WriteString(m.raw)
	}
	return b.String()
}

// differ says where two streams part, or "".
func differ(got, want []message) string {
	for i := range min(len(got), len(want)) {
		if got[i].raw != want[i].raw {
			return fmt.Sprintf("message %d is\n%.300s\nwant\n%.300s", i+1, got[i].raw, want[i].raw)
		}
	}
	if len(got) != len(want) {
		return fmt.Sprintf("%d messages, want %d", len(got), len(want))
	}
	return ""
}

// fold makes a session of what a client sees. It steps over the numbers of what it does not see.
func fold(t testing.TB, list []event.Event) *event.Session {
	t.Helper()
	s := event.NewSession(list[0].SessionID)
	goOnFolding(t, s, list)
	return s
}

func goOnFolding(t testing.TB, s *event.Session, list []event.Event) {
	t.Helper()
	for _, e := range list {
		if e.Seq <= s.Seq {
			t.Fatalf("event %d follows %d", e.Seq, s.Seq)
		}
		s.Seq = e.Seq - 1
		if err := s.Apply(e); err != nil {
			t.Fatal(err)
		}
	}
}

// sameJSON compares values, not their spelling.
func sameJSON(t testing.TB, what string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(normal(t, got), normal(t, want)) {
		t.Errorf("%s:\n%s\nwant\n%s", what, normal(t, got), normal(t, want))
	}
}

// sameConversation compares snapshots but for their seq: what comes last may be hidden from clients.
func sameConversation(t testing.TB, what string, got, want []byte) {
	t.Helper()
	sameJSON(t, what, seq.ReplaceAll(got, nil), seq.ReplaceAll(want, nil))
}

var seq = regexp.MustCompile(`"seq":\d+,`)

func normal(t testing.TB, data []byte) []byte {
	t.Helper()
	var v any
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%v: %.300s", err, data)
	}
	return event.Encode(v)
}
