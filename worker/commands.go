package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
	"github.com/runlog-dev/runlog/worker/agent"
)

// takeIdle answers the waiting commands while no run is going on: the first
// invoke starts its run, later ones are queued in the log. A command leaves the
// inbox only when the event that answers it is committed.
func (t *turn) takeIdle(ctx context.Context, waiting []eventlog.Waiting) error {
	return t.take(ctx, waiting, false)
}

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

func (t *turn) takeRunning(ctx context.Context) error {
	waiting, err := t.w.log.Inbox(ctx, t.key)
	if err != nil || len(waiting) == 0 {
		return err
	}
	return t.take(ctx, waiting, true)
}

// take answers commands in order and removes them once their events are
// committed. A cancel of the running run stays until the run has ended by it.
func (t *turn) take(ctx context.Context, waiting []eventlog.Waiting, running bool) error {
	var answered []uint64
	for _, c := range waiting {
		done, err := t.answer(c, waiting)
		if err != nil {
			return err
		}
		if done {
			answered = append(answered, c.Pos)
		}
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
	done = true
	err = t.With(func(s *event.Session) []event.Event {
		switch {
		case s.Knows(c.CommandID):
			return nil
		case c.Kind == event.Invoke:
			return t.invoke(s, c)
		case c.Kind == event.Cancel && begun(s, c.RunID):
			t.stop(c)
			done = false // the run's end answers it
			return nil
		case c.Kind == event.Cancel:
			return t.opened(s, cancelWaiting(s, c, waiting))
		}
		return t.opened(s, ignored(c.Command, fmt.Sprintf("%s is not supported yet", c.Kind)))
	})
	return done, err
}

func begun(s *event.Session, runID string) bool {
	run := s.Run(runID)
	return run != nil && run.StartedAt != nil && !run.Status.Terminal()
}

// opened puts the beginning of a session before its first events.
func (t *turn) opened(s *event.Session, events []event.Event) []event.Event {
	if s.Seq > 0 || len(events) == 0 {
		return events
	}
	claim := event.New(event.SessionClaimed, event.SessionClaimedData{Worker: t.w.id, Attempt: 1})
	claim.Internal = true
	return append([]event.Event{event.New(event.SessionCreated, event.SessionCreatedData{Agent: t.agentName}), claim}, events...)
}

// stop cancels the run if it is being performed now; if not, it soon is.
func (t *turn) stop(c eventlog.Waiting) {
	t.cancelMu.Lock()
	defer t.cancelMu.Unlock()
	if t.cancel != nil && t.running == c.RunID {
		t.cancel(&agent.Cancelled{By: c.By, Reason: c.Reason, CommandID: c.CommandID})
	}
}

func (t *turn) setRunning(runID string, cancel context.CancelCauseFunc) {
	t.cancelMu.Lock()
	defer t.cancelMu.Unlock()
	t.running, t.cancel = runID, cancel
}

// cancelWaiting cancels a run that has not begun: one in the queue, or one whose
// invoke is still in the inbox.
func cancelWaiting(s *event.Session, c eventlog.Waiting, waiting []eventlog.Waiting) []event.Event {
	run := s.Run(c.RunID)
	if run != nil && run.Status.Terminal() {
		return ignored(c.Command, "the run has ended: "+string(run.Status))
	}
	traceID, invoke := c.TraceID, ""
	if run != nil {
		traceID = run.TraceID
	}
	for _, w := range waiting {
		if w.Kind == event.Invoke && w.RunID == c.RunID {
			traceID, invoke = w.TraceID, w.CommandID
		}
	}
	if run == nil && invoke == "" {
		return ignored(c.Command, "there is no such run in this session")
	}
	e := event.New(event.RunCancelled, event.RunCancelledData{By: c.By, Reason: c.Reason})
	e.RunID, e.TraceID, e.CommandID = c.RunID, traceID, c.CommandID
	out := []event.Event{e}
	if invoke != "" {
		out = append(out, ignored(event.Command{CommandID: invoke, Kind: event.Invoke, RunID: c.RunID}, "cancelled before it began")...)
	}
	return out
}

func ignored(c event.Command, reason string) []event.Event {
	e := event.New(event.CommandIgnored, event.CommandIgnoredData{CommandID: c.CommandID, Kind: string(c.Kind), Reason: reason})
	e.RunID, e.TraceID, e.CommandID, e.Internal = c.RunID, c.TraceID, c.CommandID, true
	return []event.Event{e}
}

// invoke starts a run at once when the session is idle, else queues it in the
// log: the inbox is no queue.
func (t *turn) invoke(s *event.Session, c eventlog.Waiting) []event.Event {
	if s.Run(c.RunID) != nil {
		return ignored(c.Command, "the run is there already")
	}
	d := event.RunQueuedData{Agent: c.Agent, CommandID: c.CommandID, Messages: c.Messages, Config: c.Config}
	if f := t.w.opts.Observe.Started; f != nil {
		f(time.Since(c.Command.Time.Time))
	}
	if s.Idle() {
		return t.start(s, c.RunID, c.TraceID, c.Traceparent, d)
	}
	e := event.New(event.RunQueued, d)
	e.RunID, e.TraceID = c.RunID, c.TraceID
	return []event.Event{e}
}

// start is how a run begins: with the messages that the session does not know.
func (t *turn) start(s *event.Session, runID, traceID, traceparent string, d event.RunQueuedData) []event.Event {
	own := []event.Event{event.New(event.RunStarted, event.RunStartedData{Agent: d.Agent, CommandID: d.CommandID, Attempt: 1, Traceparent: traceparent, Config: d.Config})}
	own = append(own, inputs(s, d.Messages)...)
	own = append(own, event.New(event.RunStatus, event.RunStatusData{Status: event.Running, Previous: event.Pending}))
	for i := range own {
		own[i].RunID, own[i].TraceID = runID, traceID
	}
	t.agentName = d.Agent
	return t.opened(s, own)
}

// inputs are the events of the messages that the session does not hold yet.
func inputs(s *event.Session, messages []event.InputMessage) []event.Event {
	var out []event.Event
	index := len(s.Messages)
	for _, m := range messages {
		if s.MessageByID(m.MessageID) != nil {
			continue
		}
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
			event.New(event.ToolCompleted, event.ToolCompletedData{CallID: c.CallID, Name: c.Name, Index: i, Args: c.Args, Content: append([]event.Part{}, c.Content...)}))
	}
	message := event.New(event.MessageCompleted, event.MessageCompletedData{
		MessageID: m.MessageID, Role: m.Role, Index: index, Parts: parts, SHA256: event.TextHash(parts)})
	return append([]event.Event{message}, calls...)
}
