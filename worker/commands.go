package worker

import (
	"context"
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
	unsubscribe, err := t.w.log.OnCommand(t.key, func() { poke(wake) })
	if err != nil {
		unsubscribe = func() {} // it looks all the same, now and then
	}
	go func() {
		defer close(done)
		t.takeOnWake(ctx, wake)
	}()
	return func() { unsubscribe(); cancel(); <-done }
}

// takeOnWake answers what there is, and again after every wake-up until ctx ends.
func (t *turn) takeOnWake(ctx context.Context, wake <-chan struct{}) {
	tick := time.NewTicker(t.w.log.Lease() / 4)
	defer tick.Stop()
	for {
		if err := t.takeRunning(ctx); err != nil && ctx.Err() == nil {
			t.log.Warn("commands wait", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-wake:
		case <-tick.C: // wake-ups may be lost
		}
	}
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
		switch {
		case c.Kind == event.Invoke:
			events, done = t.invoke(s, c)
		case c.Kind == event.Cancel || c.Kind == event.Stop:
			events, done = t.toEnd(s, c, invoked)
		case c.Kind == event.Expire && !begun(s, c.RunID):
			events = expireQueued(s, c)
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

// toEnd brings a run to its end. The end of one that is going on answers the command.
func (t *turn) toEnd(s *event.Session, c eventlog.Waiting, invoked *event.Command) (events []event.Event, done bool) {
	switch {
	case !begun(s, c.RunID):
		return cancelWaiting(s, c, invoked), true
	case s.Run(c.RunID).ParentRunID != "":
		return ignored(c.Command, "a sub-agent's run ends with the run that it works for"), true
	}
	t.halt.end(c)
	return nil, false
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
	created := event.New(event.SessionCreated, event.SessionCreatedData{Agent: first.Agent})
	return append([]event.Event{created, t.claimEvent(1)}, events...)
}

func ignored(c event.Command, reason string) []event.Event {
	e := event.New(event.CommandIgnored, event.CommandIgnoredData{CommandID: c.CommandID, Kind: string(c.Kind), Reason: reason})
	e.RunID, e.TraceID, e.CommandID, e.Internal = c.RunID, c.TraceID, c.CommandID, true
	return []event.Event{e}
}
