package eventlog

import (
	"context"
	"errors"
	"fmt"

	"github.com/runlog-dev/runlog/event"
)

// Load returns the session's fold at the head that the leader gives now. A
// session without events gives an empty fold and the zero Head. ErrGone if the log
// begins behind the stored snapshot.
func (l *Log) Load(ctx context.Context, k Key) (*event.Session, Head, error) {
	s, head, err := l.load(ctx, k, l.snapshotEntry)
	for try := 1; try < loadTries && errors.Is(err, ErrGone); try++ {
		s, head, err = l.load(ctx, k, l.leaderSnapshot)
	}
	return s, head, err
}

// loadTries: while a snapshot and what follows it are read, a newer one may be stored
// and what only the older one needs purged; or a replica knows the older one alone.
const loadTries = 5

func (l *Log) load(ctx context.Context, k Key, entry func(context.Context, Key) ([]byte, error)) (*event.Session, Head, error) {
	head, err := l.Head(ctx, k)
	if err != nil {
		return nil, Head{}, err
	}
	if head.Seq == 0 {
		return event.NewSession(k.Session), head, nil
	}
	s := l.snapshot(ctx, k, head, entry)
	if s == nil {
		s = event.NewSession(k.Session)
	}
	if err := l.Catch(ctx, k, s, head); err != nil {
		return nil, Head{}, err
	}
	return s, head, nil
}

// LoadAt returns a fold of the session that stands at seq or before it: the stored
// snapshot if it is not newer, else the fold of no events. CatchTo takes it on to seq.
func (l *Log) LoadAt(ctx context.Context, k Key, seq event.Seq) (*event.Session, error) {
	if s := l.snapshot(ctx, k, Head{Seq: seq}, l.snapshotEntry); s != nil {
		return s, nil
	}
	return event.NewSession(k.Session), ctx.Err()
}

// Catch applies to a fold the events that it lacks up to head. It fails at an event that
// cannot be read: whoever goes on with the session must know all of it.
func (l *Log) Catch(ctx context.Context, k Key, s *event.Session, head Head) error {
	return l.apply(ctx, k, s, head.Seq, head, Frame.Events)
}

// CatchTo applies to a fold the events that it lacks through seq, which is head's or
// before. It is for what viewers are shown: an event that cannot be read is passed over,
// as it is in their streams. ErrGone if the log no longer holds the events.
func (l *Log) CatchTo(ctx context.Context, k Key, s *event.Session, seq event.Seq, head Head) error {
	return l.apply(ctx, k, s, seq, head, Frame.readable)
}

// apply applies to a fold the events that it lacks through seq.
func (l *Log) apply(ctx context.Context, k Key, s *event.Session, seq event.Seq, head Head, decode func(Frame) ([]event.Event, error)) error {
	for f, err := range l.Read(ctx, k, s.Seq, head) {
		if err != nil {
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
