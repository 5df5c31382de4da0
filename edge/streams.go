package edge

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/runlog-dev/runlog/edge/auth"
	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/edge/dialect/a2a"
	"github.com/runlog-dev/runlog/edge/dialect/agents"
	"github.com/runlog-dev/runlog/edge/dialect/agui"
	"github.com/runlog-dev/runlog/edge/dialect/aisdk"
	"github.com/runlog-dev/runlog/edge/dialect/anthropic"
	"github.com/runlog-dev/runlog/edge/dialect/langgraph"
	"github.com/runlog-dev/runlog/edge/dialect/native"
	"github.com/runlog-dev/runlog/edge/dialect/openai"
	"github.com/runlog-dev/runlog/edge/dialect/parts"
	"github.com/runlog-dev/runlog/edge/dialect/plain"
	"github.com/runlog-dev/runlog/edge/dialect/rpc"
	"github.com/runlog-dev/runlog/edge/dialect/v1"
	"github.com/runlog-dev/runlog/edge/stream"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// dialects are those that ?dialect= may name.
var dialects = []dialect.Dialect{native.Dialect{}, plain.Dialect{}, agui.Dialect{}, aisdk.Dialect{}, openai.Responses{},
	v1.Dialect{}, parts.Dialect{}, agents.Dialect{}, rpc.Dialect{}, anthropic.Dialect{}, langgraph.Dialect{}, a2a.Dialect{}}

// runEvents streams one run and ends after its terminal event.
func (s *Server) runEvents(w http.ResponseWriter, r *http.Request, c *call) error {
	at, err := s.findRun(r.Context(), c, r.PathValue("run"))
	if err != nil {
		return err
	}
	req, err := s.streamRequest(r, c, native.Dialect{})
	if err != nil {
		return err
	}
	at.into(&req)
	return s.stream(w, r, c, req)
}

// sessionEvents streams a session with its future runs.
func (s *Server) sessionEvents(w http.ResponseWriter, r *http.Request, c *call) error {
	k, err := sessionKey(c, r.PathValue("session"))
	if err != nil {
		return err
	}
	req, err := s.streamRequest(r, c, native.Dialect{})
	if err != nil {
		return err
	}
	req.Key = k
	return s.stream(w, r, c, req)
}

// streamRequest reads what all streams take: position, filters, form.
func (s *Server) streamRequest(r *http.Request, c *call, def dialect.Dialect) (stream.Request, error) {
	var req stream.Request
	q := r.URL.Query()
	var err error
	if req.Transport, err = transport(r, stream.SSE{}); err != nil {
		return req, err
	}
	if req.Dialect, err = namedDialect(dialectName(r), def); err != nil {
		return req, err
	}
	if req.Audience, err = audience(q.Get("include"), c); err != nil {
		return req, err
	}
	if req.Catchup, err = catchup(q.Get("catchup")); err != nil {
		return req, err
	}
	if req.After, err = stream.ParsePosition(cursor(r)); err != nil {
		return req, err
	}
	snapshot, err := boolParam(r, "snapshot", false)
	if err != nil {
		return req, err
	}
	follow, err := boolParam(r, "follow", true)
	// A client that reconnects to the same URL already has its snapshot.
	req.Snapshot, req.NoFollow = snapshot && reconnected(r) == "", !follow
	return req, err
}

// cursor is where a client has got to. What a client says when it reconnects wins
// over the URL that it began with: the header, or the parameter of EventSource's
// polyfills.
func cursor(r *http.Request) string {
	if id := reconnected(r); id != "" {
		return id
	}
	q := r.URL.Query()
	return orWord(q.Get("after"), q.Get("last_event_id"))
}

func reconnected(r *http.Request) string {
	return orWord(r.Header.Get("Last-Event-ID"), r.URL.Query().Get("lastEventId"))
}

// transport chooses by Accept; a client that takes anything gets def.
func transport(r *http.Request, def stream.Transport) (stream.Transport, error) {
	if r.Context().Value(socketKey{}) != nil {
		return stream.WebSocket{}, nil
	}
	accept := strings.Join(r.Header.Values("Accept"), ",")
	for kind := range strings.SplitSeq(accept, ",") {
		kind, _, _ = strings.Cut(kind, ";")
		switch strings.ToLower(strings.TrimSpace(kind)) {
		case "text/event-stream":
			return stream.SSE{}, nil
		case "application/x-ndjson", "application/jsonl":
			return stream.NDJSON{}, nil
		case "*/*", "text/*", "":
			return def, nil
		}
	}
	return nil, problem(http.StatusNotAcceptable, event.CodeBadRequest, "Accept: %s; a stream is text/event-stream or application/x-ndjson", accept)
}

// dialectName is what a client asks for: by query, by header, or by a parameter
// of Accept (text/event-stream;dialect=v1).
func dialectName(r *http.Request) string {
	if name := r.URL.Query().Get("dialect"); name != "" {
		return name
	}
	if name := r.Header.Get("Runlog-Dialect"); name != "" {
		return name
	}
	for kind := range strings.SplitSeq(strings.Join(r.Header.Values("Accept"), ","), ",") {
		if _, params, err := mime.ParseMediaType(kind); err == nil && params["dialect"] != "" {
			return params["dialect"]
		}
	}
	return ""
}

func namedDialect(name string, def dialect.Dialect) (dialect.Dialect, error) {
	if name == "" {
		return def, nil
	}
	names := make([]string, len(dialects))
	for i, d := range dialects {
		if names[i] = d.Name(); names[i] == name {
			return d, nil
		}
	}
	p := problem(http.StatusBadRequest, event.CodeUnknownDialect, "there is no dialect %q; known: %s", name, strings.Join(names, ", "))
	p.Param, p.Known = "dialect", names
	return nil, p
}

func audience(include string, c *call) (dialect.Audience, error) {
	switch {
	case include == "":
		return dialect.Client, nil
	case include != "internal":
		return dialect.Client, bad("include", "include=%s is not known; use include=internal", include)
	case !c.who.May(auth.Audit):
		return dialect.Client, problem(http.StatusForbidden, event.CodeForbidden, "include=internal needs a key with the scope %s", auth.Audit)
	}
	return dialect.Auditor, nil
}

func catchup(name string) (stream.Catchup, error) {
	c := stream.Catchup(name)
	if name != "" && !slices.Contains(stream.Catchups, c) {
		return c, bad("catchup", "catchup=%s is not known; use events, merged or snapshot", name)
	}
	return c, nil
}

func boolParam(r *http.Request, name string, def bool) (bool, error) {
	switch v := r.URL.Query().Get(name); v {
	case "":
		return def, nil
	case "1", "true":
		return true, nil
	case "0", "false":
		return false, nil
	default:
		return def, bad(name, "%s=%s is neither true nor false", name, v)
	}
}

// stream subscribes, finds out what must be known before the first byte, and
// serves.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, c *call, req stream.Request) error {
	ctx, done, err := s.admit(r.Context())
	if err != nil {
		return err
	}
	defer done()
	v, err := s.view(ctx, req)
	if err != nil {
		return err
	}
	defer v.Close()
	return s.serveLast(ctx, w, c, v, req)
}

// A starting is a run that begins with the stream that tells it.
type starting struct {
	start func(context.Context) error // places the command
	name  func()                      // says in headers where the run is
	gone  func()                      // what it means that the client leaves; nil: nothing
}

// startStream starts a run and streams it: subscribed first, so that nothing is
// missed.
func (s *Server) startStream(w http.ResponseWriter, r *http.Request, c *call, req stream.Request, run starting) error {
	ctx, done, err := s.admit(r.Context())
	if err != nil {
		return err
	}
	defer done()
	v, err := s.hub.View(ctx, req)
	if err != nil {
		return err
	}
	defer v.Close()
	if err := run.start(ctx); err != nil {
		return err
	}
	run.name()
	if run.gone == nil {
		return s.serveLast(ctx, w, c, v, req)
	}
	err = s.serve(ctx, w, c, v, req)
	if left(r.Context()) {
		run.gone()
	}
	return err
}

// view subscribes to a run that was found, or to a session if it is there: the
// answer that says where its log ends says that too.
func (s *Server) view(ctx context.Context, req stream.Request) (*stream.Viewer, error) {
	v, err := s.hub.View(ctx, req)
	if err != nil || req.RunID != "" || v.HasEvents() {
		return v, err
	}
	if err := s.confirm(ctx, req.Key); err != nil {
		v.Close()
		return nil, err
	}
	return v, nil
}

// admit counts a stream in; its context ends when the edge drains.
func (s *Server) admit(ctx context.Context) (context.Context, func(), error) {
	if s.drain.Err() != nil {
		return nil, nil, errDraining
	}
	c, _ := ctx.Value(callKey{}).(*call)
	leave, err := s.enter(ctx)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.drain, func() { s.inTurn(func() { cancel(errDraining) }) })
	return ctx, func() {
		stop()
		cancel(nil)
		c.whenOver(leave)
	}, nil
}

// serveLast serves as the last thing that a handler does: where it can, the
// connection goes on without the handler when there is nothing to show at the
// moment.
func (s *Server) serveLast(ctx context.Context, w http.ResponseWriter, c *call, v *stream.Viewer, req stream.Request) error {
	if !c.parks || req.NoFollow || !s.hub.Parks() {
		return s.serve(ctx, w, c, v, req)
	}
	if over, err := s.begin(ctx, w, c, v, req); over || err != nil {
		return err
	}
	ctx, leave := attended(ctx)
	defer leave()
	p, err := v.ServeOrPark(ctx, w)
	if c.parked = p; p != nil {
		return nil
	}
	return s.streamOver(c, false, err)
}

// serve streams to the end.
func (s *Server) serve(ctx context.Context, w http.ResponseWriter, c *call, v *stream.Viewer, req stream.Request) error {
	if over, err := s.begin(ctx, w, c, v, req); over || err != nil {
		return err
	}
	if req.NoFollow {
		return s.streamOver(c, true, v.Serve(ctx, w)) // it has an end, or a write fails
	}
	ctx, leave := attended(ctx)
	defer leave()
	return s.streamOver(c, false, v.Serve(ctx, w))
}

// begin answers with the header of a stream, or that it is over.
func (s *Server) begin(ctx context.Context, w http.ResponseWriter, c *call, v *stream.Viewer, req stream.Request) (over bool, err error) {
	c.note("session", req.Key.Session)
	c.note("run", req.RunID)
	c.note("after", req.After.String())
	if over, err = v.Prepare(ctx); err != nil {
		return over, err
	}
	h := w.Header()
	if over {
		h.Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusNoContent)
		return over, nil
	}
	h.Set("Content-Type", req.Transport.ContentType())
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Runlog-Session-Id", headerText(req.Key.Session))
	w.WriteHeader(http.StatusOK)
	s.metrics.streams.Inc()
	return false, nil
}

// streamOver notes how a stream ended.
func (s *Server) streamOver(c *call, history bool, err error) error {
	s.metrics.streams.Dec()
	c.ended = ending(err, history)
	s.metrics.ended.WithLabelValues(c.ended).Inc()
	if err != nil {
		return fmt.Errorf("%w: %w", errAborted, err)
	}
	return nil
}

// headerText keeps ids that HTTP headers cannot carry out of them.
func headerText(id string) string {
	if strings.ContainsFunc(id, func(r rune) bool { return r < ' ' || r > '~' }) {
		return ""
	}
	return id
}

// ending is why a stream ended, for the record and the metrics.
func ending(err error, history bool) string {
	switch {
	case err == nil && history:
		return "history"
	case err == nil:
		return "run_over"
	case errors.Is(err, errDraining):
		return "drain"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "slow_client"
	case errors.Is(err, eventlog.ErrGone), errors.Is(err, eventlog.ErrUnavailable):
		return "log"
	case errors.Is(err, context.Canceled):
		return "client"
	}
	return "connection"
}

// endings lists what ending returns.
var endings = []string{"history", "run_over", "drain", "slow_client", "log", "client", "connection"}

// sessionKey is where a session would be, for callers whom it may concern.
func sessionKey(c *call, id string) (eventlog.Key, error) {
	k := eventlog.Key{Tenant: c.who.Tenant, Session: id}
	c.note("session", id)
	if event.CheckID("session id", id) != nil || !c.who.Reaches(id, "") {
		return k, notFound("session", id)
	}
	return k, nil
}

// findSession answers for a session that has events or commands; another
// tenant's is not there.
func (s *Server) findSession(ctx context.Context, c *call, id string) (eventlog.Key, error) {
	k, err := sessionKey(c, id)
	if err != nil || s.hub.HasEvents(k) {
		return k, err
	}
	return k, s.confirm(ctx, k)
}

// confirm asks the log's leader whether there is such a session.
func (s *Server) confirm(ctx context.Context, k eventlog.Key) error {
	for range 2 { // a command may turn into events between the two looks
		head, err := s.Log.Head(ctx, k)
		if err != nil || head.Seq > 0 {
			return err
		}
		waiting, err := s.Log.Inbox(ctx, k)
		if err != nil || slices.ContainsFunc(waiting, func(w eventlog.Waiting) bool { return w.Kind == event.Invoke }) {
			return err
		}
	}
	return notFound("session", k.Session)
}
