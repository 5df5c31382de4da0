package stream

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// A lot knows all viewers that are parked, whether they sit in a row or are awake.
type lot struct {
	open atomic.Bool // viewers may be parked
	poll *poll       // set before it opens

	mu      sync.Mutex
	parked  map[uint64]*Parked
	last    uint64        // id that was given out
	closing error         // why all of them have to go; nil: they need not
	empty   chan struct{} // closed when there are none; nil if nobody waits
}

// Parks reports whether a viewer that has nothing to show can do without a
// goroutine here.
func (h *Hub) Parks() bool { return h.lot.open.Load() }

// enter counts a viewer in.
func (l *lot) enter(p *Parked) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	p.id, p.left = l.last, l.closing
	if p.left == nil {
		p.left = context.Cause(p.until)
	}
	l.parked[p.id] = p
}

// forget takes a viewer out whose stream is over, or was never parked.
func (l *lot) forget(p *Parked) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.parked, p.id)
	if len(l.parked) == 0 && l.empty != nil {
		close(l.empty)
		l.empty = nil
	}
}

func (l *lot) find(id uint64) *Parked {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.parked[id]
}

// Abort ends all streams that are parked now, and all that will be, with cause. For each
// stream that is parked now inTurn is called with what ends it: it calls that at once or
// later, so that the streams do not all end at the same moment.
func (h *Hub) Abort(cause error, inTurn func(end func())) {
	h.lot.close(cause)
	for _, p := range h.lot.those(func(*Parked) bool { return true }) {
		inTurn(func() { p.leave(cause) })
	}
}

// AbortUntil is Abort for the streams that are parked until a context ends, which it has:
// with its cause.
func (h *Hub) AbortUntil(until context.Context, inTurn func(end func())) {
	cause := context.Cause(until)
	for _, p := range h.lot.those(func(p *Parked) bool { return p.until == until }) {
		inTurn(func() { p.leave(cause) })
	}
}

func (l *lot) close(cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closing = cause
}

// those are the viewers that are parked now of which is says so.
func (l *lot) those(is func(*Parked) bool) (all []*Parked) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.parked {
		if is(p) {
			all = append(all, p)
		}
	}
	return all
}

// AwaitParked returns nil when no stream is parked, or an error that says how many are
// when ctx ends.
func (h *Hub) AwaitParked(ctx context.Context) error {
	select {
	case <-h.lot.emptied():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d parked streams have not ended: %w", h.Parked(), ctx.Err())
	}
}

// emptied returns what is closed when no viewer is parked.
func (l *lot) emptied() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.empty == nil {
		l.empty = make(chan struct{})
	}
	empty := l.empty
	if len(l.parked) == 0 {
		close(l.empty)
		l.empty = nil
	}
	return empty
}

// Parked is the number of streams that are parked.
func (h *Hub) Parked() int {
	h.lot.mu.Lock()
	defer h.lot.mu.Unlock()
	return len(h.lot.parked)
}

// Run lets viewers be parked until ctx ends, then ends those that are, and returns
// ctx's error. A hub that does not run gives every viewer a goroutine, as does one on a
// system without epoll.
func (h *Hub) Run(ctx context.Context) error {
	p, err := newPoll()
	if err != nil {
		h.opts.Logger.Warn("every stream has a goroutine", "err", err)
		<-ctx.Done()
		return ctx.Err()
	}
	var wg sync.WaitGroup
	wg.Go(func() { p.run(h.clientLeft) })
	for range h.waiting.flushers {
		wg.Go(h.newFlusher().run)
	}
	h.lot.poll = p
	h.lot.open.Store(true)
	h.remindAll(ctx)
	h.lot.open.Store(false)
	h.Abort(errClosed, func(end func()) { end() })
	<-h.lot.emptied()
	h.waiting.close()
	p.close()
	wg.Wait()
	return ctx.Err()
}

// clientLeft ends the stream of a parked viewer.
func (h *Hub) clientLeft(id uint64) {
	if p := h.lot.find(id); p != nil {
		p.leave(context.Canceled)
	}
}

// remindAll has parked viewers visited that are owed a sign of life, until ctx ends. One
// clock serves all of them.
func (h *Hub) remindAll(ctx context.Context) {
	every := min(h.opts.Ping, h.opts.Heartbeat, h.opts.CheckHead) / 10
	tick := time.NewTicker(min(max(every, 5*time.Millisecond), time.Second))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			h.remind(h.clock())
		}
	}
}

func (h *Hub) remind(now time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	share := h.rings.share(len(h.topics))
	for _, t := range h.topics {
		t.remind(now, share)
	}
}
