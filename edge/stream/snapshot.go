package stream

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/eventlog"
)

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

// fewMissed is how many events are replayed without a look at the fold.
const fewMissed = 256

// orSnapshot makes the fold the viewer's beginning if that is smaller than what
// it missed, as far as one page tells.
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

// weigh is about what events come to in a merged replay.
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
	if x, ok := v.encoder.(interface{ Over() bool }); ok && x.Over() {
		v.over = true // what it tells ends before the run does
	}
	if len(list) == 0 {
		return nil
	}
	last := len(list) - 1 // alone moves the cursor: a client that has only a part begins again
	if err := v.append(out, "", list[:last]); err != nil {
		return err
	}
	return v.append(out, s.Seq.String(), list[last:])
}
