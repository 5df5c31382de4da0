package worker

import (
	"fmt"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
	"github.com/runlog-dev/runlog/worker/agent"
)

// settle makes the events by which somebody outside settles a call, or says why
// the command is not about it.
func settle(s *event.Session, run *event.Run, call *event.ToolCall, c eventlog.Waiting) (events []event.Event, refusal string) {
	gated := call.Status == event.WaitingApproval
	switch {
	case (c.Kind == event.Approve || c.Kind == event.Deny) && !gated:
		return nil, "the call does not wait for an approval"
	case c.Kind == event.Result && gated && !call.InDoubt():
		return nil, "the call waits for an approval"
	case c.Kind == event.Expire && gated && c.Time.Before(expiryOf(s, call).Time):
		return nil, "the time of another question is over"
	case c.ArgsSHA256 != "" && c.ArgsSHA256 != event.ArgsHash(call.Args):
		return nil, "the decision is about other arguments"
	}
	decided := event.ApprovalResolvedData{CallID: call.CallID, Decision: event.Approved, By: c.By, Reason: c.Reason}
	switch c.Kind {
	case event.Approve:
		return agent.Resolved(s, run, call, decided), ""
	case event.Deny:
		decided.Decision = event.Denied
		return agent.Resolved(s, run, call, decided), ""
	case event.Result:
		return []event.Event{agent.ClientResult(s, run, call, c.Content, c.Structured, c.Failed)}, ""
	case event.Expire:
		if !gated {
			return []event.Event{agent.Expired(s, run, call)}, ""
		}
		decided.Decision, decided.By, decided.Reason = event.Denied, agent.ByExpiry, "expired"
		return agent.Resolved(s, run, call, decided), ""
	}
	return nil, fmt.Sprintf("%s is not a command of this version", c.Kind)
}

// expiryOf is when the approval that a call waits for expires.
func expiryOf(s *event.Session, call *event.ToolCall) (expires event.Time) {
	for _, a := range s.Approvals {
		if a.CallID == call.CallID {
			expires = a.ExpiresAt
		}
	}
	return expires
}

// paused is the run that is out of budget, of this one and those under it.
func paused(s *event.Session, run *event.Run) *event.Run {
	for _, r := range s.Runs {
		if r.Paused() && s.Within(r.RunID, run.RunID) {
			return r
		}
	}
	return run
}

// aboutPause answers a command about a run that is out of budget.
func aboutPause(s *event.Session, run *event.Run, c eventlog.Waiting) []event.Event {
	switch {
	case !run.Paused():
		return ignored(c.Command, "the run does not wait for a larger budget")
	case c.Kind == event.Resume:
		var by *event.Limits
		if c.Config != nil {
			by = c.Config.Limits
		}
		return named(c.CommandID, run.RunID, run.TraceID, agent.Raised(s, run, by))
	case c.Kind == event.Expire && !c.Time.Before(run.ExpiresAt.Time):
		return named(c.CommandID, run.RunID, run.TraceID, agent.NotRaised(s, run))
	}
	return ignored(c.Command, "the run waits for a larger budget, and for nothing else")
}
