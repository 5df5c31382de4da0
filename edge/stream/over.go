package stream

import (
	"context"
	"errors"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// isOver finds out whether the run has no event after the viewer's position and
// will get none. Cheap where it is under way: then its next event, or the last
// one of the log, says so.
func (v *Viewer) isOver(ctx context.Context, head eventlog.Head) (bool, error) {
	// A topic that lags behind the client's cursor may not know the end yet.
	if p, seen := v.topic.vitals(); p.run == v.req.RunID && seen >= v.at.Seq {
		return false, nil
	}
	ahead, err := v.hasMore(ctx, head)
	if errors.Is(err, eventlog.ErrGone) {
		return false, nil // a reset will tell
	}
	if ahead || err != nil {
		return false, err
	}
	if open, known, err := v.lastFrame(ctx, head); known || err != nil {
		return !open, err
	}
	s, _, err := v.hub.log.Load(ctx, v.req.Key)
	if err != nil {
		return false, err
	}
	r := s.Run(v.req.RunID)
	return r != nil && r.Status.Terminal() && r.Book.Last <= v.at.Seq, nil
}

// hasMore looks for an event of the run after the viewer's position. What it
// reads of the log to find one is kept, to be shown.
func (v *Viewer) hasMore(ctx context.Context, head eventlog.Head) (bool, error) {
	at := v.at
	defer func() { v.at = at }()
	var ring [aFew]*entry
	for v.at.Seq < head.Seq {
		o := v.topic.look(v.at.Seq, ring[:])
		list, paged := o.entries, len(o.entries) == 0
		if paged { // or the topic has not got there yet
			var err error
			if list, err = v.readPage(ctx, head); err != nil {
				return false, err
			}
		}
		for _, e := range list {
			if e.RunID != v.req.RunID {
				continue
			}
			if paged {
				v.ahead = list
			}
			return true, nil
		}
		v.at.Seq = list[len(list)-1].Seq
	}
	return false, nil
}

// lastFrame looks whether the log ends inside the run.
func (v *Viewer) lastFrame(ctx context.Context, head eventlog.Head) (open, known bool, err error) {
	if head.First == 0 {
		return true, false, nil
	}
	frames, err := v.hub.log.Page(ctx, v.req.Key, eventlog.Head{Seq: head.First - 1, Pos: head.Pos - 1}, head, 1)
	if errors.Is(err, eventlog.ErrGone) {
		return true, false, nil
	}
	if err != nil || len(frames) == 0 {
		return true, false, err
	}
	list := v.topic.entries(new(event.Decoder), frames[0])
	for i := len(list) - 1; i >= 0; i-- {
		if e := list[i]; e.RunID == v.req.RunID {
			return !e.Type.Terminal(), true, nil
		}
	}
	return true, false, nil
}
