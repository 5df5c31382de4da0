package stream

import (
	"context"
	"errors"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// isOver finds out whether the client has all of the run, and the run has ended. Only a
// client that comes back to a run can have all of it. This is cheap as long as the run
// goes on: its next event says so, or the last frame of the log.
func (v *Viewer) isOver(ctx context.Context, head eventlog.Head) (bool, error) {
	if v.req.RunID == "" || v.req.After.Seq == 0 {
		return false, nil
	}
	at := v.at
	defer func() { v.at = at }()
	if v.encoder != nil && v.has.Seq > at.Seq {
		v.at = v.has // it will encode again what the client has
	}
	has := v.at.Seq
	// A topic that lags behind the client's cursor may not know the end yet.
	if p, seen := v.topic.vitals(); p.run == v.req.RunID && seen >= has {
		return false, nil
	}
	ahead, err := v.hasMore(ctx, head)
	if errors.Is(err, eventlog.ErrGone) {
		return false, nil // a reset will tell
	}
	if ahead || err != nil {
		return false, err
	}
	return v.hasEnded(ctx, head, has)
}

// hasEnded reports whether the run, of which nothing follows a seq, has ended by then.
func (v *Viewer) hasEnded(ctx context.Context, head eventlog.Head, by event.Seq) (bool, error) {
	if open, known, err := v.lastFrame(ctx, head); known || err != nil {
		return !open, err
	}
	s, _, err := v.hub.Load(ctx, v.req.Key, nil)
	if err != nil {
		return false, err
	}
	r := s.Run(v.req.RunID)
	return r != nil && r.Status.Terminal() && r.Book.Last <= by, nil
}

// hasMore moves the viewer on until an event of the run follows. The page of the log
// in which it is found is kept, to be shown.
func (v *Viewer) hasMore(ctx context.Context, head eventlog.Head) (bool, error) {
	var into [aFew]*entry
	for v.at.Seq < head.Seq {
		o := v.topic.look(v.at.Seq, into[:])
		list, paged := o.entries, len(o.entries) == 0
		if paged { // or the topic has not got there yet
			var err error
			if list, err = v.readPage(ctx, nil, head); err != nil {
				return false, err
			}
		}
		for _, e := range list {
			if !belongs(e, v.req.RunID) {
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

// belongs reports whether an event is part of what happens in a run. A command that comes too late is
// noted as ignored even after the run's end.
func belongs(e *entry, runID string) bool {
	return e.RunID == runID && e.Type != event.CommandIgnored
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
		if e := list[i]; belongs(e, v.req.RunID) {
			return !e.Type.Terminal(), true, nil
		}
	}
	return true, false, nil
}
