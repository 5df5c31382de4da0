package eventlog

import (
	"context"
	"errors"
	"fmt"

	"github.com/runlog-dev/runlog/event"
)

// A Gate is called each time before a load takes more into memory, with about how many
// bytes of a snapshot's JSON or of events it will have then. It may have the load wait, or
// fail with its error. A nil Gate lets all pass.
type Gate func(ctx context.Context, bytes int) error

func (g Gate) pass(ctx context.Context, bytes int) error {
	if g == nil {
		return nil
	}
	return g(ctx, bytes)
}

// Load returns the session's fold at the head that the leader gives now. A session
// without events gives an empty fold and the zero Head. It fails at an event that cannot
// be read: whoever goes on with the session must know all of it. ErrGone if the log begins
// behind the stored snapshot, ErrUnavailable if that cannot be read now and is needed.
func (l *Log) Load(ctx context.Context, k Key) (*event.Session, Head, error) {
	return l.LoadThrough(ctx, k, nil)
}

// LoadThrough is Load through a gate.
func (l *Log) LoadThrough(ctx context.Context, k Key, gate Gate) (*event.Session, Head, error) {
	s, head, err := l.load(ctx, k, gate, l.snapshotEntry)
	for try := 1; try < loadTries && errors.Is(err, ErrGone) || try == 1 && errors.Is(err, errAway); try++ {
		s, head, err = l.load(ctx, k, gate, l.leaderSnapshot)
	}
	return s, head, err
}

// loadTries is how often a load is tried: while a snapshot and the events after it are
// read, a newer one may be stored and events purged that only the older one needs. Or a
// replica may know the older one alone.
const loadTries = 5

// errAway: the log has been purged of what only the stored snapshot has, and that cannot be
// read now.
var errAway = fmt.Errorf("%w: the snapshot that has the session's beginning cannot be read", ErrUnavailable)

// load is one try, with the snapshot that stored gives.
func (l *Log) load(ctx context.Context, k Key, gate Gate, stored func(context.Context, Key) ([]byte, error)) (*event.Session, Head, error) {
	head, err := l.Head(ctx, k)
	if err != nil {
		return nil, Head{}, err
	}
	if head.Seq == 0 {
		return event.NewSession(k.Session), head, nil
	}
	s, away, err := l.snapshot(ctx, k, head.Seq, gate, stored)
	if err != nil {
		return nil, Head{}, err
	}
	if s == nil {
		s = event.NewSession(k.Session)
	}
	if err := l.apply(ctx, k, s, head.Seq, head, Frame.Events, gate); err != nil {
		if errors.Is(err, ErrGone) && away != nil {
			err = fmt.Errorf("load %s: %w: %w", k, errAway, away)
		}
		return nil, Head{}, err
	}
	return s, head, nil
}

// LoadAt returns a fold of the session that stands at seq or before it: the stored
// snapshot if it is not newer, else the fold of no events. CatchTo takes it on to seq.
func (l *Log) LoadAt(ctx context.Context, k Key, seq event.Seq, gate Gate) (*event.Session, error) {
	if s, _, err := l.snapshot(ctx, k, seq, gate, l.snapshotEntry); s != nil || err != nil {
		return s, err
	}
	return event.NewSession(k.Session), ctx.Err()
}

// CatchTo applies to a fold the events that it lacks through seq, which is head's or
// before. It is for what viewers are shown: an event that cannot be read is passed over,
// as it is in their streams. ErrGone if the log no longer holds the events.
func (l *Log) CatchTo(ctx context.Context, k Key, s *event.Session, seq event.Seq, head Head, gate Gate) error {
	return l.apply(ctx, k, s, seq, head, Frame.readable, gate)
}

// apply applies to a fold the events that it lacks through seq.
func (l *Log) apply(ctx context.Context, k Key, s *event.Session, seq event.Seq, head Head, decode func(Frame) ([]event.Event, error), gate Gate) error {
	size := 0
	for f, err := range l.Read(ctx, k, s.Seq, head) {
		if err != nil {
			return err
		}
		size += len(f.Data)
		if err := gate.pass(ctx, size); err != nil {
			return err
		}
		events, err := decode(f)
		if err != nil {
			return err
		}
		for _, e := range events {
			if e.Seq > seq {
				return nil
			}
			if e.Seq <= s.Seq {
				continue
			}
			if err := s.Apply(e); err != nil {
				return fmt.Errorf("fold %s: %w", k, err)
			}
		}
	}
	return nil
}
