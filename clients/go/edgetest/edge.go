// Package edgetest is an edge for tests of clients: it plays one session's log
// over the HTTP contract and breaks its streams where it is told to.
package edgetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/runlog-dev/runlog/event"
)

// A Request is what a client asked for.
type Request struct {
	Method, Path, Query          string
	LastEventID, IdempotencyKey  string
	Accept, Authorization, Range string
	Body                         string
}

// An Edge serves one run of one session. Streams stay open until the run's
// terminal event; Append adds to them.
type Edge struct {
	*httptest.Server
	SessionID, RunID, TraceID string

	// Fault, if set, says how the n-th stream or download (0, 1, …) goes wrong.
	Fault func(n int, r Request) Fault
	// OnCancel, if set, runs before a cancel is answered.
	OnCancel func(reason string)
	// Snapshot is what snapshot=1 and …/snapshot answer.
	Snapshot json.RawMessage
	// Artifacts by id.
	Artifacts map[string][]byte

	mu       sync.Mutex
	log      []event.Event
	more     chan struct{} // closed when the log grows
	requests []Request
	streams  int
}

// Golden returns the events of the golden run, internal ones included.
func Golden(t testing.TB) []event.Event {
	t.Helper()
	var all []event.Event
	for line := range bytes.Lines(GoldenFile(t, "events.ndjson")) {
		e, err := event.Decode(line)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// GoldenFile returns one of the golden files.
func GoldenFile(t testing.TB, name string) []byte {
	t.Helper()
	_, here, _, _ := runtime.Caller(0)
	b, err := os.ReadFile(filepath.Join(filepath.Dir(here), "../../../event/testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// New serves log, whose events must be of one session and one run.
func New(t testing.TB, log []event.Event) *Edge {
	t.Helper()
	e := &Edge{more: make(chan struct{}), Artifacts: map[string][]byte{"art_1": []byte("# Note\n")}}
	e.Server = httptest.NewServer(e.routes())
	t.Cleanup(func() {
		e.CloseClientConnections()
		e.Close()
	})
	e.Append(log...)
	return e
}

// Append adds events to the log and to every open stream.
func (e *Edge) Append(events ...event.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ev := range events {
		e.log = append(e.log, ev)
		e.SessionID = ev.SessionID
		if ev.RunID != "" {
			e.RunID, e.TraceID = ev.RunID, ev.TraceID
		}
	}
	close(e.more)
	e.more = make(chan struct{})
}

// Requests returns what was asked so far.
func (e *Edge) Requests() []Request {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]Request(nil), e.requests...)
}

// Asked counts the requests with this method and path prefix.
func (e *Edge) Asked(method, prefix string) (n int) {
	for _, r := range e.Requests() {
		if r.Method == method && strings.HasPrefix(r.Path, prefix) {
			n++
		}
	}
	return n
}

// visible returns the events after seq that clients see, and how to wait for more.
func (e *Edge) visible(after event.Seq) ([]event.Event, <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []event.Event
	for _, ev := range e.log {
		if ev.Seq > after && !ev.Internal {
			out = append(out, ev)
		}
	}
	return out, e.more
}

func (e *Edge) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/runs", e.submit)
	mux.HandleFunc("GET /v1/runs", e.list)
	mux.HandleFunc("GET /v1/runs/{id}", e.known(&e.RunID, e.get))
	mux.HandleFunc("GET /v1/runs/{id}/events", e.known(&e.RunID, e.events))
	mux.HandleFunc("POST /v1/runs/{id}/cancel", e.known(&e.RunID, e.cancel))
	mux.HandleFunc("GET /v1/sessions/{id}/events", e.known(&e.SessionID, e.events))
	mux.HandleFunc("GET /v1/sessions/{id}/snapshot", e.known(&e.SessionID, e.snapshot))
	mux.HandleFunc("GET /v1/traces/{id}", e.known(&e.TraceID, e.trace))
	mux.HandleFunc("GET /v1/traces/{id}/events", e.known(&e.TraceID, e.traceEvents))
	mux.HandleFunc("GET /artifacts/{id}", e.artifact)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.note(r)
		mux.ServeHTTP(w, r)
	})
}

func (e *Edge) note(r *http.Request) {
	req := requestOf(r)
	e.mu.Lock()
	e.requests = append(e.requests, req)
	e.mu.Unlock()
}

func requestOf(r *http.Request) Request {
	var body bytes.Buffer
	_, _ = body.ReadFrom(r.Body)
	r.Body = http.NoBody
	if body.Len() > 0 {
		r.Body = readCloser{bytes.NewReader(body.Bytes())}
	}
	return Request{
		Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery,
		LastEventID: r.Header.Get("Last-Event-ID"), IdempotencyKey: r.Header.Get("Idempotency-Key"),
		Accept: r.Header.Get("Accept"), Authorization: r.Header.Get("Authorization"), Range: r.Header.Get("Range"),
		Body: body.String(),
	}
}

type readCloser struct{ *bytes.Reader }

func (readCloser) Close() error { return nil }

func (e *Edge) known(id *string, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		e.mu.Lock()
		ok := *id == r.PathValue("id")
		e.mu.Unlock()
		if !ok {
			Problem(w, http.StatusNotFound, event.CodeNotFound, fmt.Sprintf("there is no %q here", r.PathValue("id")))
			return
		}
		next(w, r)
	}
}

// Problem answers with problem+json.
func Problem(w http.ResponseWriter, status int, code event.Code, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{
		"type": "about:blank", "title": http.StatusText(status), "status": status, "code": code, "detail": detail,
	})
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func (e *Edge) submit(w http.ResponseWriter, r *http.Request) {
	if strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
		e.events(w, r)
		return
	}
	w.Header().Set("Location", "/v1/runs/"+e.RunID)
	answer(w, http.StatusAccepted, map[string]any{
		"run_id": e.RunID, "session_id": e.SessionID, "trace_id": e.TraceID, "agent": "demo", "status": "pending",
	})
}

// run is the state of the run by its log.
func (e *Edge) run() map[string]any {
	events, _ := e.visible(0)
	run := map[string]any{
		"run_id": e.RunID, "session_id": e.SessionID, "trace_id": e.TraceID, "agent": "demo", "status": event.Pending,
	}
	for _, ev := range events {
		run["seq"] = ev.Seq
		switch ev.Type {
		case event.RunStarted:
			run["status"], run["started_at"] = event.Running, ev.Time
		case event.RunCompleted, event.RunFailed, event.RunCancelled:
			run["status"], run["ended_at"] = event.Status(strings.TrimPrefix(string(ev.Type), "run.")), ev.Time
			run["usage"] = fieldOf(ev.Data, "usage")
		}
	}
	return run
}

func fieldOf(data json.RawMessage, name string) json.RawMessage {
	var m map[string]json.RawMessage
	_ = json.Unmarshal(data, &m)
	return m[name]
}

func (e *Edge) get(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, e.run()) }

func (e *Edge) list(w http.ResponseWriter, r *http.Request) {
	page := map[string]any{"runs": []any{e.run()}}
	if r.URL.Query().Get("cursor") == "" {
		page["next_cursor"] = "second page"
	}
	answer(w, http.StatusOK, page)
}

func (e *Edge) cancel(w http.ResponseWriter, r *http.Request) {
	var how struct{ Reason string }
	_ = json.NewDecoder(r.Body).Decode(&how)
	if e.OnCancel != nil {
		e.OnCancel(how.Reason)
	}
	answer(w, http.StatusOK, e.run())
}

func (e *Edge) snapshot(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, e.Snapshot)
}

func (e *Edge) trace(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, map[string]any{"trace_id": e.TraceID, "runs": []any{e.run()}})
}

// RunIDChanges runs change while no request is being routed by id.
func (e *Edge) RunIDChanges(change func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change()
}
