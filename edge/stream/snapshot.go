package stream

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// A snapshot is a fold as a viewer shows it. It is encoded when it is taken, since the
// fold is larger.
type snapshot struct {
	at       Position
	messages []dialect.Message
	hold     *Hold
}

// size is about how many bytes are sent.
func (s *snapshot) size() (n int) {
	for _, m := range s.messages {
		n += len(m.Data)
	}
	return n
}

// takeSnapshot moves the viewer to the head of the log and has it show the fold of all
// events up to there first. With NoFollow the stream ends there too. ErrCrowded if there
// is no room for it soon. patient is for the streams of many while they serve, which send
// what others wait for: it waits as long as ctx lasts.
func (v *Viewer) takeSnapshot(ctx context.Context, kind dialect.Kind, patient bool) error {
	v.dropSnapshot()
	v.kept.Drop() // the snapshot replaces it; kept, it could be what there is no turn or room for
	hold := v.hub.Hold(v.req.Key.Tenant)
	hold.patient = patient
	s, head, err := v.hub.Load(ctx, v.req.Key, hold)
	if err != nil {
		return err
	}
	v.at, v.page, v.until, v.hidden = Position{Seq: s.Seq, Epoch: head.Epoch}, head, s.Seq, 0
	v.first, v.has = &snapshot{at: v.at, hold: hold}, v.at
	if r := s.Run(v.req.RunID); r != nil {
		v.over, v.status = r.Status.Terminal(), r.Status
		if r.StartedAt != nil {
			v.started = r.StartedAt.Time
		}
	}
	if head.Seq > v.topic.look(0, nil).head.Seq {
		v.topic.watch.Check()
	}
	v.first.messages = v.encodeFold(kind, s)
	hold.Encoded(v.first.size())
	return nil
}

// encodeFold encodes a fold for the viewer. Its stream may end with that.
func (v *Viewer) encodeFold(kind dialect.Kind, s *event.Session) []dialect.Message {
	if v.encoder == nil {
		return v.view.dialect.Snapshot(kind, s, v.view.audience)
	}
	list := v.encoder.Snapshot(kind, s, v.view.audience)
	if x, ok := v.encoder.(dialect.Ending); ok && x.Over() {
		v.over = true // before the run is
	}
	return list
}

// dropSnapshot gives up the snapshot that was taken, if one was.
func (v *Viewer) dropSnapshot() {
	if v.first != nil {
		v.first.hold.Drop()
		v.first = nil
	}
}

// fewMissed is how many missed events are sent without asking whether a snapshot would
// be smaller.
const fewMissed = 256

// orSnapshot has the viewer begin with a snapshot if that is smaller than the events
// that it missed.
func (v *Viewer) orSnapshot(ctx context.Context, head eventlog.Head) error {
	missed := int(head.Seq - min(v.at.Seq, head.Seq))
	if missed <= fewMissed {
		return nil
	}
	replay, err := v.replaySize(ctx, head, missed)
	if err != nil || replay == 0 {
		return err
	}
	from := v.at
	err = v.takeSnapshot(ctx, dialect.Snapshot, false)
	switch {
	case errors.Is(err, ErrCrowded): // show the events
	case err != nil:
		return err
	case v.first.size() < replay:
		return nil
	}
	v.dropSnapshot()
	v.at, v.page = from, eventlog.Head{}
	v.over, v.status, v.until = false, "", head.Seq
	return nil
}

// replaySize is about how many bytes the missed events come to, by the first page of them;
// 0 if they are gone, for which there will be a reset. The page is let go: who waits for a
// snapshot holds nothing, and if the events are shown they are read again.
func (v *Viewer) replaySize(ctx context.Context, head eventlog.Head, missed int) (int, error) {
	defer func() {
		v.dropNext()
		v.reading = v.reading.read()
	}()
	list, err := v.readPage(ctx, nil, head)
	if errors.Is(err, eventlog.ErrGone) {
		return 0, nil
	}
	if err != nil || len(list) == 0 {
		return 0, err
	}
	return weigh(list) * missed / len(list), nil
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

// beginAnew has a client whose events are not those of the log any more start from a
// snapshot.
func (v *Viewer) beginAnew(ctx context.Context) error {
	v.anew = false
	if err := v.takeSnapshot(ctx, dialect.Reset, v.req.Later); err != nil {
		return err
	}
	if fn := v.hub.opts.Observe.Reset; fn != nil {
		fn()
	}
	return nil
}

// reset gives a client whose position the log no longer holds a snapshot to start from.
func (v *Viewer) reset(ctx context.Context, out *output) (verdict, error) {
	err := v.takeSnapshot(ctx, dialect.Reset, v.req.Later)
	if errors.Is(err, eventlog.ErrUnavailable) {
		return down, nil
	}
	if err == nil && v.at.Seq == 0 {
		err = eventlog.ErrGone // all of it: there is nothing to start from
	}
	if err != nil {
		return over, fmt.Errorf("reset: %w", err)
	}
	if fn := v.hub.opts.Observe.Reset; fn != nil {
		fn()
	}
	v.pending = nil // it is in the fold
	return more, v.sendSnapshot(out)
}

// sendSnapshot sends the snapshot that was taken, if one was, and lets go of it message by
// message: the client may take its time. The last message moves the cursor, no other does:
// a client that gets only a part begins again.
func (v *Viewer) sendSnapshot(out *output) error {
	defer v.dropSnapshot()
	if v.first == nil || out == nil {
		return nil
	}
	for i, list := 0, v.first.messages; i < len(list); i++ {
		id := ""
		if i == len(list)-1 {
			id = v.first.at.String()
		}
		framed := v.view.transport.Append(out.buffer(), id, list[i])
		list[i] = dialect.Message{}
		if err := out.put(framed); err != nil {
			return err
		}
	}
	return nil
}
