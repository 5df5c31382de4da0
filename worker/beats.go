package worker

import (
	"context"
	"sync"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// beatState is what the next beat tells of the run.
type beatState struct {
	mu    sync.Mutex
	runID string
	since time.Time
}

func (b *beatState) begin(runID string, since time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.runID, b.since = runID, since
}

func (b *beatState) run() (string, time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.runID, b.since
}

// beat tells viewers and other workers every few seconds that the session's
// owner lives, until the returned func is called.
func (t *turn) beat(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	every := min(5*time.Second, t.w.log.Lease()/6)
	go func() {
		defer close(done)
		for pause(ctx, every) == nil {
			if err := t.w.log.Beat(t.key, t.beatNow()); err != nil {
				t.log.Debug("beat", "err", err)
			}
		}
	}()
	return func() { cancel(); <-done }
}

func (t *turn) beatNow() eventlog.Beat {
	b := eventlog.Beat{Worker: t.w.id, Head: t.writer.Head().Seq}
	runID, since := t.beatAt.run()
	if runID == "" {
		return b
	}
	b.RunID, b.ElapsedMS = runID, time.Since(since).Milliseconds()
	_ = t.With(func(s *event.Session) []event.Event {
		b.Status = s.Run(runID).Status
		return nil
	})
	return b
}
