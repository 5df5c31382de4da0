package edge

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/edge/dialect/native"
	"github.com/runlog-dev/runlog/edge/stream"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// runRequest is the body of POST /v1/runs.
type runRequest struct {
	Agent        string           `json:"agent"`
	SessionID    string           `json:"session_id"`
	RunID        string           `json:"run_id"`
	TraceID      string           `json:"trace_id"`
	Input        json.RawMessage  `json:"input"`
	Queue        event.Queue      `json:"queue"`
	OnDisconnect string           `json:"on_disconnect"`
	Webhook      json.RawMessage  `json:"webhook"`
	Config       *event.RunConfig `json:"config"`
}

// postRun accepts a run, and answers as the client asked: with its place, with
// its end, or with its events.
func (s *Server) postRun(w http.ResponseWriter, r *http.Request, c *call) error {
	body, err := readBytes(w, r, s.opts.MaxBody)
	if err != nil {
		return err
	}
	var req runRequest
	if err := decode(body, &req); err != nil {
		return err
	}
	wait, err := s.waitParam(r)
	if err != nil {
		return err
	}
	sub, err := s.submission(r, c, body, req)
	if err != nil {
		return err
	}
	if wantsStream(r) {
		return s.runStream(w, r, c, sub, native.Dialect{})
	}
	return s.runAnswer(w, r, c, sub, wait)
}

// wantsStream reports whether the client wants events rather than an object.
func wantsStream(r *http.Request) bool {
	accept := strings.ToLower(strings.Join(r.Header.Values("Accept"), ","))
	return strings.Contains(accept, "text/event-stream") || strings.Contains(accept, "ndjson") || strings.Contains(accept, "jsonl")
}

// submission checks a request and makes what is to be accepted of it.
func (s *Server) submission(r *http.Request, c *call, body []byte, req runRequest) (*submission, error) {
	messages, err := readInput(req.Input)
	if err != nil {
		return nil, err
	}
	return submissionOf(r, c, req, messages, bodyHash(r.URL.Path, body))
}

// submissionOf does it for a request whose input has been read; the hash tells it
// from others with the same idempotency key.
func submissionOf(r *http.Request, c *call, req runRequest, messages []inputMessage, hash string) (*submission, error) {
	if err := req.refuse(); err != nil {
		return nil, err
	}
	sub := &submission{tenant: c.who.Tenant, by: caller(c), messages: messages, config: req.Config, queue: req.Queue, untilGone: req.OnDisconnect == "cancel",
		want: eventlog.RunRef{RunID: req.RunID, SessionID: req.SessionID, Agent: req.Agent, BodyHash: hash}}
	sub.traceparent, sub.want.TraceID = trace(r, req.TraceID)
	var err error
	sub.idempotencyKey, err = idempotencyKey(r)
	return sub, err
}

// refuse says what of a request is wrong or not built.
func (req *runRequest) refuse() error {
	for _, id := range []struct{ param, value string }{
		{"agent", req.Agent}, {"session_id", req.SessionID}, {"run_id", req.RunID}, {"trace_id", req.TraceID},
	} {
		if id.value == "" {
			continue
		}
		if err := event.CheckID(id.param, id.value); err != nil {
			return bad(id.param, "%s", err)
		}
	}
	switch req.Queue {
	case "", event.Enqueue, event.Reject, event.Interrupt, event.SteerInto:
	default:
		return bad("queue", "queue: %q is not known; use enqueue, reject, interrupt or steer", req.Queue)
	}
	if req.OnDisconnect != "" && req.OnDisconnect != "continue" && req.OnDisconnect != "cancel" {
		return bad("on_disconnect", "on_disconnect: %q is not known; use continue or cancel", req.OnDisconnect)
	}
	if len(req.Webhook) > 0 && string(req.Webhook) != "null" {
		return unsupported("webhook", "webhooks are not built yet; follow the run's events")
	}
	if err := checkClientTools(req.Config); err != nil {
		return err
	}
	return checkLimits(req.Config)
}

// maxClientTools bounds the tools that a request brings along.
const maxClientTools = 128

func checkClientTools(c *event.RunConfig) error {
	if c == nil {
		return nil
	}
	if len(c.ClientTools) > maxClientTools {
		return bad("config.client_tools", "%d tools, at most %d are allowed", len(c.ClientTools), maxClientTools)
	}
	for _, t := range c.ClientTools {
		if t.Name == "" || t.Name != event.WireName(t.Name) {
			return bad("config.client_tools", "%q is no name of a tool: use letters, digits, _ and -, at most 64", t.Name)
		}
	}
	return nil
}

func checkLimits(c *event.RunConfig) error {
	if c == nil || c.Limits == nil {
		return nil
	}
	if err := c.Limits.Check(); err != nil {
		return bad("config.limits", "%v; leave one out for the agent's own", err)
	}
	return nil
}

// bodyHash tells whether two requests with one idempotency key ask for the same.
func bodyHash(path string, body []byte) string {
	h := sha256.New()
	h.Write([]byte(path + "\n"))
	h.Write(body)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// maxKey bounds an idempotency key, in bytes.
const maxKey = 255

// idempotencyKey reads the header: a quoted string as the draft wants it, or bare.
func idempotencyKey(r *http.Request) (string, error) {
	key := strings.TrimSpace(r.Header.Get("Idempotency-Key"))
	if n := len(key); n >= 2 && key[0] == '"' && key[n-1] == '"' {
		key = strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(key[1 : n-1])
	}
	if len(key) > maxKey {
		return "", bad("Idempotency-Key", "the idempotency key has %d bytes, at most %d are allowed", len(key), maxKey)
	}
	return key, nil
}

// runStream accepts a run and streams it. A client that repeats its request with
// Last-Event-ID goes on there.
func (s *Server) runStream(w http.ResponseWriter, r *http.Request, c *call, sub *submission, def dialect.Dialect) error {
	req, err := s.streamRequest(r, c, def)
	if err != nil {
		return err
	}
	n, _, err := s.reserveNamed(r.Context(), sub)
	if err != nil {
		return err
	}
	return s.startStream(w, r, c, n, req)
}

// nameRun tells where the run is, in headers.
func (s *Server) nameRun(w http.ResponseWriter, c *call, ref eventlog.RunRef) {
	h := w.Header()
	h.Set("Location", "/v1/runs/"+url.PathEscape(ref.RunID))
	h.Set("Runlog-Run-Id", headerText(ref.RunID))
	h.Set("Runlog-Session-Id", headerText(ref.SessionID))
	h.Set("Runlog-Trace-Id", headerText(ref.TraceID))
	c.note("trace", ref.TraceID)
	c.note("agent", ref.Agent)
}

// runAnswer accepts a run and answers with its place, or, if the client waits
// and the run ends in time, with its transcript.
func (s *Server) runAnswer(w http.ResponseWriter, r *http.Request, c *call, sub *submission, wait time.Duration) error {
	ctx := r.Context()
	ref, existed, err := s.reserve(ctx, sub)
	if err != nil {
		return err
	}
	p := placeOf(sub.tenant, ref)
	if wait > 0 {
		return s.runWait(w, ctx, c, sub, ref, wait)
	}
	if err := s.place(ctx, sub, ref); err != nil {
		return err
	}
	s.nameRun(w, c, ref)
	st := stateIn(event.NewSession(ref.SessionID), p)
	if existed {
		if st, _, err = s.state(ctx, p); err != nil {
			return err
		}
	}
	writeJSON(w, http.StatusAccepted, st)
	return nil
}

// runWait is runAnswer for a client that waits for the run's end.
func (s *Server) runWait(w http.ResponseWriter, ctx context.Context, c *call, sub *submission, ref eventlog.RunRef, wait time.Duration) error {
	st, fold, err := s.finish(ctx, sub, ref, wait)
	if err != nil {
		return err
	}
	s.nameRun(w, c, ref)
	if !st.Status.Terminal() || fold == nil {
		writeJSON(w, http.StatusAccepted, st)
		return nil
	}
	writeJSON(w, http.StatusOK, transcriptOf(st, fold))
	return nil
}

// finish places a run and waits for its end, but no longer than it is told to. Without a
// fold there is no more to tell than the state.
func (s *Server) finish(ctx context.Context, sub *submission, ref eventlog.RunRef, wait time.Duration) (runState, *event.Session, error) {
	p := placeOf(sub.tenant, ref)
	ended, done, err := s.watchEnd(ctx, p, nil)
	if err != nil {
		return runState{}, nil, err
	}
	defer done()
	if err := s.place(ctx, sub, ref); err != nil {
		return runState{}, nil, err
	}
	if err := ended(ref.After, wait); err != nil {
		return runState{}, nil, err
	}
	st, fold, err := s.stateToTell(ctx, p)
	if errors.Is(err, stream.ErrCrowded) { // it has been run: where it is is a better answer than none
		st, _, err = s.state(ctx, p)
		return st, nil, err
	}
	return st, fold, err
}
