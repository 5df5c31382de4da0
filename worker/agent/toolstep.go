package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/tool"
)

// toolStep does what can be done for the open calls: it asks for the approvals
// that are missing, and runs side by side what may run, or as much of it as may
// run at once: the rest is open still, and is what the next step is about. It
// returns when each of those has its result in the log, and ErrParked if none may
// run. When the run is cancelled the calls are told so and closed.
func (r *Run) toolStep(ctx context.Context, view *event.Session, run *event.Run, open []*event.ToolCall) error {
	if err := r.listTools(ctx); err != nil {
		return err
	}
	asked, calls := r.sorted(view, open)
	if err := r.reserveCalls(view, len(calls)); err != nil {
		return err
	}
	if len(calls) == 0 {
		return r.park(ctx, asked)
	}
	calls = calls[:min(len(calls), r.Tunables.Parallel)]
	out := asked
	if run.Status != event.WaitingTool {
		out = append(out, r.event(event.RunStatus, event.RunStatusData{Status: event.WaitingTool, Previous: run.Status}))
	}
	for _, tc := range calls {
		out = append(out, tc.begin()...)
	}
	if err := r.Journal.Append(out...); err != nil {
		return err
	}
	return r.runCalls(ctx, slices.DeleteFunc(calls, func(tc *toolCall) bool { return tc.tool == nil }))
}

// sorted tells the open calls of which somebody has to be asked, by what asks,
// from those that may run.
func (r *Run) sorted(view *event.Session, open []*event.ToolCall) (asked []event.Event, calls []*toolCall) {
	for _, c := range open {
		tc := &toolCall{run: r, view: view, call: c, index: view.CallIndex(c), internal: c.Internal}
		if asks, ok := tc.asks(); ok {
			asked = append(asked, asks)
		} else if !view.Waits(c) {
			calls = append(calls, tc)
		}
	}
	return asked, calls
}

// runCalls performs the side effects: only after tool.running is committed, and
// only while the session is surely still ours.
func (r *Run) runCalls(ctx context.Context, calls []*toolCall) error {
	if err := r.announced(ctx); err != nil {
		return err
	}
	g := errgroup.Group{} // all begin now: none waits until the session may be another's
	for _, tc := range calls {
		g.Go(func() (err error) {
			defer Caught(&err)
			return tc.perform(ctx)
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// announced returns when what was said to begin is in the log, and the session
// surely still ours: from then on it may have effects.
func (r *Run) announced(ctx context.Context) error {
	if err := r.Journal.Sync(ctx); err != nil {
		return err
	}
	return r.Journal.Own(ctx)
}

// A toolCall is one call in the hands of this worker.
type toolCall struct {
	run      *Run
	view     *event.Session // when it was begun here; nil if an agent elsewhere runs it
	call     *event.ToolCall
	index    int
	internal bool
	tool     tool.Tool  // nil: the call is closed already
	args     string     // what the tool gets
	asking   sync.Mutex // held while a run under it goes on
	children int        // runs under it that it asked for so far
}

// begin returns tool.running, or the event that closes a call which cannot run.
func (t *toolCall) begin() []event.Event {
	found := t.run.tools[t.call.Name]
	lost := t.call.Status == event.Running // by a worker that is gone; somebody may have said since that it is to run again
	args, known := t.arguments()
	known = known || found != nil && found.Spec().Agent != "" && childOf(t.view, t.call, 0) != nil // its log has them
	switch {
	case found == nil:
		return t.closed(t.failed(event.CodeToolMissing, event.OutcomeFailed, fmt.Sprintf("there is no tool %q", t.call.Name), nil))
	case lost && (found.Spec().OnCrash != tool.Retry || !known):
		return t.closed(t.failed(event.CodeInterrupted, event.OutcomeUnknown,
			brokenOff+" Find out before you call it again.", nil))
	case !known:
		return t.closed(t.failed(event.CodeInterrupted, event.OutcomeFailed, "not run: its arguments held a secret that is not in the log. Call it again.", nil))
	case !event.IsObject(args):
		return t.closed(t.failed(event.CodeToolError, event.OutcomeFailed, "not run: the arguments are not a JSON object: "+args, nil))
	}
	t.tool, t.args = found, args
	t.call.Attempt++
	return []event.Event{t.run.hidden(t.internal, event.ToolRunning, t.running())}
}

func (t *toolCall) running() event.ToolRunningData {
	return event.ToolRunningData{CallID: t.call.CallID, Attempt: t.call.Attempt, IdempotencyKey: t.key()}
}

// closed puts before a call's result the ends of what ran under it.
func (t *toolCall) closed(result event.Event) []event.Event {
	if t.view == nil || t.children == 0 && childOf(t.view, t.call, 0) == nil {
		return []event.Event{result}
	}
	why := "it has its result"
	if result.Type == event.ToolFailed {
		why = "it failed"
	}
	return append(t.run.closeChildren(t.run.Journal.View(), t.call.CallID, why), result)
}

// key is the same in every attempt of the call.
func (t *toolCall) key() string { return t.run.id + "/" + t.call.CallID }

// arguments are the model's own, which the log may hold only in redacted form.
func (t *toolCall) arguments() (args string, known bool) {
	if raw, ok := t.run.rawArgs[t.call.CallID]; ok {
		return raw, true
	}
	args = t.call.Args
	if args == "" || args == "null" {
		args = "{}" // what models send for a tool without parameters
	}
	return args, !t.call.Redacted
}

// perform calls the tool, again where that may help, and logs its result.
func (t *toolCall) perform(ctx context.Context) error {
	for retry := 1; ; retry++ {
		result, err := t.attempt(ctx)
		if ctx.Err() != nil || !t.again(err, retry) {
			return t.log(ctx, result, err)
		}
		if stopped := t.retry(ctx, retry, err); stopped != nil {
			return t.left(ctx, err, stopped)
		}
	}
}

// attempt calls the tool once.
func (t *toolCall) attempt(ctx context.Context) (tool.Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if timeout := t.tool.Spec().MaxTime(); timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, timeout)
		defer stop()
	}
	artifacts := newArtifactLog(t)
	progress := &progressLog{call: t}
	result, err := t.tool.Call(ctx, tool.Call{
		Tenant: t.run.Tenant, SessionID: t.view.SessionID, RunID: t.run.id, CallID: t.call.CallID,
		Args: t.args, Attempt: t.call.Attempt, IdempotencyKey: t.key(), Session: t.view,
		Progress: progress.report, Create: artifacts.create, Open: artifacts.read, Agent: t.sub, Once: t.once,
	})
	progress.close()
	artifacts.close()
	return result, err
}

// log writes the call's closer. The closer of a cancelled call is written too.
func (t *toolCall) log(ctx context.Context, result tool.Result, err error) error {
	var over *overBudget
	switch {
	case errors.Is(err, ErrParked):
		return nil // a run under it waits, and so does the call
	case errors.Is(err, ErrDrained), errors.As(err, &over) && over.pause && ctx.Err() == nil:
		return err
	case errors.As(err, &over) && ctx.Err() == nil:
		return errors.Join(t.append(t.failed(event.CodeBudget, event.OutcomeFailed, over.Error(), nil)), err)
	case err == nil && !result.Failed:
		return t.completed(ctx, result)
	case err == nil:
		return t.append(t.toolError(ctx, result))
	case context.Cause(ctx) != nil && !errors.As(context.Cause(ctx), new(*Cancelled)) && !errors.As(context.Cause(ctx), new(*overBudget)):
		return context.Cause(ctx) // fenced or stopped: another worker closes the call
	case ctx.Err() != nil:
		return t.append(t.failed(event.CodeInterrupted, event.OutcomeCancelled, "cancelled while it ran", nil))
	case errors.Is(err, context.DeadlineExceeded):
		return t.append(t.failed(event.CodeToolTimeout, outcome(err), fmt.Sprintf("no answer within %s; the tool was told to stop", t.tool.Spec().MaxTime()), nil))
	case errors.Is(err, tool.ErrUnavailable):
		return t.append(t.failed(event.CodeToolMissing, outcome(err), err.Error(), nil))
	case errors.Is(err, tool.ErrEffectUnknown):
		return t.append(t.failed(event.CodeInterrupted, event.OutcomeUnknown, err.Error(), nil))
	}
	return t.append(t.failed(event.CodeToolError, event.OutcomeFailed, err.Error(), nil))
}

// outcome is unknown where the tool may have begun.
func outcome(err error) event.Outcome {
	if errors.Is(err, tool.ErrEffectUnknown) {
		return event.OutcomeUnknown
	}
	return event.OutcomeFailed
}

func (t *toolCall) append(e event.Event) error {
	if e.Type == event.ToolCompleted || e.Type == event.ToolFailed {
		return t.run.Journal.Append(t.closed(e)...)
	}
	return t.run.Journal.Append(e)
}

func (t *toolCall) completed(ctx context.Context, result tool.Result) error {
	cut, err := t.fit(ctx, result)
	if err != nil {
		return t.append(t.failed(event.CodeToolError, event.OutcomeFailed, "the tool succeeded, but its result could not be stored: "+err.Error(), nil))
	}
	return t.append(t.run.hidden(t.internal, event.ToolCompleted, event.ToolCompletedData{
		CallID: t.call.CallID, Name: t.call.Name, Index: t.index, Args: t.call.Args,
		Content: nonNil(cut.content), Structured: cut.structured, Truncated: cut.artifact != nil, Artifact: cut.artifact,
	}))
}

// toolError is the closer of a call whose tool answered with an error.
func (t *toolCall) toolError(ctx context.Context, result tool.Result) event.Event {
	message := head(t.run.Redactor.String(firstText(result.Content, "the tool failed")), maxReason)
	cut, err := t.fit(ctx, result)
	if err != nil {
		cut = fitted{}
	}
	return t.failed(event.CodeToolError, event.OutcomeFailed, message, &cut)
}

// maxReason is how much of a failed result is said in its message, in bytes.
const maxReason = 2 << 10

func firstText(content []event.Part, otherwise string) string {
	for _, p := range content {
		if p.Type == event.PartText && p.Text != "" {
			return p.Text
		}
	}
	return otherwise
}

func (t *toolCall) failed(code event.Code, outcome event.Outcome, message string, cut *fitted) event.Event {
	d := event.ToolFailedData{CallID: t.call.CallID, Name: t.call.Name, Index: t.index, Args: t.call.Args,
		Code: code, Outcome: outcome, Message: t.run.Redactor.String(message)}
	if cut != nil {
		d.Content, d.Truncated, d.Artifact = cut.content, cut.artifact != nil, cut.artifact
	}
	return t.run.hidden(t.internal, event.ToolFailed, d)
}
