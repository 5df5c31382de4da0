package stream

import (
	"bytes"
	"context"
	"errors"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/eventlog"
)

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
	for _, m := range v.req.Dialect.Snapshot(dialect.Snapshot, v.first, v.req.Audience) {
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
