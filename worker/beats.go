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
	return every(min(5*time.Second, t.w.log.Lease()/6), func() {
		if ctx.Err() != nil {
			return
		}
		if err := t.w.log.Beat(t.key, t.beatNow()); err != nil {
			t.log.Debug("beat", "err", err)
		}
	})
}

// every calls do again and again, with pauses of d before and between, until
// stop, which waits for a call that is going on. No goroutine is held in the
// pauses: a worker has thousands of these.
func every(d time.Duration, do func()) (stop func()) {
	var mu sync.Mutex // held while do is called
	var timer *time.Timer
	stopped := false
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(d, func() {
		mu.Lock()
		defer mu.Unlock()
		if !stopped {
			do()
			timer.Reset(d)
		}
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		stopped = true
		timer.Stop()
	}
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
