package eventlog

import (
	"context"
	"fmt"

	"github.com/runlog-dev/runlog/event"
)

// LoadAt returns a fold of the session's events that stands at seq or before it:
// the stored snapshot if it is not newer, else the fold of nothing. CatchTo takes
// it on.
func (l *Log) LoadAt(ctx context.Context, k Key, seq event.Seq) (*event.Session, error) {
	if s := l.snapshot(ctx, k, Head{Seq: seq}); s != nil {
		return s, nil
	}
	return event.NewSession(k.Session), ctx.Err()
}

// CatchTo applies to a fold what it lacks through seq, which is at most head's. It is
// for what viewers are told: an event that cannot be read is passed over, as it is
// wherever else they see it. ErrGone if the log begins later.
func (l *Log) CatchTo(ctx context.Context, k Key, s *event.Session, seq event.Seq, head Head) error {
	return l.apply(ctx, k, s, seq, head, Frame.readable)
}

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
