package stream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// foldKept is how long a topic keeps the fold that its dialects asked for last:
// what needs it comes in bursts, and the fold is as large as the conversation.
const foldKept = 2 * time.Second

// A lateFold is a fold of a topic's session that follows what viewers show.
type lateFold struct {
	mu   sync.Mutex // held while it is read from the log, and while events are encoded with it
	s    *event.Session
	drop *time.Timer
}

// wire returns the entry's messages in the viewer's view; where the dialect needs
// the session before the event it is read, once for all viewers of the view.
func (v *Viewer) wire(ctx context.Context, e *entry) ([][]byte, error) {
	if v.encoder != nil && !e.hidden {
		return e.frame(v.view, v.encoder.Next(e.Event, e.line, v.view.audience)), nil
	}
	d, ok := v.view.dialect.(dialect.Folding)
	if !ok || e.hidden || !d.Folds(e.Event) {
		return e.wire(v.view), nil
	}
	f := &v.topic.fold
	f.mu.Lock()
	defer f.mu.Unlock()
	if messages, ok := e.made(v.view); ok {
		return messages, nil
	}
	if err := v.foldThrough(ctx, e.Seq-1); err != nil {
		return nil, fmt.Errorf("fold events through %d: %w", e.Seq-1, err)
	}
	return e.keep(v.view, d.EventAfter(f.s, e.Event, e.line, v.view.audience)), nil
}

// foldThrough moves the topic's fold to a seq. The caller holds its lock.
func (v *Viewer) foldThrough(ctx context.Context, seq event.Seq) error {
	t := v.topic
	if t.fold.drop == nil {
		t.fold.drop = time.AfterFunc(foldKept, t.dropFold)
	} else {
		t.fold.drop.Reset(foldKept)
	}
	s := t.fold.s
	t.fold.s = nil // half done is not kept
	if s == nil || s.Seq > seq {
		var err error
		if s, err = t.hub.log.LoadAt(ctx, t.key, seq); err != nil {
			return err
		}
	}
	if err := v.advance(ctx, s, seq); err != nil {
		return err
	}
	t.fold.s = s
	return nil
}

// advance applies what the ring or else the log has between a fold and a seq.
func (v *Viewer) advance(ctx context.Context, s *event.Session, seq event.Seq) error {
	var ring [aFew]*entry
	for s.Seq < seq {
		o := v.topic.look(s.Seq, ring[:])
		if len(o.entries) == 0 {
			return v.hub.log.CatchTo(ctx, v.topic.key, s, seq, o.head)
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

// reaches reports whether the fold is at hand and gets to a seq by what the ring
// has.
func (f *lateFold) reaches(t *topic, seq event.Seq) bool {
	if !f.mu.TryLock() {
		return false
	}
	defer f.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	return f.s != nil && f.s.Seq <= seq && f.s.Seq >= t.ring.base
}

func (t *topic) dropFold() {
	t.fold.mu.Lock()
	defer t.fold.mu.Unlock()
	t.fold.s, t.fold.drop = nil, nil
}

// present shows events; a client for whom the session before them is no longer
// known starts from a snapshot.
func (v *Viewer) present(ctx context.Context, out *output, list []*entry, tick *time.Timer) (verdict, error) {
	how, err := v.show(ctx, out, list)
	if errors.Is(err, eventlog.ErrGone) {
		return more, v.reset(ctx, out, tick)
	}
	return how, err
}
