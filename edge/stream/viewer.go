package stream

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// A Request is what a viewer wants to see.
type Request struct {
	Key       eventlog.Key
	RunID     string // only this run, to its terminal event; empty: the session, for ever
	After     Position
	Numbered  bool      // After counts messages of an event, to the last one: no id was sent back
	Begins    event.Seq // the run's events come after this one, as far as is known
	Since     time.Time // when the run was accepted, for heartbeats before it starts
	Snapshot  bool      // begin with a snapshot instead of After
	Catchup   Catchup   // how what was missed is told; empty: Events
	NoFollow  bool      // end at the head that the log has now
	Audience  dialect.Audience
	Dialect   dialect.Dialect
	Transport Transport
	// Ends, if set, says after which event the stream is over besides the run's
	// terminal one. It is called when the handler may have returned, and may take
	// its time for a run.status alone.
	Ends func(event.Event) bool
	// Empty: a client that has all of its run gets an empty stream where others
	// are told that there is nothing (204).
	Empty bool
	// Seen, if set, is called for each event shown until it returns false.
	Seen func(event.Event) (more bool)
}

// AheadError: the cursor is beyond the log.
type AheadError struct {
	Cursor Position
	Head   event.Seq // last event there is
}

func (e *AheadError) Error() string {
	return fmt.Sprintf("cursor %s is beyond the last event, which is %d: it is of another session or installation", e.Cursor, e.Head)
}

// A Viewer is a position in a session that somebody looks from. It is used by
// one goroutine at a time. Close it.
type Viewer struct {
	hub   *Hub
	req   Request
	view  view
	topic *topic

	// Of a dialect that follows its run: what encodes, and how much of what it
	// says the client has.
	encoder dialect.Encoder
	has     Position

	at     Position
	page   eventlog.Head // the frame at.Seq ends, if it was read from the log
	until  event.Seq     // with NoFollow: end here
	first  *event.Session
	ahead  []*entry // read while preparing, to be shown first
	next   *nextPage
	hidden int // events passed since the client's cursor moved

	pending *pending

	status  event.Status // of the run, as far as it was shown
	started time.Time
	newest  time.Time     // of the last event shown and not flushed
	shownAt time.Duration // when something of the log was shown, by the hub's clock
	beatAt  time.Duration // when a heartbeat went
	pingAt  time.Duration // when a ping went
	events  int           // shown until it was caught up
	bytes   int
	sub     subRun // the last one of a sub-agent

	over      bool // the run has ended before what is shown
	replaying bool // what is shown was missed and may be merged
	caught    bool // has been at the end once
	parked    bool // the hub closes it
}

// View subscribes to a session: whatever is appended from now on will be shown.
func (h *Hub) View(ctx context.Context, r Request) (*Viewer, error) {
	v := &Viewer{hub: h, req: r, at: r.After, view: view{r.Dialect, r.Transport, r.Audience}}
	v.replaying = r.Catchup.merges()
	if r.Begins > v.at.Seq {
		v.at = Position{Seq: r.Begins}
	}
	if f, ok := r.Dialect.(dialect.Following); ok {
		v.encoder, v.has, v.at = f.Begin(), r.After, Position{Seq: r.Begins}
		v.req.Catchup, v.replaying = "", false
	}
	seen := v.at.Seq
	if r.Snapshot {
		seen = math.MaxUint64 // it begins at the head
	}
	var err error
	if v.topic, err = h.join(ctx, r.Key, seen); err != nil {
		return nil, err
	}
	return v, nil
}

// Close leaves the session; a viewer that was parked does so at its end.
func (v *Viewer) Close() {
	if !v.parked {
		v.next.drop()
		v.hub.leave(v.topic)
	}
}

// HasEvents reports whether the session is known to have events.
func (v *Viewer) HasEvents() bool { return v.topic.hasEvents() }

// Prepare finds out what must be known before a stream begins. over: the run has
// ended and the client has all of it. *AheadError if the cursor is beyond the log.
func (v *Viewer) Prepare(ctx context.Context) (over bool, err error) {
	if v.req.Snapshot {
		return false, v.takeSnapshot(ctx)
	}
	head, err := v.head(ctx)
	if err != nil {
		return false, err
	}
	if v.req.NoFollow {
		v.until = head.Seq
	}
	if v.req.RunID != "" && v.req.After.Seq > 0 {
		at := v.at
		if v.encoder != nil && v.has.Seq > at.Seq {
			v.at = v.has
		}
		over, err = v.isOver(ctx, head)
		v.at = at
		if over && v.req.Empty {
			v.over, over = true, false
		}
	}
	if err == nil && !over && !v.over && v.req.Catchup == ToSnapshot {
		err = v.orSnapshot(ctx, head)
	}
	return over, err
}

// head is the end of the log, from the leader where the topic's may be too old
// for an honest answer.
func (v *Viewer) head(ctx context.Context) (eventlog.Head, error) {
	known := v.topic.look(v.at.Seq, nil).head
	if v.req.After.touches() <= known.Seq && !v.req.NoFollow {
		return known, nil
	}
	head, err := v.hub.log.Head(ctx, v.req.Key)
	if err != nil {
		return head, err
	}
	if head.Seq > known.Seq {
		v.topic.watch.Check()
	}
	if v.req.After.touches() > head.Seq {
		return head, &AheadError{v.req.After, head.Seq}
	}
	return head, nil
}

// takeSnapshot makes the fold at the head the viewer's position.
func (v *Viewer) takeSnapshot(ctx context.Context) error {
	s, head, err := v.hub.log.Load(ctx, v.req.Key)
	if err != nil {
		return err
	}
	v.first, v.at, v.page, v.until, v.hidden = s, Position{Seq: s.Seq}, head, s.Seq, 0
	if r := s.Run(v.req.RunID); r != nil {
		v.over, v.status = r.Status.Terminal(), r.Status
		if r.StartedAt != nil {
			v.started = r.StartedAt.Time
		}
	}
	if head.Seq > v.topic.look(0, nil).head.Seq {
		v.topic.watch.Check()
	}
	return nil
}

// Serve writes the stream and returns nil at its proper end: after the run's
// terminal event, or at the head with NoFollow. After any other return the
// connection must be aborted, so that no client takes it for the end.
func (v *Viewer) Serve(ctx context.Context, w http.ResponseWriter) error {
	_, err := v.serve(ctx, newOutput(w, v.hub.opts.WriteTimeout), false)
	return err
}

// serve goes on until the stream's end or, if it may rest, until it has shown all
// there is.
func (v *Viewer) serve(ctx context.Context, out *output, rests bool) (verdict, error) {
	defer out.release()
	v.shownAt = v.hub.clock()
	if err := out.put(v.req.Transport.Hello(out.buffer())); err != nil {
		return over, err
	}
	if err := v.sendSnapshot(out, dialect.Snapshot); err != nil {
		return over, err
	}
	how, err := v.follow(ctx, out, rests)
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
func (v *Viewer) follow(ctx context.Context, out *output, rests bool) (verdict, error) {
	tick := time.NewTimer(v.due(out))
	defer tick.Stop()
	var ring [aFew]*entry
	for {
		how, err := v.step(ctx, out, ring[:])
		switch {
		case err != nil || how == over || how == idle && rests:
			return how, err
		case how == idle:
			err = v.wait(ctx, out, v.topic.wait(v.at.Seq), tick)
		case how == down:
			err = v.pause(ctx, out, tick)
		}
		if err != nil {
			return over, err
		}
	}
}

// step shows some of what follows.
func (v *Viewer) step(ctx context.Context, out *output, ring []*entry) (verdict, error) {
	if v.over || v.req.NoFollow && v.at.Seq >= v.until {
		v.caughtUp()
		return over, v.finish(out)
	}
	o := v.topic.look(v.at.Seq, ring)
	if !o.behind { // the ring has what was read ahead
		v.next = v.next.drop()
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

// flush sends what was shown so far, before the viewer waits for anything.
func (v *Viewer) flush(out *output) error {
	if out == nil || out.buf == nil {
		return nil
	}
	if fn := v.hub.opts.Observe.Lag; fn != nil && v.caught && !v.newest.IsZero() {
		fn(time.Since(v.newest))
	}
	v.newest = time.Time{}
	if fn := v.hub.opts.Observe.Sent; fn != nil && out.events > 0 {
		fn(out.events, out.bytes)
	}
	out.events, out.bytes = 0, 0
	return out.flush()
}

// catchUp shows one page of the log.
func (v *Viewer) catchUp(ctx context.Context, out *output, head eventlog.Head) (verdict, error) {
	list, err := v.readPage(ctx, head)
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

// reset gives a client whose position is no longer kept the fold to start from.
func (v *Viewer) reset(ctx context.Context, out *output) (verdict, error) {
	err := v.takeSnapshot(ctx)
	if errors.Is(err, eventlog.ErrUnavailable) {
		return down, nil
	}
	if err != nil {
		return over, fmt.Errorf("reset: %w", err)
	}
	if fn := v.hub.opts.Observe.Reset; fn != nil {
		fn()
	}
	v.pending = nil // it is in the fold
	if out == nil {
		return more, nil
	}
	return more, v.sendSnapshot(out, dialect.Reset)
}

// rejoin leaves a topic whose log broke off and takes part in a new one.
func (v *Viewer) rejoin(ctx context.Context) (verdict, error) {
	v.hub.drop(v.topic)
	t, err := v.hub.join(ctx, v.req.Key, v.at.Seq)
	if errors.Is(err, eventlog.ErrUnavailable) {
		return down, nil
	}
	if err != nil {
		return over, err
	}
	v.hub.leave(v.topic)
	v.topic = t
	return more, nil
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

// pause is how long a viewer lets the event log recover.
const pause = 250 * time.Millisecond

// pause waits until the log may be there again.
func (v *Viewer) pause(ctx context.Context, out *output, tick *time.Timer) error {
	if err := v.settle(out); err != nil {
		return err
	}
	again := make(chan struct{})
	timer := time.AfterFunc(pause, func() { close(again) })
	defer timer.Stop()
	return v.wait(ctx, out, again, tick)
}

func (v *Viewer) caughtUp() {
	if v.caught {
		return
	}
	v.caught = true
	if fn := v.hub.opts.Observe.Replayed; fn != nil {
		fn(v.events, v.bytes)
	}
}
