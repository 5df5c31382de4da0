package agent

import (
	"context"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/tool"
)

// asks returns approval.requested if the call needs somebody's approval and
// nobody was asked, or if it was broken off and its tool wants somebody to be
// asked then.
func (t *toolCall) asks() (event.Event, bool) {
	found := t.run.tools[t.call.Name]
	args, known := t.arguments()
	if found != nil && known && t.call.Status == event.Running && found.Spec().OnCrash == tool.Ask {
		return t.question(found, event.CodeInterrupted), true
	}
	if t.call.Status != event.Pending || t.call.Decision != nil || found == nil || !known || !event.IsObject(args) {
		return event.Event{}, false
	}
	if needs := found.Spec().NeedsApproval; needs == nil || !needs(args) {
		return event.Event{}, false
	}
	return t.question(found, ""), true
}

// question asks somebody about the call: for the first time, or because a worker
// was lost while it ran.
func (t *toolCall) question(found tool.Tool, reason event.Code) event.Event {
	return t.run.hidden(t.internal, event.ApprovalRequested, event.ApprovalRequestedData{CallID: t.call.CallID,
		ArgsSHA256: event.ArgsHash(t.call.Args), ExpiresAt: event.At(time.Now().Add(wait(found))), Reason: reason})
}

func wait(t tool.Tool) time.Duration {
	if w := t.Spec().Wait; w > 0 {
		return w
	}
	return tool.DefaultWait
}

// park commits what the run waits for and until when, and lets go of it.
func (r *Run) park(ctx context.Context, asked []event.Event) error {
	if len(asked) > 0 {
		if err := r.Journal.Append(asked...); err != nil {
			return err
		}
	}
	view := r.Journal.View()
	run := view.Run(r.id)
	if run.ExpiresAt == nil || len(asked) > 0 {
		status := event.WaitingTool
		for _, a := range view.Approvals {
			if view.Within(a.RunID, r.id) {
				status = event.WaitingApproval
			}
		}
		until := event.At(r.expiry(view))
		d := event.RunStatusData{Status: status, Previous: run.Status, ExpiresAt: &until}
		if status == event.WaitingTool {
			d.Reason = "client"
		}
		if err := r.Journal.Append(r.event(event.RunStatus, d)); err != nil {
			return err
		}
	}
	if err := r.Journal.Sync(ctx); err != nil {
		return err
	}
	return ErrParked
}

// expiry is when the run goes on without those it waits for.
func (r *Run) expiry(view *event.Session) time.Time {
	var first time.Time
	sooner := func(t time.Time) {
		if first.IsZero() || t.Before(first) {
			first = t
		}
	}
	for _, a := range view.Approvals {
		if a.RunID == r.id {
			sooner(a.ExpiresAt.Time)
		}
	}
	for _, below := range view.Runs {
		if below.ParentRunID == r.id && !below.Status.Terminal() && below.ExpiresAt != nil {
			sooner(below.ExpiresAt.Time)
		}
	}
	for _, c := range view.ToolCalls {
		if t := r.tools[c.Name]; c.RunID == r.id && !c.Done() && c.Executor == event.ByClient && t != nil {
			sooner(time.Now().Add(wait(t)))
		}
	}
	if first.IsZero() {
		return time.Now().Add(tool.DefaultWait)
	}
	return first
}

// Resolved are the events of a decision: a denied call is closed with it.
func Resolved(view *event.Session, run *event.Run, c *event.ToolCall, d event.ApprovalResolvedData) []event.Event {
	r := about(run)
	out := []event.Event{r.hidden(c.Internal, event.ApprovalResolved, d)}
	if d.Decision == event.Denied && c.InDoubt() {
		out = append(out, r.leftUnknown(view, c, d))
	} else if d.Decision == event.Denied {
		message, code := "denied by "+d.By, event.CodeForbidden
		if d.By == ByExpiry {
			message, code = "nobody approved it in time", event.CodeExpired
		}
		if d.Reason != "" && d.By != ByExpiry {
			message += ": " + d.Reason
		}
		out = append(out, r.failedCall(view, c, code, event.OutcomeDenied, message))
	}
	return out
}

// leftUnknown closes a call that was broken off and is not to run again.
func (r *Run) leftUnknown(view *event.Session, c *event.ToolCall, d event.ApprovalResolvedData) event.Event {
	who := d.By + " said not to run it again"
	if d.By == ByExpiry {
		who = "nobody said in time what to do"
	} else if d.Reason != "" {
		who += ": " + d.Reason
	}
	return r.failedCall(view, c, event.CodeInterrupted, event.OutcomeUnknown, brokenOff+" "+who+".")
}

// brokenOff is what the model is told of a call whose worker was lost.
const brokenOff = "the worker was lost while the tool ran: it may or may not have had its effect."

// ByExpiry is who denies what nobody decided in time.
const ByExpiry = "expiry"

// ClientResult is the event that closes a call which the client ran, or of which
// somebody found out what became of it.
func ClientResult(view *event.Session, run *event.Run, c *event.ToolCall, content []event.Part, structured []byte, failed bool) event.Event {
	r := about(run)
	if err := event.CheckResult(content, structured); err != nil { // edges refuse it
		content, failed = []event.Part{event.TextPart("the client's result was refused: " + err.Error())}, true
	}
	if failed {
		message := head(firstText(content, "the client's tool failed"), maxReason)
		return r.hidden(c.Internal, event.ToolFailed, event.ToolFailedData{CallID: c.CallID, Name: c.Name, Index: view.CallIndex(c),
			Args: c.Args, Code: event.CodeToolError, Outcome: event.OutcomeFailed, Message: message, Content: content})
	}
	return r.hidden(c.Internal, event.ToolCompleted, event.ToolCompletedData{CallID: c.CallID, Name: c.Name, Index: view.CallIndex(c),
		Args: c.Args, Content: nonNil(content), Structured: structured})
}

// Expired is the event that closes a call whose client did not answer.
func Expired(view *event.Session, run *event.Run, c *event.ToolCall) event.Event {
	return about(run).failedCall(view, c, event.CodeExpired, event.OutcomeUnknown, "the client did not answer in time")
}
