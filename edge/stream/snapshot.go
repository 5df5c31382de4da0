package stream

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/eventlog"
)

// takeSnapshot moves the viewer to the head of the log and has it show the fold of all
// events up to there first. With NoFollow the stream ends there too.
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

// fewMissed is how many missed events are sent without asking whether a snapshot would
// be smaller.
const fewMissed = 256

// orSnapshot has the viewer begin with a snapshot if that is smaller than the events
// that it missed. How large they are is estimated from the first page of them, which is
// shown if they are sent.
func (v *Viewer) orSnapshot(ctx context.Context, head eventlog.Head) error {
	missed := int(head.Seq - min(v.at.Seq, head.Seq))
	if missed <= fewMissed {
		return nil
	}
	list, err := v.readPage(ctx, head)
	if errors.Is(err, eventlog.ErrGone) {
		return nil // a reset will come
	}
	if err != nil || len(list) == 0 {
		return err
	}
	from, page := v.at, v.page
	replay := weigh(list) * missed / len(list)
	if err := v.takeSnapshot(ctx); err != nil {
		return err
	}
	size := 0
	for _, m := range v.view.dialect.Snapshot(dialect.Snapshot, v.first, v.view.audience) {
		size += len(m.Data)
	}
	if size < replay {
		return nil
	}
	v.first, v.at, v.page, v.ahead = nil, from, page, list
	v.over, v.status, v.until = false, "", head.Seq
	return nil
}

// weigh is about how many bytes events come to in a merged replay.
func weigh(list []*entry) int {
	n := 0
	var of []byte
	for _, e := range list {
		d, ok := deltaOf(e)
		if ok && bytes.Equal(of, d.of) {
			n += len(d.text)
			continue
		}
		of = d.of
		n += len(e.line)
	}
	return n
}

// reset gives a client whose position the log no longer holds a snapshot to start from.
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

// sendSnapshot sends the fold that was taken, if one was.
func (v *Viewer) sendSnapshot(out *output, kind dialect.Kind) error {
	s := v.first
	if s == nil {
		return nil
	}
	v.first = nil
	snapshot := v.view.dialect.Snapshot
	if v.encoder != nil {
		snapshot = v.encoder.Snapshot
	}
	list := snapshot(kind, s, v.view.audience)
	if x, ok := v.encoder.(dialect.Ending); ok && x.Over() {
		v.over = true // before the run is
	}
	if len(list) == 0 {
		return nil
	}
	last := len(list) - 1 // moves the cursor, no other does: a client that gets only a part begins again
	if err := v.append(out, "", list[:last]); err != nil {
		return err
	}
	return v.append(out, s.Seq.String(), list[last:])
}
