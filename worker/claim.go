package worker

import (
	"context"
	"errors"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
	"github.com/runlog-dev/runlog/worker/agent"
)

// errContended: somebody else has appended between the look and the claim.
var errContended = errors.New("contended")

func (t *turn) look(ctx context.Context) (*event.Session, eventlog.Head, []eventlog.Waiting, error) {
	fold, head, err := t.w.log.Load(ctx, t.key)
	if err != nil {
		return nil, head, nil, err
	}
	waiting, err := t.w.log.Inbox(ctx, t.key)
	return fold, head, waiting, err
}

// waitForOwner gives a session's last owner, if it did not let go, the time to show
// that it lives. Tickets of live owners do come back, after an outage that was longer
// than the lease.
func (t *turn) waitForOwner(ctx, drain context.Context, fold *event.Session, head eventlog.Head) error {
	c := fold.Book.Claim
	if c == nil || c.Released || t.w.opts.Exclusive || c.Worker == t.w.id {
		return nil
	}
	if err := t.awaitSilence(ctx, drain); err != nil {
		return err
	}
	now, err := t.w.log.Head(ctx, t.key)
	if err != nil {
		return err
	}
	if now.Pos != head.Pos {
		return errContended
	}
	t.takeover = true
	return nil
}

// awaitSilence returns after half a lease without a frame or a beat of the session.
func (t *turn) awaitSilence(ctx, drain context.Context) error {
	sign := make(chan struct{}, 1)
	stop, err := t.w.log.OnLive(t.key, func(*eventlog.Frame, *eventlog.Beat) { poke(sign) })
	if err != nil {
		return err
	}
	defer stop()
	silence := time.NewTimer(t.w.log.Lease() / 2)
	defer silence.Stop()
	for {
		select {
		case <-drain.Done():
			return errors.Join(agent.ErrDrained, t.ticket.Return())
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-sign:
			silence.Reset(t.w.log.Lease() / 2)
		case <-silence.C:
			return nil
		}
	}
}

// poke says that there is something to look at, to somebody who looks at all of it.
func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// claim appends the claim, with what a new session begins with. Nothing else is
// done before it is committed or goes along in one frame.
func (t *turn) claim() error {
	fold := t.fold
	if fold.Seq == 0 {
		return nil // see opened: the claim follows session.created
	}
	attempt := 1
	if c := fold.Book.Claim; c != nil {
		attempt = c.Attempt + 1
		t.takeover = t.takeover || !c.Released
	}
	if err := t.Append(t.claimEvent(attempt)); err != nil {
		return contended(err)
	}
	if run := fold.Active(); run != nil {
		if err := t.recover(run); err != nil {
			return contended(err)
		}
	}
	return nil
}

func (t *turn) claimEvent(attempt int) event.Event {
	e := event.New(event.SessionClaimed, event.SessionClaimedData{Worker: t.w.id, Attempt: attempt})
	e.Internal = true
	return e
}

func contended(err error) error {
	if errors.Is(err, eventlog.ErrFenced) {
		return errContended
	}
	return err
}

// recover takes over the run that the last owner left, or fails it when it has
// brought down too many workers.
func (t *turn) recover(run *event.Run) error {
	if t.takeover && t.w.opts.Observe.Takeover != nil {
		t.w.opts.Observe.Takeover()
	}
	reason := event.HandedOver
	if t.takeover {
		reason = event.TakenOver
	}
	return t.Append(agent.Recovered(t.fold, run, reason)...)
}

// followOwner ends the turn as soon as somebody else's frame shows up in the log.
func (t *turn) followOwner(stop context.CancelCauseFunc) (unfollow func(), err error) {
	unsubscribe, err := t.w.log.OnLive(t.key, func(f *eventlog.Frame, _ *eventlog.Beat) {
		if f != nil && !t.writer.Wrote(*f) && f.First > t.writer.Start() {
			t.writer.Fence()
		}
	})
	if err != nil {
		return nil, err
	}
	unwatch := t.writer.AfterEnd(stop)
	return func() { unwatch(); unsubscribe() }, nil
}
