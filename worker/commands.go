package worker

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
	"github.com/runlog-dev/runlog/worker/agent"
)

// takeWhileRunning answers commands while a run is going on, until the returned
// func is called, which waits for the last answer.
func (t *turn) takeWhileRunning(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	wake, done := make(chan struct{}, 1), make(chan struct{})
	unsubscribe, err := t.w.log.OnCommand(t.key, func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	})
	if err != nil {
		unsubscribe = func() {} // the tick below looks all the same
	}
	go func() {
		defer close(done)
		tick := time.NewTicker(t.w.log.Lease() / 4)
		defer tick.Stop()
		for first := true; ; first = false {
			if !first {
				select {
				case <-ctx.Done():
					return
				case <-wake:
				case <-tick.C: // wake-ups may be lost
				}
			}
			if err := t.takeRunning(ctx); err != nil && ctx.Err() == nil {
				t.log.Warn("commands wait", "err", err)
			}
		}
	}()
	return func() { unsubscribe(); cancel(); <-done }
}

func (t *turn) takeRunning(ctx context.Context) (err error) {
	defer agent.Caught(&err)
	waiting, err := t.w.log.Inbox(ctx, t.key)
	if err != nil || len(waiting) == 0 {
		return err
	}
	return t.take(ctx, waiting)
}

// take answers commands in order and removes them once their events are
// committed. A cancel of the running run stays until the run has ended by it.
func (t *turn) take(ctx context.Context, waiting []eventlog.Waiting) error {
	var answered []uint64
	for _, c := range waiting {
		done, err := t.answer(c, waiting)
		if err != nil {
			return err
		}
		if !done {
			continue
		}
		if err := t.limitQueued(ctx, c.Command); err != nil {
			return err
		}
		answered = append(answered, c.Pos)
	}
	if len(answered) == 0 {
		return nil
	}
	if err := t.Sync(ctx); err != nil {
		return err
	}
	for _, pos := range answered {
		if err := t.w.log.Answered(ctx, pos); err != nil {
			return err
		}
	}
	return nil
}

// answer appends the event that answers a command, and reports whether the
// command can leave the inbox once that is committed.
func (t *turn) answer(c eventlog.Waiting, waiting []eventlog.Waiting) (done bool, err error) {
	invoked := invokeOf(waiting, c.RunID)
	done = true
	err = t.With(func(s *event.Session) []event.Event {
		if s.Knows(c.CommandID) || s.Seq == 0 && invoked == nil {
			return nil // answered, or about a session that never was
		}
		var events []event.Event
		switch c.Kind {
		case event.Invoke:
			events, done = t.invoke(s, c)
		case event.Cancel, event.Stop:
			if begun(s, c.RunID) && s.Run(c.RunID).ParentRunID != "" {
				events = ignored(c.Command, "a sub-agent's run ends with the run that it works for")
				break
			}
			if begun(s, c.RunID) {
				t.stop(c)
				done = false // the run's end answers it
				return nil
			}
			events = cancelWaiting(s, c, invoked)
		case event.Expire:
			if !begun(s, c.RunID) {
				events = expireQueued(s, c)
				break
			}
			events, done = t.inRun(s, c)
		default:
			events, done = t.inRun(s, c)
		}
		return t.opened(s, invoked, events)
	})
	return done, err
}

// invokeOf finds the command that asks for a run, if it still waits.
func invokeOf(waiting []eventlog.Waiting, runID string) *event.Command {
	for i, w := range waiting {
		if w.Kind == event.Invoke && w.RunID == runID {
			return &waiting[i].Command
		}
	}
	return nil
}

// inRun answers a command about a run that is going on, or parked.
func (t *turn) inRun(s *event.Session, c eventlog.Waiting) (events []event.Event, done bool) {
	if !begun(s, c.RunID) {
		return ignored(c.Command, "the run is not going on"), true
	}
	run := s.Run(c.RunID)
	if c.Kind == event.Steer {
		if t.hold(run) {
			return nil, false
		}
		return named(c.CommandID, run.RunID, run.TraceID, inputs(s, c.Messages)), true
	}
	if c.CallID == "" {
		return aboutPause(s, paused(s, run), c), true
	}
	call := s.Call(c.CallID)
	if call == nil || !s.Within(call.RunID, c.RunID) || !call.Waits() {
		return ignored(c.Command, "the call does not wait for anybody"), true
	}
	run = s.Run(call.RunID)
	events, refusal := settle(s, run, call, c)
	if refusal != "" {
		return ignored(c.Command, refusal), true
	}
	return named(c.CommandID, run.RunID, run.TraceID, events), true
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

// hold reports whether messages for a run must wait until its model has
// answered: in the log they come after what was said without them.
func (t *turn) hold(run *event.Run) bool {
	for _, r := range t.fold.Runs {
		if r.Book.InStep && t.fold.Within(r.RunID, run.RunID) {
			t.held.Store(true)
			return true
		}
	}
	return false
}

// between takes the messages that were held, between two steps of a run.
func (t *turn) between(ctx context.Context) error {
	if !t.held.Swap(false) {
		return nil
	}
	return t.takeRunning(ctx)
}

// settle makes the events by which somebody outside settles a call, or says why
// the command is not about it.
func settle(s *event.Session, run *event.Run, call *event.ToolCall, c eventlog.Waiting) (events []event.Event, refusal string) {
	gated := call.Status == event.WaitingApproval
	switch {
	case (c.Kind == event.Approve || c.Kind == event.Deny) && !gated:
		return nil, "the call does not wait for an approval"
	case c.Kind == event.Result && gated && !call.InDoubt():
		return nil, "the call waits for an approval"
	case c.Kind == event.Expire && gated && c.Time.Before(expiryOf(s, call)):
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
func expiryOf(s *event.Session, call *event.ToolCall) (expires time.Time) {
	for _, a := range s.Approvals {
		if a.CallID == call.CallID {
			expires = a.ExpiresAt.Time
		}
	}
	return expires
}

// named puts the names of the run, and of the command on the first event.
func named(commandID, runID, traceID string, events []event.Event) []event.Event {
	for i := range events {
		events[i].RunID, events[i].TraceID = runID, traceID
	}
	if len(events) > 0 {
		events[0].CommandID = commandID
	}
	return events
}

func begun(s *event.Session, runID string) bool {
	run := s.Run(runID)
	return run != nil && run.StartedAt != nil && !run.Status.Terminal()
}

// opened puts the beginning of a session before its first events.
func (t *turn) opened(s *event.Session, first *event.Command, events []event.Event) []event.Event {
	if s.Seq > 0 || len(events) == 0 {
		return events
	}
	claim := event.New(event.SessionClaimed, event.SessionClaimedData{Worker: t.w.id, Attempt: 1})
	claim.Internal = true
	return append([]event.Event{event.New(event.SessionCreated, event.SessionCreatedData{Agent: first.Agent}), claim}, events...)
}

// stop cancels the run if it is being performed now; if not, it soon is.
func (t *turn) stop(c eventlog.Waiting) {
	t.cancelMu.Lock()
	defer t.cancelMu.Unlock()
	t.wanted = c.RunID // even if it is parked
	switch {
	case t.cancel == nil || t.running != c.RunID:
	case c.Kind == event.Stop:
		t.stopOnce(c.CommandID)
	default:
		t.cancel(&agent.Cancelled{By: c.By, Reason: c.Reason, CommandID: c.CommandID})
	}
}

// stopOnce tells the running run to end after its step. The caller holds
// cancelMu.
func (t *turn) stopOnce(commandID string) {
	if t.stopID == "" {
		t.stopID = commandID
		close(t.stopRun)
	}
}

func (t *turn) setRunning(runID string, cancel context.CancelCauseFunc) {
	t.cancelMu.Lock()
	defer t.cancelMu.Unlock()
	t.running, t.cancel, t.stopRun, t.stopID, t.wanted = runID, cancel, make(chan struct{}), "", ""
}

// signals are what the run that begins now listens to.
func (t *turn) signals(drain <-chan struct{}) agent.Signals {
	t.cancelMu.Lock()
	defer t.cancelMu.Unlock()
	return agent.Signals{Drain: drain, Stop: t.stopRun, Between: t.between, StopID: func() string {
		t.cancelMu.Lock()
		defer t.cancelMu.Unlock()
		return t.stopID
	}}
}

// cancelWaiting cancels a run that has not begun: one in the queue, or one whose
// invoke is still in the inbox.
func cancelWaiting(s *event.Session, c eventlog.Waiting, invoked *event.Command) []event.Event {
	run := s.Run(c.RunID)
	if run != nil && run.Status.Terminal() {
		return ignored(c.Command, "the run has ended: "+string(run.Status))
	}
	var traceID string
	switch {
	case run != nil:
		traceID = run.TraceID
	case invoked != nil:
		traceID = invoked.TraceID
	default:
		return ignored(c.Command, "there is no such run in this session")
	}
	if c.Reason == "" && c.Kind == event.Stop {
		c.Reason = "stopped before it began"
	}
	e := event.New(event.RunCancelled, event.RunCancelledData{By: c.By, Reason: c.Reason})
	e.RunID, e.TraceID, e.CommandID = c.RunID, traceID, c.CommandID
	out := []event.Event{e}
	if invoked != nil {
		out = append(out, ignored(*invoked, "cancelled before it began")...)
	}
	return out
}

func ignored(c event.Command, reason string) []event.Event {
	e := event.New(event.CommandIgnored, event.CommandIgnoredData{CommandID: c.CommandID, Kind: string(c.Kind), Reason: reason})
	e.RunID, e.TraceID, e.CommandID, e.Internal = c.RunID, c.TraceID, c.CommandID, true
	return []event.Event{e}
}

// invoke starts a run at once when the session is free. Else its queue policy
// says what becomes of it; a run that waits does so in the log, the inbox is no
// queue.
func (t *turn) invoke(s *event.Session, c eventlog.Waiting) (events []event.Event, done bool) {
	if s.Run(c.RunID) != nil {
		return ignored(c.Command, "the run is there already"), true
	}
	d := event.RunQueuedData{Agent: c.Agent, CommandID: c.CommandID, Messages: c.Messages, Resumes: c.Resumes, Config: c.Config}
	if s.Free() {
		if f := t.w.opts.Observe.Started; f != nil {
			f(time.Since(c.Command.Time.Time))
		}
		return t.start(s, c.RunID, c.TraceID, c.Traceparent, d), true
	}
	active := s.Active()
	switch {
	case c.Queue == event.Reject:
		e := event.New(event.RunFailed, event.RunFailedData{Code: event.CodeConflict, Message: "the session is busy with another run", Retryable: true})
		return named(c.CommandID, c.RunID, c.TraceID, []event.Event{e}), true
	case c.Queue == event.SteerInto && active != nil && t.hold(active):
		return nil, false
	case c.Queue == event.SteerInto && active != nil:
		return steer(s, c, active), true
	case c.Queue == event.Interrupt && active != nil:
		t.stop(eventlog.Waiting{Command: event.Command{Kind: event.Cancel, RunID: active.RunID, By: c.By, Reason: "interrupted by run " + c.RunID}})
		return nil, false // it starts when that run has ended
	}
	e := event.New(event.RunQueued, d)
	e.RunID, e.TraceID = c.RunID, c.TraceID
	return []event.Event{e}, true
}

// steer gives a run's messages to the active one and ends it with that.
func steer(s *event.Session, c eventlog.Waiting, active *event.Run) []event.Event {
	out := named("", active.RunID, active.TraceID, inputs(s, c.Messages))
	e := event.New(event.RunCompleted, event.RunCompletedData{FinishReason: event.FinishStop, SteeredInto: active.RunID})
	return append(out, named(c.CommandID, c.RunID, c.TraceID, []event.Event{e})...)
}

// start is how a run begins: with the messages that the session does not know.
func (t *turn) start(s *event.Session, runID, traceID, traceparent string, d event.RunQueuedData) []event.Event {
	own := []event.Event{event.New(event.RunStarted, event.RunStartedData{Agent: d.Agent, CommandID: d.CommandID, Attempt: 1, Resumes: d.Resumes, Traceparent: traceparent, Config: d.Config})}
	own = append(own, inputs(s, d.Messages)...)
	own = append(own, event.New(event.RunStatus, event.RunStatusData{Status: event.Running, Previous: event.Pending}))
	for i := range own {
		own[i].RunID, own[i].TraceID, own[i].CommandID = runID, traceID, d.CommandID
	}
	return own
}

// inputs are the events of the messages, and of the calls in them, that the
// session does not hold yet. Of what has one id the first counts.
func inputs(s *event.Session, messages []event.InputMessage) []event.Event {
	var out []event.Event
	index, said, made := len(s.Messages), map[string]bool{}, map[string]bool{}
	for _, m := range messages {
		if s.MessageByID(m.MessageID) != nil || said[m.MessageID] {
			continue
		}
		brought := len(m.Calls)
		m.Calls = slices.DeleteFunc(slices.Clone(m.Calls), func(c event.PastCall) bool {
			known := s.Call(c.CallID) != nil || made[c.CallID]
			made[c.CallID] = true
			return known
		})
		if brought > 0 && len(m.Calls)+len(m.Parts) == 0 {
			continue // nothing of it is new
		}
		said[m.MessageID] = true
		out = append(out, inputMessage(m, index)...)
		index++
	}
	return out
}

func inputMessage(m event.InputMessage, index int) []event.Event {
	parts := append([]event.Part{}, m.Parts...)
	var calls []event.Event
	for i, c := range m.Calls {
		parts = append(parts, event.Part{Type: event.PartToolCall, CallID: c.CallID})
		calls = append(calls,
			event.New(event.ToolStarted, event.ToolStartedData{CallID: c.CallID, Name: c.Name, Index: i, MessageID: m.MessageID, Executor: event.ByClient}),
			event.New(event.ToolArgs, event.ToolArgsData{CallID: c.CallID, Name: c.Name, Index: i, Args: c.Args}),
			event.New(event.ToolCompleted, event.ToolCompletedData{CallID: c.CallID, Name: c.Name, Index: i, Args: c.Args, Content: append([]event.Part{}, c.Content...)}))
	}
	message := event.New(event.MessageCompleted, event.MessageCompletedData{
		MessageID: m.MessageID, Role: m.Role, Index: index, Parts: parts, SHA256: event.TextHash(parts)})
	return append([]event.Event{message}, calls...)
}
