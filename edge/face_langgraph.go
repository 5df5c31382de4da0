package edge

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"strings"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/edge/dialect/langgraph"
	"github.com/runlog-dev/runlog/edge/dialect/native"
	"github.com/runlog-dev/runlog/edge/stream"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// langgraphRoutes are as much of LangGraph's API as its SDK needs to talk to
// agents: a thread is a session, an assistant is an agent.
func (s *Server) langgraphRoutes() []route {
	const thread, run = "/langgraph/threads/{thread}", "/langgraph/threads/{thread}/runs/{run}"
	return []route{
		{"GET /langgraph/ok", s.langgraphOK, true},
		{"GET /langgraph/info", s.langgraphInfo, true},
		{"POST /langgraph/assistants/search", s.searchAssistants, false},
		{"POST /langgraph/assistants/count", s.countAssistants, false},
		{"GET /langgraph/assistants/{assistant}", s.getAssistant, false},
		{"GET /langgraph/assistants/{assistant}/schemas", s.getSchemas, false},
		{"POST /langgraph/threads", s.createThread, false},
		{"POST /langgraph/threads/search", s.searchThreads, false},
		{"GET " + thread, s.getThread, false},
		{"GET " + thread + "/stream", s.threadStream, false},
		{"GET " + thread + "/state", s.threadState, false},
		{"GET " + thread + "/state/{checkpoint}", s.threadState, false},
		{"POST " + thread + "/state/checkpoint", s.threadStateAt, false},
		{"GET " + thread + "/history", s.threadHistory, false},
		{"POST " + thread + "/history", s.threadHistory, false},
		{"GET " + thread + "/runs", s.threadRuns, false},
		{"POST " + thread + "/runs", s.createRun, false},
		{"POST " + thread + "/runs/stream", s.streamRun, false},
		{"POST " + thread + "/runs/wait", s.waitRun, false},
		{"POST /langgraph/runs", s.createRun, false},
		{"POST /langgraph/runs/stream", s.streamRun, false},
		{"POST /langgraph/runs/wait", s.waitRun, false},
		{"GET " + run, s.threadRun, false},
		{"GET " + run + "/join", s.joinRun, false},
		{"GET " + run + "/stream", s.joinStream, false},
		{"GET /langgraph/runs/{run}/stream", s.joinStream, false},
		{"POST " + run + "/cancel", s.cancelThreadRun, false},
	}
}

// threadOf reads the thread of a request; it need not be there.
func threadOf(r *http.Request) (string, error) {
	id := r.PathValue("thread")
	if id == "" {
		return "", nil
	}
	if err := event.CheckID("thread_id", id); err != nil {
		return "", bad("thread_id", "%s", err)
	}
	return id, nil
}

// threadFold is a thread as it is; one that nothing was said in is empty.
func (s *Server) threadFold(ctx context.Context, c *call, thread string) (*event.Session, error) {
	return s.threadBy(ctx, c, thread, s.load)
}

// threadToTell is threadFold for an answer that says what was said in it.
func (s *Server) threadToTell(ctx context.Context, c *call, thread string) (*event.Session, error) {
	return s.threadBy(ctx, c, thread, s.loadToTell)
}

func (s *Server) threadBy(ctx context.Context, c *call, thread string, load func(context.Context, eventlog.Key) (*event.Session, error)) (*event.Session, error) {
	c.note("session", thread)
	if thread == "" || !c.who.Reaches(thread, "") {
		return event.NewSession(thread), nil
	}
	return load(ctx, eventlog.Key{Tenant: c.who.Tenant, Session: thread})
}

// acceptRun makes the entry of what a request wants: a run for what it says, the
// rest of one that waits for its answers, or, if it brings nothing, another try
// at one that failed.
func (s *Server) acceptRun(w http.ResponseWriter, r *http.Request, c *call) (*namedRun, *langgraphInput, error) {
	body, err := readBody(w, r, s.maxHistory())
	if err != nil {
		return nil, nil, err
	}
	thread, err := threadOf(r)
	if err != nil {
		return nil, nil, err
	}
	in, err := readLangGraph(body)
	if err != nil {
		return nil, nil, err
	}
	fold, err := s.threadFold(r.Context(), c, thread)
	if err != nil {
		return nil, nil, err
	}
	if err := in.refuse(fold); err != nil {
		return nil, nil, err
	}
	n, err := s.acceptNamed(r, c, in, fold, body)
	if n != nil {
		n.untilGone = in.OnDisconnect == "cancel"
	}
	return n, in, err
}

func (s *Server) acceptNamed(r *http.Request, c *call, in *langgraphInput, fold *event.Session, body []byte) (*namedRun, error) {
	if in.resumes() {
		return s.resumeThread(r.Context(), c, in, fold)
	}
	sub, err := s.langgraphSubmission(r, c, in, fold, body)
	if err != nil {
		return nil, err
	}
	n, _, err := s.reserveNamed(r.Context(), sub)
	return n, err
}

func (s *Server) langgraphSubmission(r *http.Request, c *call, in *langgraphInput, fold *event.Session, body []byte) (*submission, error) {
	if in.empty() {
		return s.retryThread(r, c, fold)
	}
	messages, err := s.langgraphMessages(r.Context(), c, in, fold)
	if err != nil {
		return nil, err
	}
	req := runRequest{RunID: event.NewID("run"), Agent: in.Assistant, SessionID: fold.SessionID, Queue: inPlaceOfAnAnswer(fold, in.queue())}
	return submissionOf(r, c, req, messages, bodyHash(r.URL.Path, body))
}

// retryThread goes on with a thread's last run.
func (s *Server) retryThread(r *http.Request, c *call, fold *event.Session) (*submission, error) {
	run := lastRun(fold)
	if run == nil {
		return nil, bad("input", "input is null, and nothing was said in this thread: send {messages: […]}")
	}
	return s.resuming(r, c, run.RunID, resumeRequest{})
}

// lastRun is the run under way, or the last one that began; no sub-agent's.
func lastRun(fold *event.Session) *event.Run { return dialect.Shown(fold, "") }

// resumeThread gives a parked run what it waits for. Until it goes on, the same
// answer again is the same run.
func (s *Server) resumeThread(ctx context.Context, c *call, in *langgraphInput, fold *event.Session) (*namedRun, error) {
	run := fold.Parked()
	if run == nil {
		return nil, nothingWaits("thread")
	}
	answers, err := in.answers(fold, run)
	if err != nil {
		return nil, err
	}
	id := derivedID("run", fold.SessionID, run.RunID, run.ExpiresAt.String())
	ref, start, err := s.continues(ctx, c, fold, id, bodyHash("langgraph", in.Command.Resume), answers)
	if errors.Is(err, eventlog.ErrMismatch) {
		return nil, problem(http.StatusConflict, event.CodeConflict, "another answer was given a moment ago: the first one counts")
	}
	if err != nil {
		return nil, err
	}
	p, err := s.findRun(ctx, c, ref.Continues)
	return &namedRun{ref: ref, place: p, start: start}, err
}

// streamRun starts a run and streams it. Its Location is where the SDK goes on
// when the stream breaks off: a path that it appends to its own address.
func (s *Server) streamRun(w http.ResponseWriter, r *http.Request, c *call) error {
	n, in, err := s.acceptRun(w, r, c)
	if err != nil {
		return err
	}
	return s.langgraphStream(w, r, c, n, in.modes)
}

// joinStream streams a run from a position. The SDK's -1 is the start.
func (s *Server) joinStream(w http.ResponseWriter, r *http.Request, c *call) error {
	n, err := s.findThreadRun(r, c)
	if err != nil {
		return err
	}
	modes, err := modesOf(r.URL.Query()["stream_mode"])
	if err != nil {
		return err
	}
	if n.untilGone, err = boolParam(r, "cancel_on_disconnect", false); err != nil {
		return err
	}
	return s.langgraphStream(w, r, c, n, modes)
}

func (s *Server) langgraphStream(w http.ResponseWriter, r *http.Request, c *call, n *namedRun, modes langgraph.Modes) error {
	req, err := s.langgraphRequest(r, c, langgraph.Dialect{Modes: modes, As: n.as()})
	if err != nil {
		return err
	}
	n.place.after = max(n.place.after, n.from())
	req.Empty, req.Ends, n.header = true, parksAfter(n.from()), langgraphPlace(n, modes)
	return s.startStream(w, r, c, n, req)
}

// langgraphRequest is what a stream is to be like.
func (s *Server) langgraphRequest(r *http.Request, c *call, d langgraph.Dialect) (stream.Request, error) {
	if r.Header.Get("Last-Event-ID") == "-1" {
		r = r.Clone(r.Context())
		r.Header.Del("Last-Event-ID")
	}
	return s.streamRequest(r, c, d)
}

// langgraphPlace tells where the run is, as the SDK reads it.
func langgraphPlace(n *namedRun, modes langgraph.Modes) http.Header {
	at := "/threads/" + url.PathEscape(n.ref.SessionID) + "/runs/" + url.PathEscape(n.ref.RunID)
	query := url.Values{"stream_mode": modes.Names()}.Encode()
	return http.Header{"Content-Location": {at}, "Location": {strings.TrimSuffix(at+"/stream?"+query, "?")}}
}

// findThreadRun finds the run of a request, in its thread.
func (s *Server) findThreadRun(r *http.Request, c *call) (*namedRun, error) {
	thread, err := threadOf(r)
	if err != nil {
		return nil, err
	}
	n, err := s.findNamed(r.Context(), c, r.PathValue("run"))
	if err == nil && thread != "" && n.place.key.Session != thread {
		err = notFound("run", r.PathValue("run"))
	}
	return n, err
}

// threadStream follows a thread with its future runs.
func (s *Server) threadStream(w http.ResponseWriter, r *http.Request, c *call) error {
	k, err := s.findSession(r.Context(), c, r.PathValue("thread"))
	if err != nil {
		return err
	}
	req, err := s.langgraphRequest(r, c, langgraph.Dialect{})
	if err != nil {
		return err
	}
	req.Key = k
	return s.stream(w, r, c, req)
}

// createRun starts a run and answers with its place.
func (s *Server) createRun(w http.ResponseWriter, r *http.Request, c *call) error {
	n, err := s.beginRun(w, r, c)
	if err != nil {
		return err
	}
	return s.writeRun(w, r, n)
}

// beginRun starts the run that a request asks for.
func (s *Server) beginRun(w http.ResponseWriter, r *http.Request, c *call) (*namedRun, error) {
	n, in, err := s.acceptRun(w, r, c)
	if err != nil {
		return nil, err
	}
	if err := n.start(r.Context()); err != nil {
		return nil, err
	}
	s.nameRun(w, c, n.ref)
	maps.Copy(w.Header(), langgraphPlace(n, in.modes))
	return n, nil
}

// waitRun starts a run and answers with the thread's state when it is over.
func (s *Server) waitRun(w http.ResponseWriter, r *http.Request, c *call) error {
	n, err := s.beginRun(w, r, c)
	if err != nil {
		return err
	}
	return s.writeEnd(w, r, c, n)
}

// joinRun answers with the thread's state when a run is over.
func (s *Server) joinRun(w http.ResponseWriter, r *http.Request, c *call) error {
	n, err := s.findThreadRun(r, c)
	if err != nil {
		return err
	}
	if n.untilGone, err = boolParam(r, "cancel_on_disconnect", false); err != nil {
		return err
	}
	return s.writeEnd(w, r, c, n)
}

func (s *Server) writeEnd(w http.ResponseWriter, r *http.Request, c *call, n *namedRun) error {
	err := s.readThrough(r.Context(), n.place, placed, stream.Request{Dialect: native.Dialect{}, Ends: parksAfter(n.from())})
	if n.untilGone && left(r.Context()) {
		s.cancelWithClient(r.Context(), c, n.ref, c.who.Tenant)
	}
	if err != nil {
		return err
	}
	st, fold, err := s.stateToTell(r.Context(), n.place)
	if err != nil {
		return err
	}
	if fold == nil || !st.Status.Terminal() && st.ExpiresAt == nil {
		return problem(http.StatusGatewayTimeout, event.CodeUnavailable, "the run takes longer than a request may: join it again, it is %s of the thread %s", n.ref.RunID, n.ref.SessionID)
	}
	writeJSON(w, http.StatusOK, endOf(fold, &st.Run))
	return nil
}

// cancelThreadRun cancels a run; with wait it answers when it is over.
func (s *Server) cancelThreadRun(w http.ResponseWriter, r *http.Request, c *call) error {
	n, err := s.findThreadRun(r, c)
	if err != nil {
		return err
	}
	wait, err := boolParam(r, "wait", false)
	if err != nil {
		return err
	}
	if action := r.URL.Query().Get("action"); action != "" && action != "interrupt" {
		return unsupported("action", "action=%s: what was said stays said; use interrupt", action)
	}
	if _, err := s.cancel(r.Context(), c, n.place, r.URL.Query().Get("reason"), wait); err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	if wait {
		w.WriteHeader(http.StatusNoContent)
	} else {
		w.WriteHeader(http.StatusAccepted)
	}
	return nil
}
