package eventlog

import (
	"context"
	"errors"
	"fmt"

	"github.com/runlog-dev/runlog/event"
)

// Epoch reads the epoch that the log is in from the leader: that of what is appended now,
// by processes that began after the latest restore.
func (l *Log) Epoch(ctx context.Context) (event.Epoch, error) {
	there, err := l.installed(ctx)
	return there.Restored, err
}

// SameEpoch returns ErrRestored if the log was restored since this process opened it: what
// the process remembers may be of what was lost. Any other error says nothing.
func (l *Log) SameEpoch(ctx context.Context) error {
	switch now, err := l.Epoch(ctx); {
	case errors.Is(err, ErrNotFound): // the record was there when the process began
		return fmt.Errorf("%w (the install record is gone)", ErrRestored)
	case err != nil:
		return err
	case now != l.epoch:
		return ErrRestored
	}
	return nil
}

// Holds reports whether an event that was once at seq is the one that is there now, by the
// epoch that it had: whether who has seen the session up to it has seen what the log has.
// head is the end of the log now.
func (l *Log) Holds(ctx context.Context, k Key, seq event.Seq, epoch event.Epoch, head Head) (bool, error) {
	switch {
	case seq == 0:
		return true, nil
	case seq > head.Seq || epoch > head.Epoch: // epochs do not fall along a log
		return false, nil
	case epoch == head.Epoch: // one epoch has one line of events
		return true, nil
	}
	frames, err := l.Page(ctx, k, Head{Seq: seq - 1}, head, 1)
	if errors.Is(err, ErrGone) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return frames[0].First <= seq && frames[0].Epoch == epoch, nil
}
