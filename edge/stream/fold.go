package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/edge/room"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// foldKept is how long a topic keeps the fold that its dialects asked for last:
// what needs it comes in bursts, and the fold is as large as the conversation.
const foldKept = 2 * time.Second

// foldsKept is how many folds a topic has at most: viewers at several places of a
// session each have one that goes with them.
const foldsKept = 4

// A lateFold serves dialects that encode some events with the session as it was before
// them (dialect.Folding). It keeps folds that follow what viewers show, and what was
// encoded lately. There are several folds because viewers stand at several places: a
// single one would have to go back for some of them, and to go back is to read the log
// from the beginning.
type lateFold struct {
	mu    lock // held while the log is read, and while events are encoded; see lockFolds
	folds []*event.Session
	size  int // about how many bytes they take
	made  encodings
	drop  *time.Timer // drops all of it; nil: nothing is kept
}

// wire returns the entry's messages in the viewer's view. Where that takes long out shows
// meanwhile that the stream lives. eventlog.ErrGone if the log no longer has what is needed
// to encode it; errStuck if it cannot be encoded without waiting, where out is a flusher's.
func (v *Viewer) wire(ctx context.Context, out *output, e *entry) ([][]byte, error) {
	if v.encoder != nil && !e.hidden {
		if err := v.keep(ctx, e); err != nil {
			return nil, err
		}
		return e.frame(v.view, v.encoder.Next(e.Event, e.line, v.view.audience)), nil
	}
	if d := v.folding(e); d != nil {
		return v.foldedWire(ctx, out, e, d)
	}
	return e.wire(v.view), nil
}

// folding is the viewer's dialect if that encodes an event with the session before it,
// else nil.
func (v *Viewer) folding(e *entry) dialect.Folding {
	d, ok := v.view.dialect.(dialect.Folding)
	if !ok || v.encoder != nil || e.hidden || !d.Folds(e.Event) {
		return nil
	}
	return d
}

// foldedWire is wire for an event that is encoded with the session before it. The session
// is read, and the event encoded, once for all viewers of the view.
func (v *Viewer) foldedWire(ctx context.Context, out *output, e *entry, d dialect.Folding) ([][]byte, error) {
	f := &v.topic.fold
	if err := v.lockFolds(ctx, out); err != nil {
		return nil, err
	}
	defer f.mu.Unlock()
	v.topic.keepFold()
	if messages, ok := e.made(v.view); ok {
		return messages, nil
	}
	if w := f.made.find(e.Seq, v.view); w != nil {
		v.tells(w.telling)
		return w.messages, nil
	}
	v.tells(nil) // what was sent last may take the room that this one waits for
	if out.flushers() && !v.topic.reaches(e) {
		return nil, errStuck
	}
	return v.encodeAfter(ctx, e, d)
}

// encodeAfter encodes an event with the session before it, and keeps that for the other
// viewers of the view. The caller holds the folds' lock.
func (v *Viewer) encodeAfter(ctx context.Context, e *entry, d dialect.Folding) ([][]byte, error) {
	gate := v.entrance()
	gate.hold.share = room.Share{Room: &v.hub.loads.told, Tenant: v.req.Key.Tenant} // until what is made of it is counted
	defer gate.hold.Drop()
	s, err := v.foldAt(ctx, e.Seq-1, gate.pass)
	if err == nil {
		err = gate.pass(ctx, s.Size())
	}
	if err != nil {
		return nil, fmt.Errorf("fold events through %d: %w", e.Seq-1, err)
	}
	messages := e.frame(v.view, d.EventAfter(s, e.Event, e.line, v.view.audience))
	if sizeOf(messages) < flushAt { // else they are where they are counted alone
		e.keep(v.view, messages)
	}
	w := &wire{view: v.view, messages: messages, telling: v.hub.telling(v.req.Key.Tenant, messages)}
	v.tells(w.telling)
	v.topic.remember(e.Seq, w)
	return messages, nil
}

// errStuck: a flusher moves the viewer on, and may not wait as it would have to.
var errStuck = errors.New("it takes a goroutine to go on")

// lockFolds waits for the topic's folds, and shows meanwhile that the stream lives: who
// has them may be waiting, for seconds, to load a large conversation.
func (v *Viewer) lockFolds(ctx context.Context, out *output) error {
	l := &v.topic.fold.mu
	if l.TryLock() {
		return nil
	}
	if out.flushers() {
		return errStuck
	}
	if v.kept.hasTurn() {
		v.kept.Drop() // whoever has the folds may be waiting for that turn
	}
	return v.await(ctx, out, l.Await)
}

// foldAt returns a fold that stands at a seq: the nearest one of the topic, moved there.
// The caller holds the folds' lock until it has used it.
func (v *Viewer) foldAt(ctx context.Context, seq event.Seq, gate eventlog.Gate) (*event.Session, error) {
	t := v.topic
	s, err := v.movedFold(ctx, t.fold.take(seq), seq, gate) // not kept if it fails half way
	for try := 1; try < foldTries && errors.Is(err, eventlog.ErrGone); try++ {
		s, err = v.movedFold(ctx, nil, seq, gate)
	}
	if err != nil {
		return nil, err
	}
	t.fold.folds = append(t.fold.folds, s)
	if len(t.fold.folds) > foldsKept {
		t.fold.folds = slices.Delete(t.fold.folds, 0, 1) // not used for longest
	}
	t.weighFolds()
	return s, nil
}

// foldTries is how often a fold is taken from the stored snapshot. The log may lack the
// events that follow it, if they were purged since: then there is a newer snapshot that
// has them.
const foldTries = 4

// movedFold takes a fold, or else the stored one, to a seq.
func (v *Viewer) movedFold(ctx context.Context, s *event.Session, seq event.Seq, gate eventlog.Gate) (*event.Session, error) {
	if s == nil {
		var err error
		if s, err = v.hub.log.LoadAt(ctx, v.topic.key, seq, gate); err != nil {
			return nil, err
		}
	}
	return s, v.moveFold(ctx, s, seq, gate)
}

// take takes out the fold that has the shortest way to a seq; nil if all are beyond it.
func (f *lateFold) take(seq event.Seq) *event.Session {
	best := -1
	for i, s := range f.folds {
		if s.Seq <= seq && (best < 0 || s.Seq > f.folds[best].Seq) {
			best = i
		}
	}
	if best < 0 {
		return nil
	}
	s := f.folds[best]
	f.folds = slices.Delete(f.folds, best, best+1)
	return s
}

// moveFold applies to a fold the events through seq, from the ring or else the log.
func (v *Viewer) moveFold(ctx context.Context, s *event.Session, seq event.Seq, gate eventlog.Gate) error {
	var into [aFew]*entry
	for s.Seq < seq {
		o := v.topic.look(s.Seq, into[:])
		if len(o.entries) == 0 {
			return v.catchFoldUp(ctx, s, seq, o.head, gate)
		}
		for _, e := range o.entries {
			if e.Seq > seq {
				return nil
			}
			if err := s.Apply(e.Event); err != nil {
				return err
			}
		}
	}
	return nil
}

// catchFoldUp applies to a fold the events through seq, from the log. A viewer may have
// read further there than its topic has come.
func (v *Viewer) catchFoldUp(ctx context.Context, s *event.Session, seq event.Seq, known eventlog.Head, gate eventlog.Gate) error {
	if known.Seq < seq {
		var err error
		if known, err = v.hub.log.Head(ctx, v.topic.key); err != nil {
			return err
		}
	}
	return v.hub.log.CatchTo(ctx, v.topic.key, s, seq, known, gate)
}

// beyond returns a fold that stands at a seq or further on, if there is one.
func (f *lateFold) beyond(seq event.Seq) *event.Session {
	if i := slices.IndexFunc(f.folds, func(s *event.Session) bool { return s.Seq >= seq }); i >= 0 {
		return f.folds[i]
	}
	return nil
}

// atHand reports whether an event that is encoded with a fold can be sent in a view at
// once: it was encoded, or the ring has all events between a fold and it. Not if it is
// large: that may have to wait for its turn, and who has a goroutine need not copy it.
func (t *topic) atHand(e *entry, in view) bool {
	if _, made := e.made(in); made {
		return true
	}
	f := &t.fold
	if !f.mu.TryLock() {
		return false
	}
	defer f.mu.Unlock()
	if w := f.made.find(e.Seq, in); w != nil || f.size > smallFold {
		return w != nil && sizeOf(w.messages) < flushAt
	}
	return t.reaches(e)
}

// reaches reports whether the ring has all events between a fold and an event. The caller
// holds the folds' lock.
func (t *topic) reaches(e *entry) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(t.fold.folds, func(s *event.Session) bool { return t.ring.base <= s.Seq && s.Seq < e.Seq })
}

// keepFold puts off the time at which the folds are dropped. The caller holds their lock.
func (t *topic) keepFold() {
	if t.fold.drop == nil {
		t.fold.drop = time.AfterFunc(foldKept, t.dropFold)
	} else {
		t.fold.drop.Reset(foldKept)
	}
}

func (t *topic) dropFold() {
	t.fold.mu.Lock()
	defer t.fold.mu.Unlock()
	t.forgetFold()
	t.fold.drop = nil
}

// spareFold drops the folds unless somebody uses them.
func (t *topic) spareFold() {
	if t.fold.mu.TryLock() {
		defer t.fold.mu.Unlock()
		t.forgetFold()
	}
}

// forgetFold drops the folds and what was encoded with them. The caller holds their lock.
func (t *topic) forgetFold() {
	t.hub.rings.used.Add(int64(-t.fold.made.size))
	t.fold.folds, t.fold.made = nil, encodings{}
	t.weighFolds()
}

// weighFolds counts what the folds take. The caller holds their lock.
func (t *topic) weighFolds() {
	n := 0
	for _, s := range t.fold.folds {
		n += s.Size()
	}
	t.hub.rings.used.Add(int64(n - t.fold.size))
	t.fold.size = n
}

// remember keeps an event as a view sends it for the other viewers.
func (t *topic) remember(seq event.Seq, w *wire) {
	before := t.fold.made.size
	t.fold.made.add(seq, w, t.hub.opts.RingBytes/4)
	t.hub.rings.used.Add(int64(t.fold.made.size - before))
	t.hub.keepWithin()
}
