package edge

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/runlog-dev/runlog/edge/dialect/native"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

type resumeRequest struct {
	RunID  string           `json:"run_id,omitempty"`
	Config *event.RunConfig `json:"config,omitempty"`
}

// resumeRun starts a run that goes on where another one failed or was stopped:
// same session, agent and trace, no new message. Resuming a run twice is one run.
func (s *Server) resumeRun(w http.ResponseWriter, r *http.Request, c *call) error {
	var body resumeRequest
	if err := s.readJSON(w, r, &body); err != nil {
		return err
	}
	if done, err := s.raise(w, r, c, body); done || err != nil {
		return err
	}
	sub, err := s.resuming(r, c, r.PathValue("run"), body)
	if err != nil {
		return err
	}
	if wantsStream(r) {
		return s.runStream(w, r, c, sub, native.Dialect{})
	}
	return s.runAnswer(w, r, c, sub, 0)
}

// raise gives a run that is out of budget more of it, and reports whether it is
// one, or was and goes on: as much as config.limits says, or else its limit once
// more. Once for each pause, however often it is asked for: who repeats a request
// whose answer was lost hears how the run is.
func (s *Server) raise(w http.ResponseWriter, r *http.Request, c *call, body resumeRequest) (answered bool, err error) {
	p, st, fold, err := s.findState(r.Context(), c, r.PathValue("run"))
	if err != nil || fold == nil || fold.Run(p.runID) == nil {
		return false, err
	}
	paused := fold.Run(p.runID).Paused()
	if !paused && (resumable(st) || !raised(fold, p.runID)) {
		return false, nil
	}
	if err := checkLimits(body.Config); err != nil {
		return true, err
	}
	if paused {
		if err := s.raiseOnce(r, c, p, fold, body.Config); err != nil {
			return true, err
		}
	}
	writeJSON(w, acceptedUnless(st.Status.Terminal()), st)
	return true, nil
}

// raiseOnce has a run that is paused get more budget, unless the request is a late
// repetition of what an earlier pause was answered with.
func (s *Server) raiseOnce(r *http.Request, c *call, p runPlace, fold *event.Session, more *event.RunConfig) error {
	key, err := idempotencyKey(r)
	if err != nil {
		return err
	}
	id := raisedBy(p.runID, strconv.FormatInt(fold.Run(p.runID).ExpiresAt.UnixMicro(), 10))
	if key != "" {
		id = raisedBy(p.runID, derivedID("key", key))
	}
	if fold.Knows(id) {
		return nil
	}
	return s.command(r.Context(), c, p, event.Command{CommandID: id, Kind: event.Resume, Config: more})
}

// raisedBy is the command by which a run gets more budget: asked is the pause that it
// ends, or the idempotency key of who asked.
func raisedBy(runID, asked string) string { return runID + "." + asked + ".resume" }

// raised reports whether a run has got more budget after a pause. A session knows
// its latest commands.
func raised(fold *event.Session, runID string) bool {
	before, after, _ := strings.Cut(raisedBy(runID, "*"), "*")
	return slices.ContainsFunc(fold.Book.Commands, func(id string) bool {
		return strings.HasPrefix(id, before) && strings.HasSuffix(id, after)
	})
}

// resuming checks that a run can be resumed, and makes what is to be accepted.
func (s *Server) resuming(r *http.Request, c *call, runID string, body resumeRequest) (*submission, error) {
	p, st, _, err := s.findState(r.Context(), c, runID)
	if err != nil {
		return nil, err
	}
	if !resumable(st) {
		return nil, problem(http.StatusConflict, event.CodeConflict, "a run that is %s cannot be resumed: only one that failed, was cancelled or stopped", st.Status)
	}
	req := runRequest{Agent: st.Agent, SessionID: p.key.Session, RunID: body.RunID, TraceID: p.traceID, Config: body.Config}
	if err := req.refuse(); err != nil {
		return nil, err
	}
	sub := s.resumption(c, p, st.Agent, body)
	sub.traceparent, _ = trace(r, p.traceID)
	return sub, nil
}

// resumption is a run that goes on from another one. Asked for twice, it is one.
func (s *Server) resumption(c *call, p runPlace, agent string, body resumeRequest) *submission {
	return &submission{tenant: c.who.Tenant, by: caller(c), config: body.Config, resumes: p.runID,
		idempotencyKey: "resume/" + p.runID,
		want: eventlog.RunRef{RunID: body.RunID, SessionID: p.key.Session, TraceID: p.traceID, Agent: agent,
			BodyHash: bodyHash("resume/"+p.runID, event.Encode(body))}}
}

func resumable(st runState) bool {
	return st.Status == event.Failed || st.Status == event.Cancelled ||
		st.Status == event.Completed && (st.FinishReason == event.FinishStopped || st.FinishReason == event.FinishLength)
}
