package edge

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/runlog-dev/runlog/event"
)

// settleWait is how long a request waits for the session's owner to take its
// command; after that it is told that the command is kept.
const settleWait = 10 * time.Second

type decisionRequest struct {
	Decision   event.Decision `json:"decision"`
	Reason     string         `json:"reason"`
	ArgsSHA256 string         `json:"args_sha256"`
}

func (d *decisionRequest) check() error {
	if d.Decision != event.Approved && d.Decision != event.Denied {
		return bad("decision", "decision: %q is neither approve nor deny", d.Decision)
	}
	return checkReason(d.Reason)
}

// settled reports whether a call is decided so: 409 if it is otherwise, or waits for no
// decision.
func (d *decisionRequest) settled(t *event.ToolCall) (bool, error) {
	switch {
	case t.Decision == nil && t.Status != event.WaitingApproval: // or not any more
		return true, problem(http.StatusConflict, event.CodeConflict, "the call does not wait for an approval: it is %s", t.Status)
	case t.Decision == nil:
		return false, nil
	case t.Decision.Decision != d.Decision:
		return true, problem(http.StatusConflict, event.CodeConflict, "the call was decided already: %s by %s", t.Decision.Decision, t.Decision.By)
	}
	return true, nil
}

// decide approves or denies a tool call. The first decision wins: the same again
// is 200, the contrary 409.
func (s *Server) decide(w http.ResponseWriter, r *http.Request, c *call) error {
	var body decisionRequest
	if err := s.readJSON(w, r, &body); err != nil {
		return err
	}
	if err := body.check(); err != nil {
		return err
	}
	p, tool, err := s.findCall(r.Context(), c, r.PathValue("run"), r.PathValue("call"))
	if err != nil {
		return err
	}
	if _, err := body.settled(tool); err != nil {
		return err
	}
	if want := event.ArgsHash(tool.Args); body.ArgsSHA256 != "" && body.ArgsSHA256 != want {
		return problem(http.StatusConflict, event.CodeConflict, "the decision is about other arguments: those of the call have the SHA-256 %s", want)
	}
	cmd := decision(tool, body.Decision == event.Approved, body.Reason)
	cmd.CommandID = p.runID + "." + cmd.CommandID
	return s.settle(w, r.Context(), c, p, tool, cmd, body.settled)
}

type resultRequest struct {
	Content    json.RawMessage `json:"content"`
	Structured json.RawMessage `json:"structured"`
	Failed     bool            `json:"failed"`
}

// parts are the content of the result.
func (b *resultRequest) parts() ([]event.Part, error) {
	content, err := readContent("result", map[string]json.RawMessage{"content": b.Content})
	if err == nil && len(content.calls)+len(content.results) > 0 {
		err = bad("content", "the content of a result is a text, or parts of text, image, audio or file")
	}
	return content.parts, err
}

// toolResult takes the result of a tool that the client ran, or what somebody has found
// out about a call that was broken off. The first result wins: the same again is 200,
// another one 409.
func (s *Server) toolResult(w http.ResponseWriter, r *http.Request, c *call) error {
	var body resultRequest
	if err := s.readJSON(w, r, &body); err != nil {
		return err
	}
	parts, err := body.parts()
	if err != nil {
		return err
	}
	p, tool, err := s.findCall(r.Context(), c, r.PathValue("run"), r.PathValue("call"))
	if err != nil {
		return err
	}
	settled := func(t *event.ToolCall) (bool, error) {
		switch {
		case !t.Done():
			return false, nil
		case (t.Status == event.Failed) != body.Failed || !bytes.Equal(event.Encode(t.Content), event.Encode(parts)):
			return true, problem(http.StatusConflict, event.CodeConflict, "the call has another result already")
		}
		return true, nil
	}
	if !tool.Done() && tool.Executor != event.ByClient && !tool.InDoubt() {
		return problem(http.StatusConflict, event.CodeConflict, "the call is run by the %s, not by the client", tool.Executor)
	}
	cmd := event.Command{CommandID: p.runID + "." + question(tool) + ".result", Kind: event.Result, CallID: tool.CallID,
		Content: parts, Structured: body.Structured, Failed: body.Failed}
	return s.settle(w, r.Context(), c, p, tool, cmd, settled)
}

// decision approves or denies a call.
func decision(t *event.ToolCall, approved bool, reason string) event.Command {
	kind := event.Deny
	if approved {
		kind = event.Approve
	}
	return event.Command{CommandID: question(t) + "." + string(kind), Kind: kind, CallID: t.CallID, ArgsSHA256: event.ArgsHash(t.Args), Reason: reason}
}

// question names what is decided about a call. One that was broken off may have
// been approved before.
func question(t *event.ToolCall) string {
	if t.InDoubt() {
		return fmt.Sprintf("%s.%d", t.CallID, t.Attempt)
	}
	return t.CallID
}

// findCall finds a tool call of a run in the session's fold.
func (s *Server) findCall(ctx context.Context, c *call, runID, callID string) (runPlace, *event.ToolCall, error) {
	p, _, fold, err := s.findState(ctx, c, runID)
	if err != nil {
		return p, nil, err
	}
	if fold != nil {
		// What somebody must decide is found, hidden or not, by the run of the
		// sub-agent that asks and by those that it works for.
		if t := fold.Call(callID); t != nil && fold.Within(t.RunID, p.runID) && (!t.Internal || t.Waits()) {
			return p, t, nil
		}
	}
	return p, nil, notFound("tool call", callID)
}

// settle submits a command about a call, waits for its effect and answers with
// the call; 202 if the session's owner has not taken it yet.
func (s *Server) settle(w http.ResponseWriter, ctx context.Context, c *call, p runPlace, t *event.ToolCall, cmd event.Command, settled func(*event.ToolCall) (bool, error)) error {
	done, err := settled(t)
	if err != nil {
		return err
	}
	if !done {
		if err := s.command(ctx, c, p, cmd); err != nil {
			return err
		}
		if t, done, err = s.watchCall(ctx, p, t, settled); err != nil {
			return err
		}
	}
	writeJSON(w, acceptedUnless(done), t)
	return nil
}

// watchCall looks at a call, whenever its session has new events, until it is settled or
// settleWait is over.
func (s *Server) watchCall(ctx context.Context, p runPlace, t *event.ToolCall, settled func(*event.ToolCall) (bool, error)) (*event.ToolCall, bool, error) {
	deadline, seen := time.Now().Add(settleWait), event.Seq(0)
	for pause := 2 * time.Millisecond; time.Now().Before(deadline); pause = min(2*pause, 200*time.Millisecond) {
		select {
		case <-ctx.Done():
			return t, false, context.Cause(ctx)
		case <-time.After(pause):
		}
		head, err := s.Log.Head(ctx, p.key)
		if err != nil {
			return t, false, err
		}
		if head.Seq == seen {
			continue
		}
		_, fold, err := s.state(ctx, p)
		if err != nil || fold == nil || fold.Call(t.CallID) == nil {
			return t, false, err
		}
		t, seen = fold.Call(t.CallID), fold.Seq
		if done, err := settled(t); done || err != nil {
			return t, done, err
		}
	}
	return t, false, nil
}
