package stream

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// A Request is what a viewer wants to see. Key, Dialect and Transport are required
// (Wait needs the Key alone).
type Request struct {
	Key       eventlog.Key
	RunID     string    // only this run, to its terminal event; empty: the session, for ever
	After     Position  // what the client has already
	Begins    event.Seq // the run's events are known to come after this one; 0: nothing is known
	Since     time.Time // when the run was accepted, for heartbeats before it starts
	Catchup   Catchup   // how to tell what was missed; empty: Events
	Dialect   dialect.Dialect
	Transport Transport
	Audience  dialect.Audience
	Numbered  bool // After.Sub was counted by the client and not sent back as an id: it may be all of the event's messages
	Snapshot  bool // begin with a snapshot of the session as it is now; After does not count
	Later     bool // take that snapshot, or one for a reset, in Serve and not in Prepare, as soon as there is room for it
	NoFollow  bool // end at the head that the log has when the stream begins
	Empty     bool // a client that already has all of its run gets an empty stream; else Prepare reports over, for a 204
	// Ends, if set, ends the stream after the first event for which it returns true,
	// like the run's terminal event. It may be called after the handler has returned,
	// and may block for events of type run.status only.
	Ends func(event.Event) bool
	// Seen, if set, is called for each event shown until it returns false.
	Seen func(event.Event) (more bool)
	// Hold, if set, has what the dialect keeps, which is the caller's longer than the
	// viewer's (dialect.Keeping).
	Hold *Hold
}

// AheadError: the cursor is beyond the log.
type AheadError struct {
	Cursor Position
	Head   event.Seq // last event there is
}

func (e *AheadError) Error() string {
	return fmt.Sprintf("cursor %s is beyond the last event, which is %d: it is of another session or installation", e.Cursor, e.Head)
}

// A Viewer shows one client a session from a position on: View, Prepare, Serve (or
// ServeOrPark, or Wait), Close. It is used by one goroutine at a time. There are many:
// see TestSizes before it gets a field.
type Viewer struct {
	hub   *Hub
	req   Request
	view  view // the part of req by which encoded events are shared
	topic *topic

	// Where it is.
	at    Position      // shown so far
	page  eventlog.Head // the frame that at.Seq ends, if it was read from the log
	until event.Seq     // with NoFollow: end here

	// What is shown next.
	first   *snapshot
	ahead   []*entry  // read while preparing
	next    *nextPage // being read
	pending *pending  // shown, but held back to be merged
	reading *reading  // how much of this is counted; nil: none
	telling *telling  // the large message that is being sent; nil: none that is counted

	// A dialect that follows its run encodes with a state of its own, from the run's
	// first event on; the client has the messages up to has.
	encoder dialect.Encoder
	has     Position
	kept    *Hold // what a dialect.Keeping encoder keeps

	// What signs of life say, and when. Times are by the hub's clock.
	status  event.Status // of the run, as far as it was shown
	started time.Time    // of the run; zero: not known
	hidden  int          // events passed since the client's cursor moved
	shownAt time.Duration
	beatAt  time.Duration
	pingAt  time.Duration

	// For metrics.
	newest        time.Time // of the last event shown and not flushed
	events, bytes int       // shown until it had caught up

	sub       subRun // the last one that was met
	over      bool   // the stream ends at this position
	replaying bool   // what is shown was missed and may be merged
	caught    bool   // has been at the end once
	parked    bool   // closed by the hub, not by its handler
	anew      bool   // the log does not have what the client has: Serve begins with a reset
}

// View subscribes to a session: whatever is appended from now on will be shown.
// Close the viewer. eventlog.ErrUnavailable if the log cannot be reached; the cause of
// ctx's end if that comes first.
func (h *Hub) View(ctx context.Context, r Request) (*Viewer, error) {
	v := &Viewer{hub: h, req: r, at: r.After, view: view{r.Dialect, r.Transport, r.Audience}}
	v.replaying = r.Catchup.merges()
	if r.Begins > v.at.Seq {
		v.at = Position{Seq: r.Begins}
	}
	if f, ok := r.Dialect.(dialect.Following); ok {
		v.encoder, v.has, v.at = f.Begin(), r.After, Position{Seq: r.Begins}
		v.req.Catchup, v.replaying = "", false
		if v.kept = r.Hold; r.Hold == nil {
			v.kept = h.Hold(r.Key.Tenant)
		}
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

// Close leaves the session. A viewer that was parked leaves it at the stream's end,
// and Close does nothing.
func (v *Viewer) Close() {
	if !v.parked {
		v.dropSnapshot()
		v.dropNext()
		v.leave()
	}
}

func (v *Viewer) leave() {
	v.hasRead()
	v.tells(nil)
	if v.req.Hold == nil {
		v.kept.Drop()
	}
	v.hub.leave(v.topic)
}

// HasEvents reports whether the session is known to have events.
func (v *Viewer) HasEvents() bool { return v.topic.hasEvents() }

// Prepare finds out what must be known before the first byte of an answer. over: the
// run has ended and the client has all of it. *AheadError if the cursor is beyond the
// log, eventlog.ErrUnavailable if the log cannot be read.
func (v *Viewer) Prepare(ctx context.Context) (over bool, err error) {
	over, err = v.prepare(ctx)
	return over, cause(ctx, err)
}

func (v *Viewer) prepare(ctx context.Context) (over bool, err error) {
	if v.req.Snapshot {
		if v.req.Later {
			return false, nil
		}
		return false, v.takeSnapshot(ctx, dialect.Snapshot, false)
	}
	head, err := v.head(ctx)
	if err != nil {
		return false, err
	}
	known, err := v.knows(ctx, head)
	switch {
	case err != nil:
		return false, err
	case !known && v.req.Later:
		v.anew = true
		return false, nil
	case !known:
		return false, v.beginAnew(ctx)
	}
	if v.req.NoFollow {
		v.until = head.Seq
	}
	over, err = v.isOver(ctx, head)
	switch {
	case err != nil:
		return false, err
	case over:
		v.over = v.req.Empty
		return !v.req.Empty, nil
	case v.req.Catchup == ToSnapshot:
		return false, v.orSnapshot(ctx, head)
	}
	return false, nil
}

// head is the end of the log. The topic knows it, but maybe not the newest one: a
// cursor beyond it, or a stream that ends there, needs the leader's answer.
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
	return head, nil
}

// knows reports whether what the client has is what the log has: after a restore there may
// be fewer events than it has seen, or others in their place. *AheadError if it claims what
// no restore explains.
func (v *Viewer) knows(ctx context.Context, head eventlog.Head) (bool, error) {
	after := v.req.After
	switch last := after.touches(); {
	case last > head.Seq:
		epoch, err := v.hub.log.Epoch(ctx)
		if err == nil && epoch == after.Epoch {
			err = &AheadError{after, head.Seq}
		}
		return false, err
	case v.req.Numbered: // its numbers have no epoch
		return true, nil
	default:
		return v.hub.log.Holds(ctx, v.req.Key, last, after.Epoch, head)
	}
}
