package agent

import (
	"context"
	"sync"
)

// A floor is shared by a run and all that run under it. Their models and tools
// work at the same time, but one of them speaks at a time: a log has one answer
// that is being written, so that every reader of it needs to follow one only.
type floor struct {
	turn     chan struct{} // full while somebody speaks, or a run begins
	spending sync.Mutex    // held from a look at the budgets to what is reserved
}

func newFloor() *floor { return &floor{turn: make(chan struct{}, 1)} }

func (f *floor) take(ctx context.Context) error {
	select {
	case f.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (f *floor) leave() { <-f.turn }

// speak waits until the run may speak, which it may until it hushes.
func (r *Run) speak(ctx context.Context) error {
	if r.speaks {
		return nil
	}
	err := r.floor.take(ctx)
	r.speaks = err == nil
	return err
}

// maySpeak is speak without waiting.
func (r *Run) maySpeak() bool {
	if !r.speaks {
		select {
		case r.floor.turn <- struct{}{}:
			r.speaks = true
		default:
		}
	}
	return r.speaks
}

func (r *Run) hush() {
	if r.speaks {
		r.speaks = false
		r.floor.leave()
	}
}
