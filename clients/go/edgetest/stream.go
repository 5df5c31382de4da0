package edgetest

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/runlog-dev/runlog/event"
)

// A Fault says how one stream or download goes wrong. The zero value is none.
type Fault struct {
	Status     int    // answer with this instead
	RetryAfter string // header beside Status

	Cut       bool // end the connection after After events and Inside bytes more
	After     int
	Inside    int
	Clean     bool // end it in good order: the client sees no error
	Hang      bool // fall silent instead of ending it
	OneByte   bool // flush after every byte
	Repeat    bool // send events the client has, and each one twice
	NoName    bool // keep the run's id out of the headers
	LineEnd   string
	Preamble  string // before the first event
	Heartbeat bool   // one before each event
}

func (e *Edge) fault(r *http.Request) Fault {
	e.mu.Lock()
	n := e.streams
	e.streams++
	req := e.requests[len(e.requests)-1]
	e.mu.Unlock()
	if e.Fault == nil {
		return Fault{}
	}
	return e.Fault(n, req)
}

// Encode writes an event as an edge does.
func Encode(ev event.Event) []byte {
	return fmt.Appendf(nil, "id: %d\nevent: %s\ndata: %s\n", ev.Seq, ev.Type, ev.AppendLine(nil))
}

func (e *Edge) events(w http.ResponseWriter, r *http.Request) {
	f := e.fault(r)
	if f.Status != 0 {
		if f.RetryAfter != "" {
			w.Header().Set("Retry-After", f.RetryAfter)
		}
		Problem(w, f.Status, event.CodeUnavailable, "come back later")
		return
	}
	after, ok := cursor(r)
	if !ok {
		Problem(w, http.StatusBadRequest, event.CodeBadCursor, "Last-Event-ID is not a number")
		return
	}
	if e.ended(after) {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	if r.Method == http.MethodPost && !f.NoName {
		w.Header().Set("Location", "/v1/runs/"+e.RunID)
	}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	s := &stream{w: w, rc: http.NewResponseController(w), f: f}
	_ = s.rc.Flush()
	s.write([]byte(f.Preamble))
	if r.URL.Query().Get("snapshot") == "1" {
		after = e.sendSnapshot(s)
	}
	if f.Repeat {
		after -= min(after, 3)
	}
	e.play(s, r, after)
	if s.hang {
		<-r.Context().Done()
	}
	if s.cut && !f.Clean {
		panic(http.ErrAbortHandler)
	}
}

func cursor(r *http.Request) (event.Seq, bool) {
	id := r.Header.Get("Last-Event-ID")
	if id == "" {
		return 0, true
	}
	n, err := strconv.ParseUint(id, 10, 64)
	return event.Seq(n), err == nil
}

// ended reports whether nothing can follow after this seq.
func (e *Edge) ended(after event.Seq) bool {
	events, _ := e.visible(0)
	i := slices.IndexFunc(events, func(ev event.Event) bool { return ev.Type.Terminal() })
	return i >= 0 && events[i].Seq <= after
}

func (e *Edge) sendSnapshot(s *stream) event.Seq {
	seq, _ := strconv.ParseUint(string(fieldOf(e.Snapshot, "seq")), 10, 64)
	var line bytes.Buffer
	for part := range bytes.Lines(e.Snapshot) {
		line.Write(bytes.TrimSpace(part))
	}
	s.write(fmt.Appendf(nil, "id: %d\nevent: snapshot\ndata: %s\n\n", seq, &line))
	return event.Seq(seq)
}

// play sends what there is and what comes, to the run's end.
func (e *Edge) play(s *stream, r *http.Request, after event.Seq) {
	isRun := !strings.HasPrefix(r.URL.Path, "/v1/sessions/")
	for {
		events, more := e.visible(after)
		for _, ev := range events {
			if s.done() {
				return
			}
			s.event(ev)
			after = ev.Seq
			if isRun && ev.Type.Terminal() {
				return
			}
		}
		if s.done() || r.URL.Query().Get("follow") == "false" {
			return
		}
		select {
		case <-more:
		case <-r.Context().Done():
			return
		}
	}
}

// A stream is one answer with its fault.
type stream struct {
	w    http.ResponseWriter
	rc   *http.ResponseController
	f    Fault
	sent int
	cut  bool
	hang bool
}

// done ends the stream where the fault says.
func (s *stream) done() bool {
	if s.f.Hang && s.sent == s.f.After {
		s.hang = true
		return true
	}
	return s.cut || s.f.Cut && s.f.Inside == 0 && s.sent == s.f.After && s.stop()
}

func (s *stream) stop() bool {
	s.cut = true
	return true
}

func (s *stream) event(ev event.Event) {
	if s.f.Heartbeat {
		s.write([]byte("event: heartbeat\ndata: {\"status\":\"running\",\"elapsed_ms\":5,\"head\":1}\n\n"))
	}
	b := Encode(ev)
	if s.f.Cut && s.sent == s.f.After && s.f.Inside > 0 {
		s.write(b[:min(s.f.Inside, len(b)-1)])
		s.stop()
		return
	}
	s.write(b)
	if s.f.Repeat {
		s.write(b)
	}
	s.sent++
}

func (s *stream) write(b []byte) {
	if s.f.LineEnd != "" {
		b = bytes.ReplaceAll(b, []byte("\n"), []byte(s.f.LineEnd))
	}
	size := max(len(b), 1)
	if s.f.OneByte {
		size = 1
	}
	for chunk := range slices.Chunk(b, size) {
		_, _ = s.w.Write(chunk)
		_ = s.rc.Flush()
	}
}

// PageSize is the number of events per page of a trace.
const PageSize = 10

func (e *Edge) traceEvents(w http.ResponseWriter, r *http.Request) {
	f := e.fault(r)
	events, _ := e.visible(0)
	from, _ := strconv.Atoi(r.URL.Query().Get("cursor"))
	to := min(from+PageSize, len(events))
	if to < len(events) {
		w.Header().Set("Runlog-Next-Cursor", strconv.Itoa(to))
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	rc := http.NewResponseController(w)
	for i, ev := range events[from:to] {
		line := ev.AppendLine(nil)
		if f.Cut && i == f.After {
			_, _ = w.Write(line[:f.Inside])
			_ = rc.Flush()
			panic(http.ErrAbortHandler)
		}
		if f.Heartbeat {
			_, _ = w.Write([]byte("{\"type\":\"ping\"}\n\n"))
		}
		_, _ = w.Write(line)
		_ = rc.Flush()
	}
}

func (e *Edge) artifact(w http.ResponseWriter, r *http.Request) {
	f := e.fault(r)
	body, ok := e.Artifacts[r.PathValue("id")]
	if !ok {
		Problem(w, http.StatusNotFound, event.CodeNotFound, "there is no such artifact")
		return
	}
	w.Header().Set("Content-Disposition", `attachment; filename="note.md"`)
	w.Header().Set("Content-Type", "text/markdown")
	w.Header().Set("ETag", fmt.Sprintf(`"%x"`, len(body)))
	from := 0
	if _, err := fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-", &from); err == nil && r.Header.Get("If-Range") == w.Header().Get("ETag") {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, len(body)-1, len(body)))
		w.Header().Set("Content-Length", strconv.Itoa(len(body)-from))
		w.WriteHeader(http.StatusPartialContent)
	} else {
		from = 0
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	}
	if f.Cut {
		_, _ = w.Write(body[from:min(from+f.Inside, len(body))])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(body[from:])
}
