package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/model"
	"github.com/runlog-dev/runlog/worker/remote"
	"github.com/runlog-dev/runlog/worker/tool"
)

// remoteStep does what the fold asks for next in a run of an agent that lives
// elsewhere: a leg, which is one step whatever the agent does in it, or waiting
// for what the last leg asked for.
func (r *Run) remoteStep(ctx context.Context, view *event.Session, run *event.Run) (done bool, err error) {
	if run.Book.InStep {
		return false, r.leg(ctx, run)
	}
	if asked := r.asked(view, run); len(asked) > 0 || waits(view, r.id) {
		if err := r.listTools(ctx); err != nil {
			return false, err
		}
		return false, r.park(ctx, asked)
	}
	if run.Status != event.Running {
		return false, r.status(run, event.Running)
	}
	answer := view.MessageByID(run.Book.Answer)
	if m := run.Book.Remote; m != nil && m.Ended && run.Book.Finish == event.FinishStop && (answer == nil || !steered(view, answer)) {
		return r.complete(ctx, view, run)
	}
	return false, r.leg(ctx, run)
}

// asked are the approvals that the agent wants and nobody was asked for.
func (r *Run) asked(view *event.Session, run *event.Run) (out []event.Event) {
	if run.Book.Remote == nil || !run.Book.Remote.Ended {
		return nil
	}
	for _, a := range run.Book.Remote.Asks {
		c := view.Call(a.CallID)
		if c == nil || c.Executor != event.ByRemote || c.Status != event.Pending || c.Decision != nil {
			continue
		}
		until := event.At(time.Now().Add(tool.DefaultWait))
		if a.ExpiresAt != nil && a.ExpiresAt.Before(until.Time) {
			until = *a.ExpiresAt
		}
		out = append(out, r.hidden(c.Internal, event.ApprovalRequested, event.ApprovalRequestedData{
			CallID: c.CallID, ArgsSHA256: event.ArgsHash(c.Args), ExpiresAt: until}))
	}
	return out
}

func waits(view *event.Session, runID string) bool {
	for _, c := range view.ToolCalls {
		if c.RunID == runID && !c.Done() && view.Waits(c) {
			return true
		}
	}
	return false
}

// leg asks the agent, with retries, and logs what it says. A leg that a worker
// left goes on under its old number: the agent is asked anew, with the same key.
func (r *Run) leg(ctx context.Context, run *event.Run) error {
	if run.Book.InStep && r.agent.Definition.OnCrash == tool.Fail {
		return &Failure{Code: event.CodeInterrupted, Message: "the worker was lost while the agent was at work, and on_crash is fail: what it was doing may have had its effect"}
	}
	if err := r.listTools(ctx); err != nil {
		return err
	}
	if !run.Book.InStep {
		if err := r.beginLeg(); err != nil {
			return err
		}
	}
	if err := r.announced(ctx); err != nil {
		return err
	}
	var spent event.Usage // by all attempts: what is taken back was paid for
	heard, cancel := until(ctx, r.signals.Stop, errStopped)
	defer cancel()
	err := r.repeat(heard, func(retry int) (*model.Error, error) { return r.attempt(ctx, heard, &spent, retry) })
	if errors.Is(err, errStopped) { // between two attempts, of which nothing stands: steps ends the run
		return nil
	}
	return err
}

// errStopped is why an agent that lives elsewhere is heard no longer.
var errStopped = errors.New("stopped")

func (r *Run) beginLeg() error {
	r.floor.spending.Lock()
	defer r.floor.spending.Unlock()
	view := r.Journal.View()
	run := view.Run(r.id)
	if _, err := r.reserve(view, 0); err != nil {
		return err
	}
	mark := event.RemoteMark{Leg: 1, Keep: r.agent.Definition.OnCrash == tool.Fail}
	if had := run.Book.Remote; had != nil {
		mark.Leg, mark.Checkpoint = had.Leg, had.Checkpoint
		if had.Ended {
			mark.Leg, mark.Checkpoint = had.Leg+1, nil
		}
	}
	return r.Journal.Append(
		r.event(event.StepStarted, event.StepStartedData{Step: run.Book.Step + 1, Model: string(r.agent.Definition.Kind)}),
		r.mark(mark))
}

func (r *Run) mark(m event.RemoteMark) event.Event {
	return r.hidden(true, event.Custom, event.CustomData{Name: event.RemoteEvent, Value: event.Encode(m)})
}

// attempt asks the agent once and listens until heard ends; ctx is the run's. If
// it is to be asked again, all that it said was taken back, and again says when.
func (r *Run) attempt(ctx, heard context.Context, spent *event.Usage, retry int) (again *model.Error, err error) {
	view := r.Journal.View()
	l := newLeg(ctx, r, view.Run(r.id), spent)
	defer r.hush()
	err = r.hear(heard, r.task(view, retry), func(s remote.Saying) error { return l.say(ctx, s) })
	if err == nil {
		err = l.end()
	}
	var fault *model.Error
	var over *overBudget
	switch {
	case err == nil:
		return nil, nil
	case errors.Is(context.Cause(ctx), ErrDrained):
		l.drop()
		return nil, ErrDrained // the next owner takes the attempt back
	case context.Cause(ctx) != nil:
		return nil, errors.Join(l.cut(context.Cause(ctx)), context.Cause(ctx))
	case errors.Is(context.Cause(heard), errStopped):
		return nil, l.halt("stopped")
	case errors.As(err, &over):
		return nil, l.overdrawn(over)
	case !errors.As(err, &fault):
		l.drop()
		return nil, err // the journal's, or a panic
	}
	if !fault.Retryable || retry > r.Tunables.Retries || l.spoke && r.agent.Definition.OnCrash == tool.Fail {
		return nil, errors.Join(l.abandon(fault), failureOf(fault))
	}
	l.drop()
	if err := r.speak(ctx); err != nil {
		return nil, err
	}
	return fault, r.Journal.Append(r.takenBack(r.Journal.View(), string(fault.Code), retry)...)
}

func (r *Run) hear(ctx context.Context, task remote.Task, say func(remote.Saying) error) (err error) {
	defer Caught(&err)
	return r.agent.Remote.Run(ctx, task, say)
}

// task is what the agent is asked.
func (r *Run) task(view *event.Session, retry int) remote.Task {
	m := view.Run(r.id).Book.Remote
	t := remote.Task{Session: view, Tenant: r.Tenant, RunID: r.id, TraceID: r.traceID, Agent: r.agent.Definition.Name, Leg: m.Leg,
		Key: fmt.Sprintf("%s/leg-%d", r.id, m.Leg), Retry: retry, Checkpoint: m.Checkpoint}
	for _, s := range r.specs {
		if s.Executor == event.ByClient {
			t.Tools = append(t.Tools, event.ClientTool{Name: s.Name, Description: s.Description, Parameters: s.Parameters})
		}
	}
	for _, a := range m.Asked {
		if c := view.Call(a.CallID); c != nil {
			t.Answers = append(t.Answers, answerTo(a, c))
		}
	}
	return t
}

func answerTo(a event.Ask, c *event.ToolCall) remote.Answer {
	out := remote.Answer{ID: a.ID, CallID: a.CallID, Approval: c.Executor == event.ByRemote, Content: c.Content, Expired: c.Code == event.CodeExpired}
	if d := c.Decision; d != nil {
		out.Approved, out.By, out.Reason = d.Decision == event.Approved, d.By, d.Reason
	}
	return out
}
