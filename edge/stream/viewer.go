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
