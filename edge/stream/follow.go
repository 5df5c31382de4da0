package stream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// Serve writes the stream and returns nil at its proper end: after the run's
// terminal event, or at the head with NoFollow. After any other return the
// connection must be aborted, so that no client takes it for the end.
func (v *Viewer) Serve(ctx context.Context, w http.ResponseWriter) error {
	_, err := v.serveWith(ctx, newOutput(w, v.hub.opts.WriteTimeout), false)
	return err
}

// serveWith is serve for a client that may be stuck in a write when ctx ends.
func (v *Viewer) serveWith(ctx context.Context, out *output, untilIdle bool) (verdict, error) {
	defer out.endWith(ctx)()
	how, err := v.serve(ctx, out, untilIdle)
	return how, cause(ctx, err)
}

// serve goes on until the stream's end or, if it may rest, until it has shown all
// there is.
func (v *Viewer) serve(ctx context.Context, out *output, untilIdle bool) (verdict, error) {
	defer out.release()
	v.shownAt = v.hub.clock()
	if err := out.put(v.view.transport.Hello(out.buffer())); err != nil {
		return over, err
	}
	if v.req.Later && v.req.Snapshot {
		if err := v.takeSnapshot(ctx, dialect.Snapshot, true); err != nil {
			return over, err
		}
	}
	if v.anew {
		if err := v.beginAnew(ctx); err != nil {
			return over, err
		}
	}
	if err := v.sendSnapshot(out); err != nil {
		return over, err
	}
	how, err := v.follow(ctx, out, untilIdle)
	if err == nil && how == over {
		_ = out.setDeadline(time.Now().Add(v.hub.opts.WriteTimeout)) // for what ends the body
	}
	return how, err
}

// Wait returns nil once the run's terminal event, which comes after a seq, is in
// the log.
func (v *Viewer) Wait(ctx context.Context, after event.Seq) error {
	v.at = Position{Seq: max(v.at.Seq, after)}
	_, err := v.follow(ctx, nil, false)
	return err
}

// A verdict says how a viewer stands after a step, and so what comes next.
type verdict int

const (
	more  verdict = iota // take the next step at once
	idle                 // all there is was shown: wait for news
	down                 // the log cannot be read at the moment: try again soon
	over                 // the stream has come to its end
	stuck                // of a flusher alone: go on in a goroutine, which may read the log
)

// aFew is how many events a viewer takes from its topic at once.
const aFew = 64

// follow goes on until the stream's end or, if it may rest, until it is idle.
// Without out nothing is written.
func (v *Viewer) follow(ctx context.Context, out *output, untilIdle bool) (verdict, error) {
	tick := time.NewTimer(v.due(out))
	defer tick.Stop()
	var into [aFew]*entry
	for {
		how, err := v.step(ctx, out, into[:])
		switch {
		case err != nil || how == over || how == idle && untilIdle:
			return how, cause(ctx, err)
		case how == idle:
			err = v.wait(ctx, out, v.topic.wait(v.at.Seq), tick)
		case how == down:
			err = v.pause(ctx, out, tick)
		}
		if err != nil {
			return over, cause(ctx, err)
		}
	}
}

// cause is why something did not come to its end: a read that was broken off says that
// its context has ended, and not why, as does a write that had to be over for that. But a
// client that did not take a write in time ends the context, too, as if it had gone.
func cause(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	why := context.Cause(ctx)
	if errors.Is(err, os.ErrDeadlineExceeded) && errors.Is(why, context.Canceled) {
		return err
	}
	return why
}

// step shows some of what follows.
func (v *Viewer) step(ctx context.Context, out *output, into []*entry) (verdict, error) {
	if v.over || v.req.NoFollow && v.at.Seq >= v.until {
		v.caughtUp()
		return over, v.finish(out)
	}
	o := v.topic.look(v.at.Seq, into)
	if !o.behind { // the ring has what was read ahead
		v.dropNext()
		v.hasRead()
	}
	if len(o.entries) > 0 {
		how, err := v.present(ctx, out, o.entries)
		clear(o.entries) // a silent viewer keeps nothing
		return how, err
	}
	if !o.behind {
		if err := v.settle(out); err != nil {
			return over, err
		}
	}
	if err := v.flush(out); err != nil {
		return over, err
	}
	switch {
	case o.behind:
		v.replaying = v.req.Catchup.merges()
		return v.catchUp(ctx, out, o.through)
	case o.broken:
		return v.rejoin(ctx)
	}
	v.caughtUp()
	v.replaying = false
	return idle, nil
}

// catchUp shows one page of the log.
func (v *Viewer) catchUp(ctx context.Context, out *output, head eventlog.Head) (verdict, error) {
	list, err := v.readPage(ctx, out, head)
	switch {
	case errors.Is(err, eventlog.ErrGone):
		return v.reset(ctx, out)
	case errors.Is(err, eventlog.ErrUnavailable):
		return down, nil
	case err != nil:
		return over, err
	}
	return v.present(ctx, out, list)
}

// present shows events, as far as the session before them is known; a client for whom it
// is no longer known starts from a snapshot.
func (v *Viewer) present(ctx context.Context, out *output, list []*entry) (verdict, error) {
	how, err := v.show(ctx, out, list)
	switch {
	case errors.Is(err, eventlog.ErrGone):
		return v.reset(ctx, out)
	case errors.Is(err, eventlog.ErrUnavailable):
		return down, nil
	}
	return how, err
}

// rejoin leaves a topic whose log broke off and takes part in a new one. ErrGone if the
// log ends before what was shown: there is nothing to go on with.
func (v *Viewer) rejoin(ctx context.Context) (verdict, error) {
	v.hub.drop(v.topic)
	t, err := v.hub.join(ctx, v.req.Key, v.at.Seq)
	if err == nil {
		if err = v.fits(ctx, t); err != nil {
			v.hub.leave(t)
		}
	}
	switch {
	case errors.Is(err, eventlog.ErrUnavailable):
		return down, nil
	case err != nil:
		return over, err
	}
	v.hub.leave(v.topic)
	v.topic = t
	return more, nil
}

// fits returns ErrGone if a topic's log ends before the viewer's position.
func (v *Viewer) fits(ctx context.Context, t *topic) error {
	if t.look(v.at.Seq, nil).head.Seq >= v.at.Seq {
		return nil
	}
	head, err := v.hub.log.Head(ctx, v.req.Key) // the topic may be behind
	if err == nil && head.Seq < v.at.Seq {
		err = fmt.Errorf("%s was shown to event %d, and ends at %d now: %w", v.req.Key, v.at.Seq, head.Seq, eventlog.ErrGone)
	}
	return err
}

// wait returns when there is news, and shows meanwhile that the stream is alive.
// No channel is news already.
func (v *Viewer) wait(ctx context.Context, out *output, news <-chan struct{}, tick *time.Timer) error {
	if news == nil {
		return nil
	}
	select {
	case <-news:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-tick.C:
		defer func() { tick.Reset(v.due(out)) }()
		return v.tick(out, time.Now())
	}
}

// errSign: it is time to show that the stream lives.
var errSign = errors.New("a sign of life is due")

// await waits for something that is given to viewers in the order in which they came, and
// shows meanwhile that the stream lives. While that is being written the viewer does not
// wait: a client that takes nothing must not hold what others wait for.
func (v *Viewer) await(ctx context.Context, out *output, wait func(_ context.Context, came time.Time) error) error {
	if err := v.flush(out); err != nil {
		return err
	}
	for came := time.Now(); ; {
		until, cancel := context.WithTimeoutCause(ctx, v.due(out), errSign)
		err := wait(until, came)
		cancel()
		if !errors.Is(err, errSign) {
			return err
		}
		if err := v.tick(out, time.Now()); err != nil {
			return err
		}
	}
}

// recovery is how long a viewer lets the event log recover.
const recovery = 250 * time.Millisecond

// pause waits until the log may be there again.
func (v *Viewer) pause(ctx context.Context, out *output, tick *time.Timer) error {
	if err := v.settle(out); err != nil {
		return err
	}
	if err := v.flush(out); err != nil {
		return err
	}
	again := make(chan struct{})
	timer := time.AfterFunc(recovery, func() { close(again) })
	defer timer.Stop()
	return v.wait(ctx, out, again, tick)
}

// flush sends what was shown so far, before the viewer waits for anything.
func (v *Viewer) flush(out *output) error {
	if out == nil || out.buf == nil {
		return nil
	}
	observe := &v.hub.opts.Observe
	if v.caught && !v.newest.IsZero() {
		observe.Lag(time.Since(v.newest))
	}
	v.newest = time.Time{}
	if out.events > 0 {
		observe.Sent(out.events, out.bytes)
	}
	out.events, out.bytes = 0, 0
	return out.flush()
}

// finish ends with the client's cursor where it belongs.
func (v *Viewer) finish(out *output) error {
	if out == nil {
		return nil
	}
	if err := v.settle(out); err != nil {
		return err
	}
	if err := v.moveCursor(out); err != nil {
		return err
	}
	return v.flush(out)
}

func (v *Viewer) caughtUp() {
	if v.caught {
		return
	}
	v.caught = true
	if v.kept != nil {
		v.kept.endTurn()
	}
	v.hub.opts.Observe.Replayed(v.events, v.bytes)
}
