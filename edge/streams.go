package edge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"strings"

	"github.com/runlog-dev/runlog/edge/auth"
	"github.com/runlog-dev/runlog/edge/dialect/native"
	"github.com/runlog-dev/runlog/edge/stream"
	"github.com/runlog-dev/runlog/eventlog"
)

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

// startStream starts a run, unless that was done before, and streams it: subscribed first,
// so that nothing is missed.
func (s *Server) startStream(w http.ResponseWriter, r *http.Request, c *call, n *namedRun, req stream.Request) error {
	ctx, done, err := s.admit(r.Context())
	if err != nil {
		return err
	}
	defer done()
	n.place.into(&req)
	req.Seen = s.metrics.firsts(c.began)
	v, err := s.hub.View(ctx, req)
	if err != nil {
		return err
	}
	defer v.Close()
	if err := n.start(ctx); err != nil {
		return err
	}
	s.nameRun(w, c, n.ref)
	maps.Copy(w.Header(), n.header)
	if !n.untilGone {
		return s.serveLast(ctx, w, c, v, req)
	}
	err = s.serve(ctx, w, c, v, req)
	if err != nil && left(r.Context()) { // who leaves behind the end has all of it
		s.cancelWithClient(r.Context(), c, n.ref, n.place.key.Tenant)
	}
	return err
}

// view subscribes to what was asked for. A run was found before; that a session exists
// mostly shows in the answer that says where its log ends.
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

// serveLast is serve for handlers that have nothing to do after it. Where that is
// possible, the stream goes on without the handler as soon as there is nothing to show.
func (s *Server) serveLast(ctx context.Context, w http.ResponseWriter, c *call, v *stream.Viewer, req stream.Request) error {
	if !c.parkable || req.NoFollow || !s.hub.Parks() {
		return s.serve(ctx, w, c, v, req)
	}
	if over, err := s.begin(ctx, w, c, v, req); over || err != nil {
		return err
	}
	ctx, leave := attended(ctx)
	defer leave()
	p, err := v.ServeOrPark(ctx, c.admitted.key.Until(), w)
	if c.parked = p; p != nil {
		parkedNow(ctx)
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

// begin answers with the header of a stream, or that it is over. To a HEAD request
// the header is all: nothing that is written after it would leave, so that a client
// which has gone would never be found out.
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
	h.Set("Runlog-Session-Id", headerText(req.Key.Session))
	if c.method == http.MethodHead {
		writeStreamHeader(w, req.Transport)
		return true, nil
	}
	return false, s.beginStream(w, c, req.Transport)
}

// beginStream answers with the header of a stream. If the edge stops, the connection is
// aborted instead: the run may have been started by now, so that a 503 would not be true.
func (s *Server) beginStream(w http.ResponseWriter, c *call, t stream.Transport) error {
	if !c.started && !s.openings.begin(c) { // c.started: a WebSocket, whose header has left
		c.started = true
		return errDraining
	}
	writeStreamHeader(w, t)
	s.metrics.streams.Inc()
	return nil
}

// writeStreamHeader sends the header of a stream, which no proxy may keep or change.
func writeStreamHeader(w http.ResponseWriter, t stream.Transport) {
	h := w.Header()
	h.Set("Content-Type", t.ContentType())
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusOK)
}

// streamOver notes how a stream ended. history: it was to end at the log's head. The error
// that it returns aborts the connection.
func (s *Server) streamOver(c *call, history bool, err error) error {
	s.metrics.streams.Dec()
	c.ended = ending(err, history)
	s.metrics.ended.WithLabelValues(c.ended).Inc()
	if err != nil {
		return fmt.Errorf("%w: %w", errAborted, err)
	}
	return nil
}

// headerText is an id as the value of an HTTP header, empty if no header can carry it.
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
	case errors.Is(err, auth.ErrRevoked):
		return "revoked"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "slow_client"
	case errors.Is(err, eventlog.ErrGone), errors.Is(err, eventlog.ErrUnavailable):
		return "log"
	case errors.Is(err, context.Canceled):
		return "client"
	}
	return endedOtherwise
}

// endedOtherwise is how a stream ends that nobody meant to end: the record says why.
const endedOtherwise = "connection"

// endings lists what ending returns.
var endings = []string{"history", "run_over", "drain", "revoked", "slow_client", "log", "client", endedOtherwise}
