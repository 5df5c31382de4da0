package edge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/runlog-dev/runlog/edge/auth"
	"github.com/runlog-dev/runlog/edge/room"
	"github.com/runlog-dev/runlog/edge/stream"
	"github.com/runlog-dev/runlog/event"
)

// A call is one request on its way: what is logged of it when it is over, and what it
// has taken and gives back.
type call struct {
	// The record.
	id           string
	began        time.Time
	method, path string
	route        string      // pattern; empty: none
	client       netip.Addr  // invalid if it has none
	who          auth.Caller // zero before it is known
	attrs        []slog.Attr
	started      bool // the answer has begun
	status       int
	bytes        int64  // of the answer's body
	ended        string // how a stream ended
	err          error

	// The connection.
	source   bool     // an EventSource asks
	parkable bool     // it can be taken over from its HTTP server
	closes   bool     // the client wants it closed after the answer
	gone     func()   // called when the client has gone, of one that closes
	old      bool     // HTTP/1.0: its end is the end of the body
	conn     net.Conn // nil unless old

	// What the call has.
	promised room.Promise
	body     *paced    // nil: there is none
	share    bodyShare // of the room for bodies
	hub      *stream.Hub
	held     *stream.Hold             // of the room for conversations; see hold
	opening  atomic.Pointer[openings] // counts the call until its header has left
	admitted *admission               // of a stream
	parked   *stream.Parked           // goes on when the handler has returned
}

type callKey struct{}

// callOf is the call that a context is of; nil if it is of none.
func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// hold is what the call has in memory of the conversation that it answers with.
func (c *call) hold() *stream.Hold {
	if c.held == nil {
		c.held = c.hub.Hold(c.who.Tenant)
	}
	return c.held
}

// note adds to the record.
func (c *call) note(key, value string) {
	noted := slices.ContainsFunc(c.attrs, func(a slog.Attr) bool { return a.Key == key })
	if value != "" && !noted {
		c.attrs = append(c.attrs, slog.String(key, value))
	}
}

// An answer is the response of a call. It counts bytes and knows whether it has begun.
type answer struct {
	http.ResponseWriter
	call *call
	pace answerPace

	takenOver *sync.WaitGroup
	unsaid    *unsaid // nil: net/http has the connection
}

// DeadlineEnds reports whether a write deadline that has passed ends the answer although
// nothing is being written, as in HTTP/2.
func (a *answer) DeadlineEnds() bool { return a.pace.ends }

func (a *answer) WriteHeader(status int) {
	if status >= 200 {
		a.call.started, a.call.status = true, status
		a.call.share.GiveUp()
	}
	if a.call.leavesUnsaid(status, a.Header()) {
		a.takeOver()
	}
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(b []byte) (int, error) {
	if !a.call.started {
		a.WriteHeader(http.StatusOK)
	}
	n, err := a.pace.write(a.ResponseWriter, b)
	a.call.bytes += int64(n)
	return n, err
}

// SetWriteDeadline is for handlers that see to it themselves that they are read.
func (a *answer) SetWriteDeadline(t time.Time) error {
	a.pace.timeout = 0
	return http.NewResponseController(a.ResponseWriter).SetWriteDeadline(t)
}

// Hurry gives the client no longer than within for what is being written. Unlike the
// rest it may be called while somebody writes.
func (a *answer) Hurry(within time.Duration) {
	_ = http.NewResponseController(a.ResponseWriter).SetWriteDeadline(time.Now().Add(within))
}

// FlushError is what http.ResponseController calls.
func (a *answer) FlushError() error {
	defer a.call.headerLeft()
	return http.NewResponseController(a.ResponseWriter).Flush()
}

// outlivesCall reports whether an answer has to leave before its call is over. In HTTP/1.0
// the connection must not end as usual before it has. Over HTTP/2 it would wait, with its
// goroutine, until the client makes room for it, when its call has given back what it was
// promised.
func (a *answer) outlivesCall() bool {
	return a.call.old && a.call.bytes > lengthTold || a.pace.ends && a.call.bytes > 0
}

// Unwrap leads http.ResponseController to the connection.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// around wraps all routes: the record, CORS, panics, unknown paths.
func (s *Server) around(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, r, done := s.newCall(w, r)
		defer done()
		a := &answer{ResponseWriter: w, call: c, takenOver: &s.takenOver,
			pace: answerPace{timeout: s.hub.WriteTimeout(), ends: r.ProtoMajor == 2}}
		a.Header().Set("X-Request-Id", c.id)
		defer s.conclude(a, c)
		defer a.pace.last(w)
		if s.cors(a, r) || s.turnedAway(a, r, c) || s.unrouted(mux, a, r) {
			return
		}
		mux.ServeHTTP(a, r)
	})
}

// newCall returns the call of a request, and the request with the call in its context and
// a body that is paced and counted. done gives back what the call has.
func (s *Server) newCall(w http.ResponseWriter, r *http.Request) (c *call, _ *http.Request, done func()) {
	c = &call{id: requestID(r), began: time.Now(), method: r.Method, path: r.URL.Path, client: s.clientOf(r),
		source: isEventSource(r), parkable: isParkable(r), closes: r.Close, old: !r.ProtoAtLeast(1, 1), gone: func() {}, hub: s.hub}
	ctx := r.Context()
	if c.closes {
		ctx, c.gone = context.WithCancel(ctx)
	}
	if c.old {
		c.conn = connOf(r)
		resets(c.conn, true)
	}
	ctx, attached := detached(ctx)
	r = r.WithContext(context.WithValue(ctx, callKey{}, c))
	dropBody(r)
	if r.Body != http.NoBody {
		c.body = s.pace(w, r.Body)
		r.Body, c.share = c.body, s.bodyShare()
	}
	return c, r, func() {
		s.ledger.Return(c.promised)
		c.held.Drop()
		c.share.GiveUp()
		attached()
		c.gone()
	}
}

// isParkable reports whether an answer is in chunks on a connection that carries
// nothing else.
func isParkable(r *http.Request) bool {
	return r.TLS == nil && r.ProtoMajor == 1 && r.ProtoMinor >= 1 && r.Method != http.MethodHead
}

// parkedOver ends a call whose stream was parked.
func (s *Server) parkedOver(c *call, written int64, err error) {
	c.bytes += written
	c.err = s.streamOver(c, false, err)
	c.admitted.leave()
	s.record(c)
}

// requestID is the client's id of the request, or a new one.
func requestID(r *http.Request) string {
	if id := r.Header.Get("X-Request-Id"); event.CheckID("request id", id) == nil {
		return id
	}
	return event.NewID("req")
}

// conclude ends a call whose handler has returned or panicked: it logs the record, or has
// a parked stream start. http.ErrAbortHandler aborts the answer; any other panic becomes a
// 500, or aborts the answer if that has begun.
func (s *Server) conclude(w *answer, c *call) {
	thrown := recover()
	c.headerLeft()
	if thrown != nil && thrown != any(http.ErrAbortHandler) && s.panicked(w, c, thrown) {
		thrown = nil
	}
	if c.parked != nil {
		c.method, c.path = strings.Clone(c.method), strings.Clone(c.path) // else the whole request line is kept
		c.parked.Start(func(written int64, err error) { s.parkedOver(c, written, err) }, s.reuse(c))
		return
	}
	s.record(c)
	if thrown == nil && w.outlivesCall() && w.FlushError() != nil {
		thrown = http.ErrAbortHandler
	}
	if w.unsaid != nil {
		w.unsaid.end(thrown == nil, s.hub.WriteTimeout())
	}
	if thrown != nil {
		if c.old {
			breakOff(w)
		}
		panic(http.ErrAbortHandler)
	}
	if c.old {
		resets(c.conn, false)
	}
}

// panicked logs a panic, and answers with a 500. It reports whether that is all: else the
// answer has to be aborted.
func (s *Server) panicked(w *answer, c *call, thrown any) (whole bool) {
	c.err = fmt.Errorf("panic: %v", thrown)
	s.Logger.Error("handler panicked", "request", c.id, "route", c.route, "panic", thrown, "stack", string(debug.Stack()))
	return s.tell(w, c, toProblem(c.err))
}

// record logs a call that is over.
func (s *Server) record(c *call) {
	took := time.Since(c.began)
	s.metrics.request(c, took)
	level := slog.LevelInfo
	if c.status >= 500 {
		level = slog.LevelWarn
	}
	if c.route == "GET /healthz" || c.route == "GET /readyz" {
		level = slog.LevelDebug
	}
	if s.Logger.Enabled(context.Background(), level) {
		s.Logger.LogAttrs(context.Background(), level, "request", c.summary(took)...)
	}
}

// summary is what the record says of the call.
func (c *call) summary(took time.Duration) []slog.Attr {
	attrs := []slog.Attr{slog.String("request", c.id), slog.String("method", c.method), slog.String("path", c.path),
		slog.Int("status", c.status), slog.Int64("bytes", c.bytes), slog.Duration("took", took)}
	known := func(key, value string) {
		if value != "" {
			attrs = append(attrs, slog.String(key, value))
		}
	}
	if c.client.IsValid() {
		known("client", c.client.String())
	}
	known("tenant", c.who.Tenant)
	known("key", c.who.Key)
	attrs = append(attrs, c.attrs...)
	known("ended", c.ended)
	if c.err != nil && (!errors.Is(c.err, errAborted) || c.ended == endedOtherwise) {
		known("err", c.err.Error())
	}
	return attrs
}

// caller is who asks, as the log says it.
func caller(c *call) string {
	if c.who.Name != "" {
		return c.who.Name
	}
	return "client"
}
