package stream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// A snapshot is a fold as viewers of a view show it. It is encoded when it is taken, since
// the fold is larger. It does not change.
type snapshot struct {
	head     eventlog.Head // it shows the log up to here
	messages [][]byte      // framed; the last one moves the cursor, no other does
	runs     map[string]runThen
	ends     bool  // the stream is over with it, before its run is
	hold     *Hold // once, however many viewers send it

	// Of one that is shared; see stands.
	stand   *stand
	nth     int // that was begun there
	viewers int // that have it, guarded by stands.mu
}

// A runThen is what a viewer has to know of its run.
type runThen struct {
	status  event.Status
	started time.Time
}

// size is how many bytes are sent.
func (s *snapshot) size() int { return sizeOf(s.messages) }

// takeSnapshot moves the viewer to the head of the log and has it show the fold of all
// events up to there first. With NoFollow the stream ends there too. ErrCrowded if there
// is no room for it soon. patient is for the streams of many while they serve, which send
// what others wait for: it waits as long as ctx lasts.
func (v *Viewer) takeSnapshot(ctx context.Context, kind dialect.Kind, patient bool) error {
	v.dropSnapshot()
	v.kept.Drop() // the snapshot replaces it; kept, it could be what there is no turn or room for
	s, err := v.newSnapshot(ctx, kind, patient)
	if err == nil {
		v.beginWith(s)
	}
	return err
}

// beginWith moves the viewer to where a snapshot was taken, and has it show that first.
func (v *Viewer) beginWith(s *snapshot) {
	v.first, v.page, v.until, v.hidden = s, s.head, s.head.Seq, 0
	v.at = Position{Seq: s.head.Seq, Epoch: s.head.Epoch}
	v.has = v.at
	if r, ok := s.runs[v.req.RunID]; ok {
		v.over, v.status = r.status.Terminal(), r.status
		if !r.started.IsZero() {
			v.started = r.started
		}
	}
	v.over = v.over || s.ends
	if s.head.Seq > v.topic.look(0, nil).head.Seq {
		v.topic.watch.Check()
	}
}

// newSnapshot makes a snapshot, or takes one that others have made. An encoder of the
// viewer's own makes what is of no use to others, and a bundle copies what it sends.
func (v *Viewer) newSnapshot(ctx context.Context, kind dialect.Kind, patient bool) (*snapshot, error) {
	if _, part := v.view.transport.(tagged); part || v.encoder != nil {
		return v.makeSnapshot(ctx, kind, patient, time.Now())
	}
	return v.sharedSnapshot(ctx, kind, patient)
}

// makeSnapshot encodes the session as it is now.
func (v *Viewer) makeSnapshot(ctx context.Context, kind dialect.Kind, patient bool, came time.Time) (*snapshot, error) {
	hold := v.hub.Hold(v.req.Key.Tenant)
	hold.patient, hold.came = patient, came
	fold, head, err := v.hub.Load(ctx, v.req.Key, hold)
	if err != nil {
		return nil, err
	}
	s := &snapshot{head: head, runs: map[string]runThen{}, hold: hold}
	for _, r := range fold.Runs {
		then := runThen{status: r.Status}
		if r.StartedAt != nil {
			then.started = r.StartedAt.Time
		}
		s.runs[r.RunID] = then
	}
	list, ends := v.encodeFold(kind, fold)
	s.messages, s.ends = v.frameSnapshot(list, head), ends
	hold.Encoded(s.size())
	return s, nil
}

// encodeFold encodes a fold for the viewer. Its stream may end with that.
func (v *Viewer) encodeFold(kind dialect.Kind, s *event.Session) (list []dialect.Message, ends bool) {
	if v.encoder == nil {
		return v.view.dialect.Snapshot(kind, s, v.view.audience), false
	}
	list = v.encoder.Snapshot(kind, s, v.view.audience)
	x, ok := v.encoder.(dialect.Ending)
	return list, ok && x.Over()
}

// frameSnapshot frames messages, and lets go of each. A client that gets only a part of
// them begins again: the last one alone has a position.
func (v *Viewer) frameSnapshot(list []dialect.Message, head eventlog.Head) [][]byte {
	framed := make([][]byte, len(list))
	for i, m := range list {
		id := ""
		if i == len(list)-1 {
			id = Position{Seq: head.Seq, Epoch: head.Epoch}.String()
		}
		framed[i] = v.view.transport.Append(make([]byte, 0, frameSize(m)), id, m)
		list[i] = dialect.Message{}
	}
	return framed
}

// dropSnapshot gives up the snapshot that was taken, if one was.
func (v *Viewer) dropSnapshot() {
	if v.first != nil {
		v.hub.stands.drop(v.first)
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
	s, err := v.newSnapshot(ctx, dialect.Snapshot, false)
	switch {
	case errors.Is(err, ErrCrowded), errors.Is(err, eventlog.ErrGone), errors.Is(err, eventlog.ErrUnavailable): // the events are there
		return nil
	case err != nil:
		return err
	case s.size() < replay:
		v.beginWith(s)
	default:
		v.hub.stands.drop(s)
	}
	return nil
}

// replaySize is about how many bytes the missed events come to, by the first page of them;
// 0 if they are gone, for which there will be a reset. The page is let go: who waits for a
// snapshot holds nothing, and if the events are shown they are read again.
func (v *Viewer) replaySize(ctx context.Context, head eventlog.Head, missed int) (int, error) {
	defer func() {
		v.dropNext()
		v.hasRead()
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
	v.hub.opts.Observe.Reset()
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
	v.hub.opts.Observe.Reset()
	v.pending = nil // it is in the fold
	return more, v.sendSnapshot(out)
}

// sendSnapshot sends the snapshot that was taken, if one was, and lets go of it.
func (v *Viewer) sendSnapshot(out *output) error {
	defer v.dropSnapshot()
	if v.first == nil || out == nil {
		return nil
	}
	for _, m := range v.first.messages {
		if err := out.add(m); err != nil {
			return err
		}
	}
	return nil
}
