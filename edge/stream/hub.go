// Package stream shows sessions' logs to any number of viewers.
//
//	eventlog.Watch --frame--> topic (ring, shared bytes) --news--> viewer --> client
//	                                    log --page------------------^
//
// A viewer is a position in a session. It takes what follows from the ring of its
// session's topic, or from the log if the ring has moved on, and waits when there is
// nothing. Each event is encoded once for all viewers of the same dialect, transport
// and audience. There is no queue per viewer, so a client that stops reading costs no
// memory; after a deadline it is cut off and comes back with its last id, here or on
// any other edge.
//
// A viewer runs in the goroutine of its HTTP handler (follow.go), or on plain HTTP/1.1
// without a goroutine while it has nothing to show: then it is parked (parked.go), and
// a flusher shows it what comes (flusher.go). Both use the same steps: look (topic.go),
// show (show.go), and the encodings that viewers share (entry.go, fold.go).
package stream

import (
	"container/list"
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/runlog-dev/runlog/edge/room"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// A Hub has the topics of a process. It is safe for concurrent use.
type Hub struct {
	log     *eventlog.Log
	live    *eventlog.Live
	opts    Options
	pages   turns     // of viewers that read the log or wait for it
	loads   loads     // of whole conversations
	stands  stands    // of snapshots that viewers share
	replays room.Room // what viewers that catch up have read
	rings   rings
	pins    pins      // large events that viewers send
	began   time.Time // when clock was 0
	waiting queue     // rows of parked viewers that have something to do
	lot     lot       // of the parked viewers

	prefetches chan struct{} // bounds how many pages are read before they are needed

	mu     sync.Mutex
	topics map[eventlog.Key]*topic
}

// New returns a hub on a log and its follower, which somebody runs.
func New(log *eventlog.Log, live *eventlog.Live, opts Options) *Hub {
	opts.setDefaults()
	h := &Hub{log: log, live: live, opts: opts, began: time.Now(), topics: map[eventlog.Key]*topic{},
		prefetches: make(chan struct{}, opts.PageReaders),
		replays:    room.Room{Most: opts.Budget.Replays, Ledger: opts.Ledger, UpTo: opts.Budget.Requests},
		pins:       pins{room: room.Room{Most: opts.Budget.Replays, Ledger: opts.Ledger}, of: map[*entry]*list.Element{}}}
	h.pages.init(opts.PageReaders)
	h.loads.init(&opts)
	h.rings.init(&opts)
	h.waiting.init(max(2, runtime.GOMAXPROCS(0)))
	h.lot.parked = map[uint64]*Parked{}
	return h
}

// clock is the time since the hub began.
func (h *Hub) clock() time.Duration { return time.Since(h.began) }

// join returns the session's topic and counts a viewer in, which has seen the events up
// to a position. It opens the topic if it is not there.
func (h *Hub) join(ctx context.Context, k eventlog.Key, seen event.Seq) (*topic, error) {
	for {
		t, first := h.enter(k)
		if first {
			h.open(ctx, t, seen)
		}
		err := t.await(ctx)
		if err == nil {
			return t, nil
		}
		h.leave(t)
		if ctx.Err() != nil { // why, is what counts
			return nil, context.Cause(ctx)
		}
		if !errors.Is(err, errAbandoned) {
			return nil, err
		}
	}
}

// enter counts a viewer in. The first one has to open the topic.
func (h *Hub) enter(k eventlog.Key) (t *topic, first bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t = h.topics[k]
	if first = t == nil; first {
		t = &topic{hub: h, key: k, ready: make(chan struct{})}
		h.topics[k] = t
	}
	t.viewers++
	t.alone.Store(t.viewers == 1)
	if t.idle != nil {
		t.idle.Stop()
		t.idle = nil
	}
	return t, first
}

// openTimeout bounds the opening of a topic.
const openTimeout = 10 * time.Second

// errAbandoned: the viewer that was opening the topic has left, and nobody else waited
// for it at that time. Whoever has come since tries again.
var errAbandoned = errors.New("the client left before its session was open")

// open opens a topic in the goroutine of its first viewer. If that viewer leaves, the
// opening is given up, unless others wait for the topic by then.
func (h *Hub) open(asker context.Context, t *topic, seen event.Seq) {
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	defer context.AfterFunc(asker, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if t.viewers == 1 {
			cancel()
		}
	})()
	watch, err := (*eventlog.Watch)(nil), errBroken
	defer func() { h.opened(t, watch, err) }() // whatever happens: others wait
	if watch, err = t.open(ctx, seen); err != nil && ctx.Err() == context.Canceled {
		err = errAbandoned
	}
}

// errBroken is why a topic is not open if opening it panicked.
var errBroken = errors.New("the session could not be opened")

// opened tells all who wait for a topic what came of it.
func (h *Hub) opened(t *topic, watch *eventlog.Watch, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil && h.topics[t.key] != t {
		watch.Close()
		watch, err = nil, errClosed
	}
	t.watch, t.err, t.opened = watch, err, true
	if err != nil {
		h.remove(t)
	}
	close(t.ready)
}

var errClosed = errors.New("the edge is stopping")

// leave counts a viewer out. A topic without viewers lingers for those who come back. One
// without events goes at once, so that to ask for sessions that do not exist leaves no
// trace.
func (h *Hub) leave(t *topic) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t.viewers--
	t.alone.Store(t.viewers == 1)
	if t.viewers > 0 || h.topics[t.key] != t {
		return
	}
	if t.opened && !t.hasEvents() {
		h.remove(t)
		return
	}
	t.idle = time.AfterFunc(h.opts.Linger, func() { h.expire(t) })
}

// HasEvents reports whether the session is watched here and is known to have
// events. False says nothing.
func (h *Hub) HasEvents(k eventlog.Key) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[k]
	return t != nil && t.opened && t.hasEvents()
}

// expire removes a topic that has lingered.
func (h *Hub) expire(t *topic) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case t.viewers > 0:
	case !t.opened: // its first viewer did not wait
		t.idle = time.AfterFunc(h.opts.Linger, func() { h.expire(t) })
	default:
		h.remove(t)
	}
}

// drop makes the next viewer open a new topic.
func (h *Hub) drop(t *topic) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.remove(t)
}

// remove takes a topic out and closes its watch. The caller holds mu.
func (h *Hub) remove(t *topic) {
	if h.topics[t.key] != t {
		return
	}
	delete(h.topics, t.key)
	t.retire()
	if t.idle != nil {
		t.idle.Stop()
	}
	if t.watch != nil {
		t.watch.Close()
	}
}

// WriteTimeout is how long a client may not take what is written.
func (h *Hub) WriteTimeout() time.Duration { return h.opts.WriteTimeout }

// Close ends all watches. Viewers that are still there get nothing new.
func (h *Hub) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.topics {
		h.remove(t)
	}
}

// Busy reports whether Options.PageQueue viewers read the log or wait for it, some of
// them the tenant's own: then more of the tenant's had better go to another edge.
func (h *Hub) Busy(tenant string) bool { return h.pages.full(tenant, h.opts.PageQueue) }

// Topics is the number of sessions watched.
func (h *Hub) Topics() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.topics)
}
