package stream

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// A topic is one session that this process watches: what was appended lately,
// and who must be told when more comes. It is the eventlog.Sink of its Watch.
type topic struct {
	hub *Hub
	key eventlog.Key

	ready chan struct{} // closed once watch or err is set
	watch *eventlog.Watch
	err   error // why the topic could not be opened

	opened  bool        // guarded by hub.mu
	viewers int         // guarded by hub.mu
	alone   atomic.Bool // there is one viewer
	idle    *time.Timer // guarded by hub.mu: closes the topic that nobody views

	mu     sync.Mutex
	ring   []*entry // the events base+1 … head.Seq
	base   event.Seq
	before eventlog.Head // the frame that ends with base, as far as it is known
	cost   int           // of ring
	head   eventlog.Head
	news   chan struct{} // closed when anything here changes; nil if nobody waits
	rows   []*row        // of viewers that are parked here
	broken error         // no frame follows
	pulse  pulse

	retired bool // no longer one of the hub's topics

	fold lateFold

	checkedAt time.Time // when the head was last compared with the leader's
}

// A pulse is what is known of the session's owner and of the run under way.
type pulse struct {
	beat    *heard    // nil: none
	signAt  time.Time // of the last beat or frame, at first of the topic's beginning
	run     string    // started and not ended, as far as this topic has seen
	status  event.Status
	started time.Time
}

// A heard beat does not change.
type heard struct {
	eventlog.Beat
	at time.Time
}

// open begins to watch with the last frame there is, which is what most of those
// who come back have missed; what is older is read when somebody asks for it.
func (t *topic) open(ctx context.Context) (*eventlog.Watch, error) {
	return t.hub.live.WatchHead(ctx, t.key, t, t.begin)
}

func (t *topic) begin(last eventlog.Frame) {
	t.mu.Lock()
	t.before = last.Before()
	t.base = t.before.Seq
	t.head.Seq = t.base
	t.mu.Unlock()
	t.add(last, entries(t.decoder(), last, t.unreadable))
}

// Frame adds what was appended.
func (t *topic) Frame(f eventlog.Frame) {
	t.add(f, entries(t.decoder(), f, t.unreadable))
	t.hub.keepWithin()
}

// decoder reads what comes after the ring.
func (t *topic) decoder() *event.Decoder {
	t.mu.Lock()
	defer t.mu.Unlock()
	d := new(event.Decoder)
	if n := len(t.ring); n > 0 {
		d.After(t.ring[n-1].Event)
	}
	return d
}

func (t *topic) add(f eventlog.Frame, list []*entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range list {
		if e.Seq <= t.head.Seq {
			continue
		}
		t.ring = append(t.ring, e)
		t.charge(e.cost())
		t.pulse.event(e)
	}
	t.head = f.End()
	t.pulse.signAt = time.Now()
	t.trim(t.hub.opts.RingBytes)
	t.tell()
}

func (t *topic) unreadable(seq event.Seq, err error) {
	t.hub.opts.Logger.Error("event cannot be read; it is not shown",
		"tenant", t.key.Tenant, "session", t.key.Session, "seq", uint64(seq), "err", err)
}

// Beat notes a sign of life; viewers look at it when their heartbeat is due.
func (t *topic) Beat(b eventlog.Beat) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	t.pulse.beat, t.pulse.signAt = &heard{b, now}, now
}

// Broken ends the topic; its viewers move to a new one.
func (t *topic) Broken(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.broken = err
	t.tell()
}

// trim drops the oldest events until the ring is within its bounds, or has only
// the last frame, which viewers are about to look for. The caller holds mu.
func (t *topic) trim(size int) {
	n, last := 0, int(t.head.Seq-t.head.First)+1
	for n < len(t.ring)-last && (t.cost > size || len(t.ring)-n > t.hub.opts.RingEvents) {
		t.charge(-t.ring[n].cost())
		n++
	}
	if n > 0 {
		t.base += event.Seq(n)
		clear(t.ring[:n])
		t.ring = t.ring[n:] // append moves it to a new array now and then
	}
}

func (t *topic) hasEvents() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.head.Seq > 0
}

// tell has all viewers look. The caller holds mu.
func (t *topic) tell() {
	if t.news != nil {
		close(t.news)
		t.news = nil
	}
	for _, r := range t.rows {
		t.hub.told.add(r)
	}
}

// wait returns what is closed when there is something to see after a position;
// nil if there is already.
func (t *topic) wait(after event.Seq) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.hasNews(after) {
		return nil
	}
	if t.news == nil {
		t.news = make(chan struct{})
	}
	return t.news
}

// hasNews reports whether a look pays. The caller holds mu.
func (t *topic) hasNews(after event.Seq) bool { return after < t.head.Seq || t.broken != nil }

// An outlook is what a viewer finds from its position on.
type outlook struct {
	entries []*entry      // what follows, from the ring
	behind  bool          // what follows is not in the ring: read the log
	through eventlog.Head // how far, if behind: the ring has the rest
	broken  bool
	head    eventlog.Head
}

// look fills into with what follows a position.
func (t *topic) look(after event.Seq, into []*entry) outlook {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := outlook{head: t.head}
	switch {
	case after >= t.head.Seq:
		o.broken = t.broken != nil
	case after < t.base:
		o.behind, o.through = true, t.head
		if t.before.Seq == t.base {
			o.through = t.before
		}
	default:
		o.entries = into[:copy(into, t.ring[after-t.base:])]
	}
	return o
}

// checkHead compares with the head of the log if nothing was heard for a while: a
// last message that was lost on its way shows in no other way.
func (t *topic) checkHead(now time.Time, silence time.Duration) {
	t.mu.Lock()
	due := now.Sub(later(t.pulse.signAt, t.checkedAt)) >= silence
	if due {
		t.checkedAt = now
	}
	t.mu.Unlock()
	if due {
		t.watch.Check()
	}
}

func (t *topic) vitals() (pulse, event.Seq) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pulse, t.head.Seq
}

// event follows the run that is under way.
func (p *pulse) event(e *entry) {
	switch {
	case e.Type == event.RunStarted && p.run == "":
		p.run, p.status, p.started = e.RunID, event.Pending, e.Time.Time
	case e.RunID == "" || e.RunID != p.run:
	case e.Type.Terminal():
		p.run, p.status = "", ""
	case e.Type == event.RunStatus:
		var d event.RunStatusData
		if e.Into(&d) == nil {
			p.status = d.Status
		}
	}
}
