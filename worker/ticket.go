package worker

import (
	"context"
	"errors"
	"time"

	"github.com/runlog-dev/runlog/eventlog"
)

// keepTicket holds the ticket until the returned func is called, or ctx ends, and
// keeps moving an alarm for the case that it is lost nevertheless.
func (t *turn) keepTicket(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	even := false
	rest := every(t.w.log.Lease()/4, func() {
		if ctx.Err() != nil {
			return
		}
		if err := t.ticket.KeepAlive(); err != nil {
			t.log.Warn("ticket not kept alive", "err", err) // no loss of ownership
		}
		if even = !even; even {
			t.setAlarm(ctx)
		}
	})
	return func() { cancel(); rest() }
}

// setAlarm is an effort: the alarm that was set before goes off later, and does
// no harm.
func (t *turn) setAlarm(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, t.w.log.Lease()/4)
	defer cancel()
	t.alarmed.Store(true) // if it fails, it may be there all the same
	if err := t.w.log.SetAlarm(ctx, t.key, t.w.id); err != nil && ctx.Err() == nil {
		t.log.Warn("no alarm, should the ticket be lost", "err", err)
	}
}

// afterOutage is how long a ticket rests whose session could not be worked on
// because the log did not answer.
const afterOutage = 500 * time.Millisecond

// giveUp returns the ticket of a turn that has ended although there is work: at
// once where the log was to blame. Whatever else is wrong would go wrong again,
// which once a lease is often enough.
func (t *turn) giveUp(err error) {
	if !errors.Is(err, eventlog.ErrUnavailable) {
		return
	}
	if err := t.ticket.ReturnIn(afterOutage); err != nil {
		t.log.Warn("ticket not returned: it comes back by itself after a lease", "err", err)
	}
}

// release gives the ticket up and looks once more, whatever became of that: a
// command that came after the last look may have found the ticket still there,
// and whoever has taken the session over meanwhile had this very ticket. head is
// where the log ends if nobody did.
func (t *turn) release(ctx context.Context, head eventlog.Head) error {
	ctx = context.WithoutCancel(ctx)
	// Each has its own time: a process that stood still in the first still does the second.
	err := errors.Join(t.w.within(ctx, t.ticket.Release), t.w.within(ctx, func(ctx context.Context) error { return t.lookAgain(ctx, head) }))
	if t.alarmed.Load() && err == nil {
		err = t.w.within(ctx, func(ctx context.Context) error { return t.w.log.StopAlarm(ctx, t.key, t.w.id) })
	}
	return err
}

// within gives do as long as a part of a release may take.
func (w *Worker) within(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, w.patience)
	defer cancel()
	return do(ctx)
}

// lookAgain places a ticket if there is work that may have none.
func (t *turn) lookAgain(ctx context.Context, head eventlog.Head) error {
	waiting, err := t.w.log.Inbox(ctx, t.key)
	if err != nil {
		return err
	}
	now, err := t.w.log.Head(ctx, t.key)
	if err != nil {
		return err
	}
	if len(waiting) == 0 && now.Pos == head.Pos {
		return nil
	}
	return t.w.log.Wake(ctx, t.key)
}
