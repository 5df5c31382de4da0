package edge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/edge/dialect/rpc"
	"github.com/runlog-dev/runlog/edge/stream"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// An rpcRun is a run that a call is about.
type rpcRun struct {
	*namedRun
	after     stream.Position
	sentences bool
}

// rpcStreams are the methods that stream.
var rpcStreams = map[string]func(*Server, *http.Request, *call, *rpcCall) (*rpcRun, error){
	"agent.invoke": (*Server).rpcInvoke,
	"agent.attach": (*Server).rpcAttach,
	"agent.resume": (*Server).rpcResume,
}

// An rpcConfig is a run's config and what the stream is to be like.
type rpcConfig struct {
	event.RunConfig
	Aggregate string `json:"aggregate"`
}

func (c *rpcConfig) sentences() (bool, error) {
	if c == nil {
		return false, nil
	}
	switch c.Aggregate {
	case "", "token":
		return false, nil
	case "sentence":
		return true, nil
	}
	return false, bad("config.aggregate", "config.aggregate: %q is not known; use token or sentence", c.Aggregate)
}

func (c *rpcConfig) run() *event.RunConfig {
	if c == nil {
		return nil
	}
	return &c.RunConfig
}

type invokeParams struct {
	Agent        string          `json:"agent"`
	SessionID    string          `json:"session_id"`
	RunID        string          `json:"run_id"`
	TraceID      string          `json:"trace_id"`
	InputText    string          `json:"input_text"`
	Input        json.RawMessage `json:"input"`
	Queue        event.Queue     `json:"queue"`
	OnDisconnect string          `json:"on_disconnect"`
	Config       *rpcConfig      `json:"config"`
	Stream       *bool           `json:"stream"`
}

// rpcInvoke accepts a run. Of each trace that its caller names one run is under
// way at most: a second invoke is told which.
func (s *Server) rpcInvoke(r *http.Request, c *call, q *rpcCall) (*rpcRun, error) {
	var p invokeParams
	if err := q.into(&p); err != nil {
		return nil, err
	}
	if (p.InputText != "") == (len(p.Input) > 0) {
		return nil, bad("input_text", "send input_text, a text, or input, a list of parts or messages")
	}
	if p.InputText != "" {
		p.Input = event.Encode(p.InputText)
	}
	sentences, err := p.Config.sentences()
	if err != nil {
		return nil, err
	}
	sub, err := s.submission(r, c, q.Params, runRequest{Agent: p.Agent, SessionID: p.SessionID, RunID: p.RunID, TraceID: p.TraceID,
		Input: p.Input, Queue: p.Queue, OnDisconnect: p.OnDisconnect, Config: p.Config.run()})
	if err != nil {
		return nil, err
	}
	reserve := s.reserve
	if p.TraceID != "" {
		reserve = s.reserveTrace
	}
	ref, _, err := reserve(r.Context(), sub)
	if err != nil {
		return nil, err
	}
	return &rpcRun{namedRun: s.reserved(sub, ref), sentences: sentences}, nil
}

type attachParams struct {
	RunID     string          `json:"run_id"`
	SessionID string          `json:"session_id"`
	TraceID   string          `json:"trace_id"`
	After     json.RawMessage `json:"after"`
	Config    *rpcConfig      `json:"config"`
	Stream    *bool           `json:"stream"`
}

// rpcAttach follows a run: the one that is named, or the session's or trace's
// that is under way, or their last one.
func (s *Server) rpcAttach(r *http.Request, c *call, q *rpcCall) (*rpcRun, error) {
	var p attachParams
	if err := q.into(&p); err != nil {
		return nil, err
	}
	f := &rpcRun{}
	var err error
	if f.sentences, err = p.Config.sentences(); err != nil {
		return nil, err
	}
	if f.after, err = rpcAfter(r, p.After); err != nil {
		return nil, err
	}
	at, err := s.rpcFind(r.Context(), c, p)
	f.namedRun = there(at)
	return f, err
}

// rpcAfter reads an event_id, or a seq.
func rpcAfter(r *http.Request, raw json.RawMessage) (stream.Position, error) {
	text := r.Header.Get("Last-Event-ID")
	if len(raw) > 0 && string(raw) != "null" && json.Unmarshal(raw, &text) != nil {
		text = string(raw)
	}
	return stream.ParsePosition(rpc.Cursor(text))
}

func (s *Server) rpcFind(ctx context.Context, c *call, p attachParams) (runPlace, error) {
	switch {
	case p.RunID != "":
		return s.findRun(ctx, c, p.RunID)
	case p.SessionID == "" && p.TraceID == "":
		return runPlace{}, bad("run_id", "name a run: run_id, session_id or trace_id")
	case p.SessionID == "":
		return s.rpcFindTrace(ctx, c, p.TraceID)
	}
	fold, err := s.fold(ctx, c, p.SessionID)
	if err != nil {
		return runPlace{}, err
	}
	if run := runOfTrace(fold, p.TraceID); run != nil {
		return placeOf(c.who.Tenant, refIn(fold, run)), nil
	}
	return runPlace{}, problem(http.StatusNotFound, event.CodeNotFound, "the session %q has no such run that has begun; name its run_id", p.SessionID)
}

// runOfTrace is the run under way, or else the last one; of a trace, if one is
// named.
func runOfTrace(fold *event.Session, trace string) *event.Run {
	var last *event.Run
	for _, run := range fold.Runs {
		if run.ParentRunID == "" && (trace == "" || run.TraceID == trace) && (last == nil || last.Status.Terminal()) {
			last = run
		}
	}
	return last
}

func (s *Server) rpcFindTrace(ctx context.Context, c *call, trace string) (runPlace, error) {
	if s.Catalog == nil {
		return runPlace{}, bad("run_id", "this edge has no catalog to look traces up in; name the run_id or session_id as well")
	}
	runs, err := s.Catalog.RunsOfTrace(ctx, c.who.Tenant, trace)
	if err != nil {
		return runPlace{}, err
	}
	for i := len(runs) - 1; i >= 0; i-- {
		if runs[i].ParentRunID == "" {
			return s.findRun(ctx, c, runs[i].RunID)
		}
	}
	return runPlace{}, notFound("trace", trace)
}

type resumeParams struct {
	RunID  string     `json:"run_id"`     // the one that failed, was cancelled or stopped
	NewID  string     `json:"new_run_id"` // of the run that goes on
	Config *rpcConfig `json:"config"`
	Stream *bool      `json:"stream"`
}

func (s *Server) rpcResume(r *http.Request, c *call, q *rpcCall) (*rpcRun, error) {
	var p resumeParams
	if err := q.into(&p); err != nil {
		return nil, err
	}
	sentences, err := p.Config.sentences()
	if err != nil {
		return nil, err
	}
	sub, err := s.resuming(r, c, p.RunID, resumeRequest{p.NewID, p.Config.run()})
	if err != nil {
		return nil, err
	}
	ref, _, err := s.reserve(r.Context(), sub)
	if err != nil {
		return nil, err
	}
	return &rpcRun{namedRun: s.reserved(sub, ref), sentences: sentences}, nil
}

// rpcStream follows a run and answers the call with its end.
func (s *Server) rpcStream(w http.ResponseWriter, r *http.Request, c *call, q *rpcCall) error {
	f, err := rpcStreams[q.Method](s, r, c, q)
	if err == nil {
		err = s.rpcFollow(w, r, c, q, f)
	}
	if err == nil || c.started {
		return err
	}
	p := s.rpcProblem(c, err)
	if p.attach != nil {
		return rpcBusy(w, q, p)
	}
	return writeRPC(w, rpcAnswer{ID: q.ID, Error: rpcErrorOf(p)})
}

func (s *Server) rpcFollow(w http.ResponseWriter, r *http.Request, c *call, q *rpcCall, f *rpcRun) error {
	ctx, done, err := s.admit(r.Context())
	if err != nil {
		return err
	}
	defer done()
	p := f.place
	req := stream.Request{After: f.after, Transport: rpcLines{}, Empty: true, Seen: s.metrics.firsts(c.began),
		Dialect: rpc.Dialect{Session: p.key.Session, Run: p.runID, Trace: p.traceID, Sentences: f.sentences}}
	p.into(&req)
	v, err := s.hub.View(ctx, req)
	if err != nil {
		return err
	}
	defer v.Close()
	if err := f.start(ctx); err != nil {
		return err
	}
	s.nameRun(w, c, f.ref)
	err = s.serve(ctx, w, c, v, req)
	if err != nil && f.untilGone && left(r.Context()) {
		s.cancelWithClient(r.Context(), c, f.ref, p.key.Tenant)
	}
	if err != nil {
		return err
	}
	st, _, err := s.state(ctx, p)
	if err != nil {
		return fmt.Errorf("%w: %w", errAborted, err)
	}
	_, err = w.Write(rpcLine(rpcEnd(q, st)))
	return err
}

// rpcEnd is the answer to a call whose run is over.
func rpcEnd(q *rpcCall, st runState) rpcAnswer {
	if st.Status == event.Failed && st.Error != nil {
		return rpcAnswer{ID: q.ID, Error: &rpcError{rpcFailed, st.Error.Message, &rpcData{Code: st.Error.Code, Retryable: st.Error.Retryable, Run: &st}}}
	}
	return rpcAnswer{ID: q.ID, Result: st}
}

// rpcBusy tells that a run of the trace is under way, as an event and as the
// answer.
func rpcBusy(w http.ResponseWriter, q *rpcCall, p *Problem) error {
	h := w.Header()
	h.Set("Content-Type", rpcLines{}.ContentType())
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	a := p.attach
	said := dialect.NewObject(512).Text("jsonrpc", "2.0").Text("method", "agent.event").Open("params").
		Text("type", "error").Text("event_id", a.SessionID+"-0").Text("trace_id", a.TraceID).Text("session_id", a.SessionID).Text("run_id", a.RunID).
		Value("created_at", event.At(time.Now())).Text("code", string(p.Code)).Text("message", p.Detail).Value("attach", a).Close().Message("")
	_, err := w.Write(append(append(said.Data, '\n'), rpcLine(rpcAnswer{ID: q.ID, Error: rpcErrorOf(p)})...))
	return err
}

// rpcLines has one notification per line. A heartbeat is one too, and follows
// every silence, so that there are no pings.
type rpcLines struct{}

func (rpcLines) ContentType() string { return stream.NDJSON{}.ContentType() }

func (rpcLines) Append(b []byte, _ string, m dialect.Message) []byte {
	return append(append(b, m.Data...), '\n')
}

func (rpcLines) Hello(b []byte) []byte { return b }
func (rpcLines) Ping(b []byte) []byte  { return b }

// reserveTrace reserves a run unless one of its trace is under way; then it
// returns a problem that names that one. Runs that follow each other in a trace
// form a chain: each one's key is that of the run before it.
func (s *Server) reserveTrace(ctx context.Context, sub *submission) (ref eventlog.RunRef, existed bool, err error) {
	mine := *sub
	if mine.want.RunID == "" && mine.idempotencyKey != "" {
		mine.want.RunID = derivedID("run", "rpc", mine.idempotencyKey)
	}
	mine.idempotencyKey = ""
	if mine.want.RunID == "" {
		mine.want.RunID = event.NewID("run")
	} else if _, err := s.Log.FindRun(ctx, sub.tenant, mine.want.RunID); err == nil {
		mine.want.BodyHash = traceHash(mine.want)
		return s.reserve(ctx, &mine) // asked for again
	} else if !errors.Is(err, eventlog.ErrNotFound) {
		return ref, false, err
	}
	if err := s.idleTrace(ctx, &mine); err != nil {
		return ref, false, err
	}
	mine.want.BodyHash = traceHash(mine.want)
	for mine.idempotencyKey = "trace/" + mine.want.TraceID; ; mine.idempotencyKey = "trace/" + mine.want.TraceID + "/" + ref.RunID {
		if ref, existed, err = s.reserve(ctx, &mine); err != nil || !existed || ref.RunID == mine.want.RunID {
			return ref, existed, err
		}
		over, err := s.isOver(ctx, sub.tenant, ref)
		if err != nil {
			return ref, false, err
		}
		if !over {
			return ref, false, busyTrace(rpcAttach{ref.RunID, ref.SessionID, ref.TraceID})
		}
	}
}

// traceHash lets all runs of a trace share a key.
func traceHash(want eventlog.RunRef) string { return bodyHash("trace", []byte(want.TraceID)) }

// isOver reports whether a run has ended, or was given up before it was placed.
func (s *Server) isOver(ctx context.Context, tenant string, ref eventlog.RunRef) (bool, error) {
	found, err := s.Log.FindRun(ctx, tenant, ref.RunID)
	if errors.Is(err, eventlog.ErrNotFound) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	st, _, err := s.state(ctx, placeOf(tenant, found))
	return st.Status.Terminal(), err
}

// idleTrace looks for a run of the trace that was not started by agent.invoke.
func (s *Server) idleTrace(ctx context.Context, sub *submission) error {
	want := sub.want
	if want.SessionID != "" {
		fold, err := s.load(ctx, eventlog.Key{Tenant: sub.tenant, Session: want.SessionID})
		if err != nil {
			return err
		}
		if run := runOfTrace(fold, want.TraceID); run != nil && !run.Status.Terminal() {
			return busyTrace(rpcAttach{run.RunID, want.SessionID, want.TraceID})
		}
	}
	if s.Catalog == nil {
		return nil
	}
	runs, err := s.Catalog.RunsOfTrace(ctx, sub.tenant, want.TraceID)
	if err != nil {
		return nil // the log knows; the catalog only knows more
	}
	for _, run := range runs {
		if run.ParentRunID == "" && !run.Status.Terminal() {
			if over, err := s.isOver(ctx, sub.tenant, eventlog.RunRef{RunID: run.RunID}); err != nil || !over {
				return busyTrace(rpcAttach{run.RunID, run.SessionID, want.TraceID})
			}
		}
	}
	return nil
}

func busyTrace(a rpcAttach) *Problem {
	p := problem(http.StatusConflict, event.CodeConflict, "the run %s of this trace is under way: attach to it with agent.attach, or invoke with another trace_id", a.RunID)
	p.attach = &a
	return p
}
