package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/tool"
)

// A Run is one run in the hands of this worker.
type Run struct {
	Deps
	agent    *Agent
	id       string
	traceID  string
	parent   *Run   // of a sub-agent's run
	floor    *floor // shared by all under one run
	speaks   bool   // it has the floor
	internal bool   // clients see nothing of it
	config   event.RunConfig
	limits   Limits
	emit     emit
	tools    map[string]tool.Tool
	specs    []tool.Spec
	rawArgs  map[string]string // of calls whose logged arguments are redacted
	signals  Signals
	fallback int // which model is asked, 0: the agent's own
	draining
}

// draining is closed when the worker wants to hand the run over.
type draining <-chan struct{}

func (d draining) begun() bool { return closed(d) }

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// until is ctx, ended for the given cause when c is closed as well.
func until(ctx context.Context, c <-chan struct{}, cause error) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-c:
			cancel(cause)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// Signals tell a run that goes on here what its owner wants. Nil channels never
// tell anything.
type Signals struct {
	Drain <-chan struct{} // hand the run over at the next point where nothing is lost
	Stop  <-chan struct{} // end it after the current step
	// Between is called between two steps: messages that wait may be taken now.
	Between func(context.Context) error
	// StopID is the command that closed Stop; it is asked for after that.
	StopID func() string
}

// ErrParked is returned by Continue when all the run can do is wait for somebody
// outside. Timers are the calls' expiries, for the owner to set.
var ErrParked = errors.New("parked")

// ErrDrained is returned by Continue when it stopped because the worker hands the
// run over: it goes on elsewhere.
var ErrDrained = errors.New("handed over")

// Continue takes the run from where its log stands to its terminal event and
// returns nil, or an error if this worker cannot go on: ErrDrained, fenced, ctx
// ended for another reason than a *Cancelled. The run is then another worker's.
// ErrParked says that it waits for somebody and needs no worker. A *Panic says that
// the run is not fit to go on anywhere.
func Continue(ctx context.Context, a *Agent, runID string, signals Signals, deps Deps) (err error) {
	defer Caught(&err)
	deps.Tunables.setDefaults()
	return prepare(a, deps.Journal.View().Run(runID), signals, deps).carryOn(ctx)
}

func prepare(a *Agent, run *event.Run, signals Signals, deps Deps) *Run {
	r := &Run{Deps: deps, agent: a, id: run.RunID, traceID: run.TraceID, internal: run.Book.Internal,
		rawArgs: map[string]string{}, signals: signals, draining: signals.Drain, floor: newFloor()}
	if run.Book.Config != nil {
		r.config = *run.Book.Config
	}
	r.limits = a.Definition.Limits.narrowed(r.config.Limits)
	r.emit.agent = a.Definition.Emit
	if r.config.Emit != nil {
		r.emit.run = *r.config.Emit
	}
	return r
}

func (r *Run) carryOn(ctx context.Context) error {
	ctx, cancel := r.bounded(ctx, r.Journal.View())
	defer cancel()
	defer r.hush()
	return r.finish(ctx, r.steps(ctx))
}

// Fail ends a run that its owner will not continue; as cancelled, if ctx was.
func Fail(ctx context.Context, runID string, f *Failure, deps Deps) error {
	run := deps.Journal.View().Run(runID)
	r := about(run)
	r.Deps = deps
	return r.finish(ctx, f)
}

// about is a run that does not go on here: events are written about it.
func about(run *event.Run) *Run {
	return &Run{id: run.RunID, traceID: run.TraceID, internal: run.Book.Internal}
}

// finish writes the terminal event that err asks for; other errors pass.
func (r *Run) finish(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	var cancelled *Cancelled
	var budget *overBudget
	var failure *Failure
	cause := context.Cause(ctx)
	switch {
	case errors.Is(err, ErrDrained), errors.Is(err, ErrParked):
		return err
	case errors.As(cause, &cancelled):
		e := r.event(event.RunCancelled, event.RunCancelledData{By: cancelled.By, Reason: r.Redactor.String(cancelled.Reason), Usage: r.usage()})
		if r.parent == nil {
			e.CommandID = cancelled.CommandID // answered when all of it has ended
		}
		return r.end(ctx, "cancelled", e)
	case errors.As(err, &budget) || errors.As(cause, &budget):
		return r.exceeded(ctx, budget)
	case errors.As(err, &failure):
		return r.end(ctx, string(failure.Code), r.failed(failure))
	}
	return err
}

func (r *Run) failed(f *Failure) event.Event {
	return r.event(event.RunFailed, event.RunFailedData{Code: f.Code, Message: r.Redactor.String(f.Message), Retryable: f.Retryable, Usage: r.usage()})
}

func (r *Run) usage() *event.Usage {
	u := r.Journal.View().Run(r.id).Usage
	return &u
}

// end closes what is open and writes the terminal event, in one go.
func (r *Run) end(ctx context.Context, why string, last ...event.Event) error {
	if err := r.Journal.Append(append(r.closers(r.Journal.View(), why), last...)...); err != nil {
		return err
	}
	return r.Journal.Sync(context.WithoutCancel(ctx))
}

// closers are the events that close what the run has open, so that any client's
// protocol can end. Text and reasoning are closed by the answer that writes them.
func (r *Run) closers(view *event.Session, why string) []event.Event {
	run := view.Run(r.id)
	out := r.closeOpen(view, why)
	if run.Book.InStep {
		reason := event.FinishStopped
		if run.Book.Answer != "" && run.Book.Remote == nil { // of a leg an answer is not the end
			reason = event.FinishStop
		}
		out = append(out, r.event(event.StepCompleted, event.StepCompletedData{Step: run.Book.Step, FinishReason: reason}))
	}
	return out
}

// closeOpen closes the run's messages and calls.
func (r *Run) closeOpen(view *event.Session, why string) []event.Event {
	var out []event.Event
	for i, m := range view.Messages {
		if m.RunID == r.id && m.Status == event.Streaming {
			out = append(out, r.closeMessage(view, m, i)...)
		}
	}
	for _, c := range view.ToolCalls {
		if c.RunID == r.id && !c.Done() {
			out = append(out, r.closeChildren(view, c.CallID, why)...)
			out = append(out, r.closeCall(view, c, why))
		}
	}
	return out
}

// closeMessage keeps what the model has said so far.
func (r *Run) closeMessage(view *event.Session, m *event.Message, index int) []event.Event {
	var out []event.Event
	parts := event.Values(m.Parts)
	for i, c := range view.CallsOf(m.MessageID) {
		out = append(out, r.hidden(c.Internal, event.ToolArgs, event.ToolArgsData{CallID: c.CallID, Name: c.Name, Index: i, Args: c.Args, Redacted: c.Redacted}))
	}
	return append(out, r.event(event.MessageCompleted, event.MessageCompletedData{
		MessageID: m.MessageID, Role: m.Role, Index: index, Parts: parts, SHA256: event.TextHash(parts)}))
}

func (r *Run) closeCall(view *event.Session, c *event.ToolCall, why string) event.Event {
	outcome, message := event.OutcomeFailed, "not run: the run ended ("+why+")"
	switch {
	case why == "cancelled":
		outcome, message = event.OutcomeCancelled, "the run was cancelled"
	case c.Status == event.Running || c.Attempt > 0 || c.Executor == event.ByRemote:
		outcome, message = event.OutcomeUnknown, "the run ended ("+why+") before the tool answered: it may have had its effect"
	}
	return r.failedCall(view, c, event.CodeInterrupted, outcome, message)
}

// failedCall closes a call that has no result.
func (r *Run) failedCall(view *event.Session, c *event.ToolCall, code event.Code, outcome event.Outcome, message string) event.Event {
	return r.hidden(c.Internal, event.ToolFailed, event.ToolFailedData{CallID: c.CallID, Name: c.Name, Index: view.CallIndex(c),
		Args: c.Args, Code: code, Outcome: outcome, Message: message})
}

// event makes an event of this run.
func (r *Run) event(t event.Type, data any) event.Event {
	e := event.New(t, data)
	e.RunID, e.TraceID, e.Internal = r.id, r.traceID, r.internal
	return e
}

func (r *Run) hidden(internal bool, t event.Type, data any) event.Event {
	e := r.event(t, data)
	e.Internal = internal || r.internal
	return e
}

// Recovered are the events by which a new owner takes a run over: what the last
// one's model was saying is taken back, for a reason.
func Recovered(view *event.Session, run *event.Run, reason string) []event.Event {
	r := about(run)
	out := []event.Event{r.event(event.RunRecovered, event.RunRecoveredData{Attempt: run.Book.Attempt + 1, FromSeq: view.Book.Claim.Seq - 1})}
	out = append(out, r.takenBack(view, reason, 1)...)
	for _, below := range view.Runs {
		if below.ParentRunID != "" && !below.Status.Terminal() {
			out = append(out, about(below).takenBack(view, reason, 1)...)
		}
	}
	return out
}

// takenBack discards what the run's model is saying, and of an agent that lives
// elsewhere all that it has said and changed since it can be asked anew.
func (r *Run) takenBack(view *event.Session, reason string, retry int) []event.Event {
	if !view.Run(r.id).Book.InStep {
		return nil
	}
	var out []event.Event
	discard := func(messageID string) {
		out = append(out, r.event(event.MessageDiscarded, event.MessageDiscardedData{MessageID: messageID, Reason: reason, Retry: retry}))
	}
	open := r.openMessage(view)
	if open != "" {
		discard(open)
	}
	remote := view.Run(r.id).Book.Remote
	if remote == nil || remote.Keep {
		return out
	}
	for _, id := range slices.Backward(remote.Said) {
		if id != open {
			discard(id)
		}
	}
	if was := orNull(remote.State); !bytes.Equal(was, orNull(view.State)) {
		out = append(out, r.event(event.StateSnapshot, event.StateSnapshotData{State: was}))
	}
	return out
}

// openMessage is what the run's model is saying, empty if nothing.
func (r *Run) openMessage(view *event.Session) string {
	for _, m := range slices.Backward(view.Messages) {
		if m.RunID == r.id && m.Status == event.Streaming {
			return m.MessageID
		}
	}
	if len(view.Book.Reasoning) > 0 && view.Thinks(r.id) { // its message had not begun
		return event.NewID("msg")
	}
	return ""
}

func orNull(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("null")
	}
	return raw
}

// steps goes from the fold's state to the end of the run.
func (r *Run) steps(ctx context.Context) error {
	for {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if r.begun() {
			return ErrDrained
		}
		done, err := r.stopped(ctx)
		if !done && err == nil {
			done, err = r.step(ctx)
		}
		if !done && err == nil && r.signals.Between != nil {
			err = r.signals.Between(ctx)
		}
		if err != nil || done {
			return err
		}
	}
}

// stopped ends the run between two steps if that was asked for. A leg is closed
// before, one that a lost worker has left too: it may go on for ever.
func (r *Run) stopped(ctx context.Context) (done bool, err error) {
	if !closed(r.signals.Stop) {
		return false, nil
	}
	view := r.Journal.View()
	if view.Run(r.id).Book.InStep && r.agent.Remote != nil {
		if err := r.Journal.Append(r.closers(view, "stopped")...); err != nil {
			return false, err
		}
		view = r.Journal.View()
	}
	run := view.Run(r.id)
	if run.Book.InStep || run.Status.Terminal() {
		return false, nil
	}
	e := r.event(event.RunCompleted, event.RunCompletedData{FinishReason: event.FinishStopped, Output: event.RunOutput{MessageID: run.Book.Answer}, Usage: run.Usage})
	if r.parent == nil {
		e.CommandID = r.signals.StopID()
	}
	return true, r.end(ctx, "stopped", e)
}

// step does what the fold asks for next, and reports whether the run is over.
func (r *Run) step(ctx context.Context) (done bool, err error) {
	view := r.Journal.View()
	run := view.Run(r.id)
	switch {
	case run.Status.Terminal():
		return true, nil
	case run.Paused():
		return false, ErrParked
	case run.Status == event.Pending:
		return false, r.status(run, event.Running)
	case r.agent.Remote != nil:
		return r.remoteStep(ctx, view, run)
	case run.Book.InStep && run.Book.Answer != "": // a takeover between the two closers
		return false, r.Journal.Append(r.event(event.StepCompleted, event.StepCompletedData{Step: run.Book.Step, FinishReason: finishOf(view, run)}))
	case run.Book.InStep:
		return false, r.modelStep(ctx, view, run)
	}
	if open := openCalls(view, r.id); len(open) > 0 {
		return false, r.toolStep(ctx, view, run, open)
	}
	if run.Status != event.Running { // nothing is open any more
		return false, r.status(run, event.Running)
	}
	if answer := view.MessageByID(run.Book.Answer); answer != nil && run.Book.Finish != event.FinishBudget && len(view.CallsOf(answer.MessageID)) == 0 && !steered(view, answer) {
		return r.complete(ctx, view, run)
	}
	return false, r.modelStep(ctx, view, run)
}

func finishOf(view *event.Session, run *event.Run) event.FinishReason {
	if len(view.CallsOf(run.Book.Answer)) > 0 {
		return event.FinishToolCalls
	}
	return event.FinishStop
}

func openCalls(view *event.Session, runID string) []*event.ToolCall {
	return slices.DeleteFunc(slices.Clone(view.ToolCalls), func(c *event.ToolCall) bool {
		return c.RunID != runID || c.Done()
	})
}

// steered reports whether a message came after the answer, which the model has
// not seen.
func steered(view *event.Session, answer *event.Message) bool {
	last := view.Messages[len(view.Messages)-1]
	return last != answer && last.RunID == answer.RunID && last.Role == event.RoleUser
}

func (r *Run) status(run *event.Run, to event.Status) error {
	return r.Journal.Append(r.event(event.RunStatus, event.RunStatusData{Status: to, Previous: run.Status}))
}

// complete ends the run, unless something was appended since it was looked at.
func (r *Run) complete(ctx context.Context, view *event.Session, run *event.Run) (done bool, err error) {
	d := event.RunCompletedData{FinishReason: run.Book.Finish, Output: event.RunOutput{MessageID: run.Book.Answer}, Usage: run.Usage}
	done, err = r.Journal.AppendIf(view.Seq, r.event(event.RunCompleted, d))
	if err != nil || !done {
		return false, err
	}
	return true, r.Journal.Sync(context.WithoutCancel(ctx))
}
