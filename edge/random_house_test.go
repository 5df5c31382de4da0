package edge_test

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// keepHouse stores a snapshot or purges what is older than one, as retention may; or somebody
// writes who does not know that he must not.
func (a *author) keepHouse(ctx context.Context, head eventlog.Head) error {
	switch n := a.random.IntN(30); {
	case n == 0:
		return a.save(ctx)
	case n == 4:
		return a.intrude(ctx, head)
	case n < 4 && a.purges && a.stands > 0:
		return a.purge(ctx, 1+event.Seq(a.random.IntN(int(min(a.stands+1, head.First)))))
	}
	return nil
}

// save stores a snapshot.
func (a *author) save(ctx context.Context) error {
	s, at, err := a.log.Load(ctx, a.key)
	if err != nil {
		return err
	}
	a.note(func() { a.saved = max(a.saved, s.Seq) })
	if err := a.log.SaveSnapshot(ctx, a.key, s.Encode(), at.Seq); err != nil {
		return err
	}
	a.stands = max(a.stands, s.Seq)
	return nil
}

// intrude writes as one that has slept through a takeover: nothing of that gets in.
func (a *author) intrude(ctx context.Context, head eventlog.Head) error {
	head.Pos--
	w := a.log.Writer(a.key, head)
	defer w.Close()
	_, err := w.Append(hiddenEvent())
	if err == nil {
		err = w.Sync(ctx)
	}
	if !errors.Is(err, eventlog.ErrFenced) {
		return fmt.Errorf("a writer that is late: %w", err)
	}
	return nil
}

// lose takes frames off the end of the log, of which there may be a snapshot: but then the log has
// its beginning.
func (a *author) lose(ctx context.Context) error {
	if a.gone == 0 && a.random.IntN(2) == 0 {
		if err := a.save(ctx); err != nil {
			return err
		}
	}
	most := 1 + event.Seq(a.random.IntN(len(a.events)))
	least := a.events[slices.IndexFunc(a.events, func(e event.Event) bool { return e.Type == event.RunStarted })].Seq // else the run is forgotten
	if a.gone > 0 {
		least = max(least, a.stands) // else nothing has the beginning
	}
	head, err := a.log.Head(ctx, a.key)
	for err == nil && head.Seq > most && head.First > least {
		if err = a.stream.DeleteMsg(ctx, head.Pos); err == nil {
			head, err = a.log.Head(ctx, a.key)
		}
	}
	a.cut(head.Seq)
	if a.saved > head.Seq {
		a.saved, a.stands = 0, 0
	}
	a.last = head
	return err
}

// goOn ends what was under way when the log was lost.
func (a *author) goOn(ctx context.Context, l *eventlog.Log) error {
	a.log = l
	w := l.Writer(a.key, a.last)
	defer func() { a.last = w.Head() }()
	defer w.Close()
	if a.end(a.runs[0]) == 0 {
		if err := a.add(w, []event.Event{of(a.runs[0], event.RunFailed, event.RunFailedData{Code: event.CodeInternal, Message: "lost"})}); err != nil {
			return err
		}
	}
	return a.sync(ctx, w)
}

// purge removes the frames before the one that has an event.
func (a *author) purge(ctx context.Context, before event.Seq) error {
	if before <= a.gone+1 {
		return nil
	}
	head, err := a.log.Head(ctx, a.key)
	if err != nil {
		return err
	}
	for f, err := range a.log.Read(ctx, a.key, before-1, head) {
		if err != nil {
			return err
		}
		a.note(func() { a.gone = max(a.gone, f.First-1) })
		_ = a.stream.Purge(ctx, jetstream.WithPurgeSubject("log.0.default."+a.key.Session), jetstream.WithPurgeSequence(f.Pos)) // or not, if the log is away
		return nil
	}
	return nil
}
