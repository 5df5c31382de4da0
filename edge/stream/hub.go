// Package stream shows sessions' logs to any number of viewers.
//
//	eventlog.Watch --frame--> topic (ring, shared bytes) --news--> viewer --> client
//	                                    log --page------------------^
//
// A viewer is a position and nothing more: it takes what follows from the ring
// of its session's topic, or from the log at its own pace if the ring has moved
// on, and waits when there is nothing. Each event is encoded once for all viewers
// of the same dialect, transport and audience. There is no queue per viewer, so
// a client that stops reading costs no memory; after a deadline it is cut off and
// comes back with its last id, here or on any other edge.
package stream

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// Options of a Hub; the zero value works.
type Options struct {
	RingBytes    int           // about what a topic keeps in memory, default 16 MiB
	RingEvents   int           // events a topic keeps, default 16384
	RingTotal    int           // about what all topics keep together, default 64 MiB
	Linger       time.Duration // how long a topic without viewers stays, default 10 s
	PageBytes    int           // what a viewer reads from the log at once, default 256 KiB
	PageReaders  int           // reads of the log at once, default 32
	PageQueue    int           // viewers that read the log or wait for their turn, before Busy says so, default 10,000
	Ping         time.Duration // silence after which a stream shows that it is alive, default 15 s
	Heartbeat    time.Duration // the same while a run is under way, default 5 s
	CheckHead    time.Duration // silence of a session after which the head of its log is read, default 15 s
	WriteTimeout time.Duration // how long a client may not take what is written, default 30 s
	Logger       *slog.Logger
	Observe      Observer
}

// An Observer is told what viewers get, for metrics. Any field may be nil.
type Observer struct {
	Sent     func(events, bytes int)
	Lag      func(time.Duration)     // from an event's time to its write, of live ones
	Replayed func(events, bytes int) // what a viewer got before it had caught up
	Paged    func(events, bytes int) // read from the log for one viewer
	Reset    func()
	Woken    func() // a parked viewer has to read the log, or to wait for its client
}

func (o *Options) setDefaults() {
	o.RingBytes = cmp.Or(o.RingBytes, 16<<20)
	o.RingEvents = cmp.Or(o.RingEvents, 16384)
	o.RingTotal = cmp.Or(o.RingTotal, 64<<20)
	o.Linger = cmp.Or(o.Linger, 10*time.Second)
	o.PageBytes = cmp.Or(o.PageBytes, 256<<10)
	o.PageReaders = cmp.Or(o.PageReaders, 32)
	o.PageQueue = cmp.Or(o.PageQueue, 10_000)
	o.Ping = cmp.Or(o.Ping, 15*time.Second)
	o.Heartbeat = cmp.Or(o.Heartbeat, 5*time.Second)
	o.CheckHead = cmp.Or(o.CheckHead, 15*time.Second)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, 30*time.Second)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// A Hub has the topics of a process. It is safe for concurrent use.
type Hub struct {
	log     *eventlog.Log
	live    *eventlog.Live
	opts    Options
	pages   turns // of viewers that read the log or wait for it
	rings   budget
	began   time.Time
	waiting queue // rows of parked viewers that have something to do
	lot     lot
	// prefetches bounds how many are read before they are needed.
	prefetches chan struct{}

	mu     sync.Mutex
	topics map[eventlog.Key]*topic
}

// New returns a hub on a log and its follower, which somebody runs.
func New(log *eventlog.Log, live *eventlog.Live, opts Options) *Hub {
	opts.setDefaults()
	h := &Hub{log: log, live: live, opts: opts, topics: map[eventlog.Key]*topic{}}
	h.pages.init(opts.PageReaders)
	h.prefetches = make(chan struct{}, opts.PageReaders)
	h.rings.init(opts.RingTotal)
	h.began = time.Now()
	h.waiting.init(max(2, runtime.GOMAXPROCS(0)))
	h.lot.parked = map[uint64]*Parked{}
	return h
}

// clock is the time since the hub began.
func (h *Hub) clock() time.Duration { return time.Since(h.began) }

// join returns the session's topic with one more viewer, who has seen the events up
// to a position.
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

// errAbandoned: whoever opened the topic has left, and nobody else waited then.
var errAbandoned = errors.New("the client left before its session was open")

// open opens a topic for its first viewer, and for all others who want it meanwhile:
// then it goes on if the first one leaves.
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

// leave takes a viewer from a topic. The last one leaves it to linger, for those
// who come back, unless it has nothing: whoever asks for sessions that are not
// there leaves no trace.
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

// remove closes a topic's watch. The caller holds mu.
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

// Busy reports whether so many viewers are catching up, some of them the tenant's
// own, that more of its had better go elsewhere.
func (h *Hub) Busy(tenant string) bool { return h.pages.full(tenant, h.opts.PageQueue) }

// Topics is the number of sessions watched.
func (h *Hub) Topics() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.topics)
}
