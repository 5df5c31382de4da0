package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
	"github.com/runlog-dev/runlog/worker/agent"
)

// poisoned is how many claims in a row may end without a step or a tool result
// before the run that caused them is failed.
const poisoned = 5

// A turn looks after one session, from its ticket to the ticket's release.
type turn struct {
	w      *Worker
	key    eventlog.Key
	ticket *eventlog.Ticket
	log    *slog.Logger

	*journal
	beatAt    beatState
	runs      int
	takeover  bool
	nobody    bool        // no other worker has taken the session for want of its agent
	held      atomic.Bool // messages wait for the step's end
	alarmed   atomic.Bool // an alarm was set
	startedAt time.Time   // of a run that has not said anything yet; guarded by the journal
	halt      halt
}

// run claims the session and works until it is idle. drain is when the worker
// stops; the turn itself ends only with its work or its ownership.
func (t *turn) run(drain context.Context) error {
	ctx, stop := context.WithCancelCause(context.WithoutCancel(drain))
	defer stop(nil)
	keep := t.keepTicket(ctx)
	defer keep()
	for {
		err := t.claimed(ctx, drain, stop)
		if cause := context.Cause(ctx); err != nil && errors.Is(cause, eventlog.ErrFenced) {
			return cause // why whatever was going on broke off
		}
		if errors.Is(err, errContended) {
			continue // look again
		}
		return err
	}
}

// claimed does everything from the look at the session to its release.
func (t *turn) claimed(ctx, drain context.Context, stop context.CancelCauseFunc) error {
	fold, head, waiting, err := t.look(ctx)
	if err != nil {
		return err
	}
	if len(waiting) == 0 && fold.Idle() {
		return t.leave(ctx, fold, head)
	}
	if name, leave := t.elsewhere(fold, head, waiting); leave {
		return t.pass(ctx, name)
	}
	if t.ticket.Delivered > 1 { // whoever had it before may be about to delete it
		t.setAlarm(ctx)
	}
	if err := t.waitForOwner(ctx, drain, fold, head); err != nil {
		return err
	}
	return t.takeOver(ctx, drain, stop, fold, head, waiting)
}

// takeOver claims the session behind what was seen of it, and does its owner's work.
func (t *turn) takeOver(ctx, drain context.Context, stop context.CancelCauseFunc, fold *event.Session, head eventlog.Head, waiting []eventlog.Waiting) error {
	t.journal = newJournal(t.w.log, t.key, fold, head, t.w.opts.Redactor)
	t.journal.onAppend = t.observe
	defer t.journal.Close()
	// A turn that has not ended by then waits for the log, which the next owner can do too.
	defer after(drain, t.w.opts.Grace+t.w.patience, t.writer.Close)()
	if err := t.claim(); err != nil {
		return err
	}
	unfollow, err := t.followOwner(stop)
	if err != nil {
		return err
	}
	defer unfollow()
	return t.own(ctx, drain, waiting)
}

// leave lets go of a session in which there is nothing to do. If it is parked,
// whoever parked it may have been lost before it set the timers.
func (t *turn) leave(ctx context.Context, fold *event.Session, head eventlog.Head) error {
	if fold.Parked() != nil {
		if err := t.setTimers(ctx, fold); err != nil {
			return err
		}
	}
	return t.release(ctx, head)
}

// own is the work of an owner: runs, until nothing is left, then the release.
func (t *turn) own(ctx, drain context.Context, waiting []eventlog.Waiting) error {
	beats := t.beat(ctx)
	defer beats()
	for {
		if err := t.take(ctx, waiting); err != nil {
			if t.runs == 0 {
				return contended(err)
			}
			return err
		}
		run := t.next()
		if run == "" {
			break
		}
		if err := t.perform(ctx, drain, run); err != nil {
			switch {
			case errors.Is(err, agent.ErrDrained):
				return t.handOver(ctx)
			case errors.Is(err, errElsewhere):
				return t.handOn(ctx, run)
			}
			return err
		}
		var err error
		if waiting, err = t.w.log.Inbox(ctx, t.key); err != nil {
			return err
		}
	}
	return t.letGo(ctx)
}

// next is the run to work on: the active one, or the first of the queue.
func (t *turn) next() string {
	var id string
	_ = t.With(func(s *event.Session) []event.Event {
		if run := s.Active(); run != nil {
			if s.Parked() == nil || t.halt.wants(run.RunID) {
				id = run.RunID
			}
			return nil
		}
		if len(s.Book.Queue) == 0 {
			return nil
		}
		q := s.Book.Queue[0]
		id = q.RunID
		return t.start(s, q.RunID, q.TraceID, "", q.RunQueuedData)
	})
	return id
}

// perform runs one run to its end, taking commands meanwhile.
func (t *turn) perform(ctx, drain context.Context, runID string) error {
	t.runs++
	run := t.View().Run(runID)
	if t.fold.Book.Claims >= poisoned {
		return t.bury(ctx, run)
	}
	runCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stopped, by := t.halt.begin(runID, cancel)
	defer t.halt.over()
	if err := t.takeRunning(ctx); err != nil { // what ends it may be waiting already
		return err
	}
	a := t.w.agents[run.Agent]
	if a == nil {
		return t.without(runCtx, run)
	}
	take := t.takeWhileRunning(ctx)
	draining, stopGrace := t.drained(drain, cancel)
	defer stopGrace()
	t.beatAt.begin(runID, run.StartedAt.Time)
	signals := agent.Signals{Drain: draining, Stop: stopped, StopID: by, Between: t.between}
	err := agent.Continue(runCtx, a, runID, signals, agent.Deps{
		Journal: t.journal, Artifacts: blobs{t.w.artifacts, t.key.Tenant}, Redactor: t.w.opts.Redactor,
		Tenant: t.key.Tenant, Tunables: t.w.opts.Tunables, Agents: t.w.agents,
	})
	take()
	return t.performed(ctx, run, err)
}

// performed takes note of how a run was left.
func (t *turn) performed(ctx context.Context, run *event.Run, err error) error {
	var thrown *agent.Panic
	if errors.As(err, &thrown) {
		t.log.Error("run panicked", "run", run.RunID, "trace", run.TraceID, "agent", run.Agent, "err", thrown)
		err = t.fail(ctx, run, event.CodeInternal, "a fault of the worker's code, or of a tool or agent that is part of it: its log has the stack")
	}
	switch {
	case err == nil:
		t.ended(run.RunID)
	case errors.Is(err, agent.ErrParked):
		return t.setTimers(ctx, t.View())
	}
	return err
}

// observe watches what is appended, for metrics.
func (t *turn) observe(e event.Event) {
	switch e.Type {
	case event.RunStarted:
		t.startedAt = e.Time.Time
	case event.TextDelta:
		if f := t.w.opts.Observe.FirstText; f != nil && !t.startedAt.IsZero() {
			f(e.Time.Sub(t.startedAt))
		}
		t.startedAt = time.Time{}
	}
}

// bury gives up a run that brings its workers down, and puts it on the list of
// dead letters.
func (t *turn) bury(ctx context.Context, run *event.Run) error {
	lost := t.fold.Book.Claims - 1
	d := eventlog.DeadLetter{RunID: run.RunID, SessionID: t.key.Session, TraceID: run.TraceID, Agent: run.Agent, Claims: lost,
		Reason: fmt.Sprintf("%d workers in a row were lost with this run", lost), Time: event.At(time.Now())}
	if err := t.w.log.Bury(ctx, t.key.Tenant, d); err != nil {
		return err
	}
	return t.fail(ctx, run, event.CodePoisoned, d.Reason)
}

// fail ends a run that cannot go on.
func (t *turn) fail(ctx context.Context, run *event.Run, code event.Code, message string) error {
	return agent.Fail(ctx, run.RunID, &agent.Failure{Code: code, Message: message}, agent.Deps{Journal: t.journal, Redactor: t.w.opts.Redactor})
}

func (t *turn) ended(runID string) {
	run := t.View().Run(runID)
	if f := t.w.opts.Observe.Ended; f != nil {
		f(run.Status, run.EndedAt.Sub(run.StartedAt.Time), run.Usage)
	}
	t.log.Info("run", "run", runID, "trace", run.TraceID, "agent", run.Agent, "status", run.Status,
		"took", run.EndedAt.Sub(run.StartedAt.Time), "steps", run.Usage.Steps, "tool_calls", run.Usage.ToolCalls,
		"input_tokens", run.Usage.InputTokens, "output_tokens", run.Usage.OutputTokens)
}

// drained is closed when the worker stops; what still runs after the grace is
// broken off, unless the returned func was called.
func (t *turn) drained(drain context.Context, cancel context.CancelCauseFunc) (<-chan struct{}, func()) {
	return drain.Done(), after(drain, t.w.opts.Grace, func() { cancel(agent.ErrDrained) })
}

// after does something when so much time has passed since the end of ctx, unless
// forget was called.
func after(ctx context.Context, d time.Duration, do func()) (forget func()) {
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-time.After(d):
			do()
		case <-done:
		}
	})
	return func() { stop(); close(done) }
}

// handOver leaves a run to another worker: the claim is released and the ticket
// handed back, so that it goes on at once.
func (t *turn) handOver(ctx context.Context) error {
	if err := t.released("drain"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	err := t.Sync(ctx)
	// The server may still count on requests for tickets that this process has
	// given up, and would hand the ticket to one of them.
	return errors.Join(agent.ErrDrained, err, t.w.idle(), t.ticket.Return())
}

// handOn leaves a run to a worker that has its agent.
func (t *turn) handOn(ctx context.Context, runID string) error {
	if err := t.released("no_agent"); err != nil {
		return err
	}
	if err := t.Sync(ctx); err != nil {
		return err
	}
	return t.pass(ctx, t.View().Run(runID).Agent)
}

// released says in the log that this worker has let go of the session.
func (t *turn) released(reason string) error {
	e := event.New(event.SessionReleased, event.SessionReleasedData{Worker: t.w.id, Reason: reason})
	e.Internal = true
	return t.Append(e)
}

// letGo releases an idle session.
func (t *turn) letGo(ctx context.Context) error {
	if t.View().Seq > 0 {
		if err := t.released(""); err != nil {
			return err
		}
		if err := t.Sync(ctx); err != nil {
			return err
		}
	}
	if err := t.Own(ctx); err != nil {
		return err // the ticket has another holder
	}
	return t.release(ctx, t.writer.Head())
}
