package stream

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// A topic is one session that this process watches: what was appended lately, and who
// must be told when more comes. It is the eventlog.Sink of its Watch, which opens it
// (begin) and then calls Frame, Beat and Broken, one at a time. There are many: see
// TestSizes before it gets a field.
type topic struct {
	hub *Hub
	key eventlog.Key

	ready chan struct{} // closed once watch or err is set
	watch *eventlog.Watch
	err   error // why the topic could not be opened

	viewers int         // guarded by hub.mu
	idle    *time.Timer // guarded by hub.mu: closes the topic that nobody views
	opened  bool        // guarded by hub.mu
	retired bool        // no longer one of the hub's topics, guarded by mu
	alone   atomic.Bool // there is one viewer

	decoder *event.Decoder // of the frames that come, used by the watch alone; nil until the first

	mu     sync.Mutex
	ring   ring // the events up to head.Seq
	cost   int  // of the ring, as the hub's budget knows it
	head   eventlog.Head
	news   chan struct{} // closed when anything here changes; nil if nobody waits
	rows   []*row        // of viewers that are parked here
	broken error         // no frame follows
	pulse  pulse

	fold lateFold

	checkedAt time.Time // when the head was last compared with the leader's
}

// A pulse is what a topic knows of the session's owner and of the run under way, for
// heartbeats.
type pulse struct {
	beat    *heard    // the last one; nil: none
	signAt  time.Time // when a beat or frame came last, or the topic began
	run     string    // the run that has started and not ended, as far as this topic has seen
	status  event.Status
	started time.Time
}

// A heard is a beat and when it came. It does not change.
type heard struct {
	eventlog.Beat
	at time.Time
}

// open begins to watch. The ring begins with the frames that a viewer at position from
// has missed, if they are few, as they are for most clients that come back. Otherwise
// it begins with the last frame, and viewers read from the log what is older.
func (t *topic) open(ctx context.Context, from event.Seq) (*eventlog.Watch, error) {
	return t.hub.live.Watch(ctx, t.key, t, func(last eventlog.Frame) {
		t.begin(t.hub.log.Recent(ctx, t.key, from, last, t.hub.opts.PageBytes))
	})
}

// await returns when the topic is open, or why it is not.
func (t *topic) await(ctx context.Context) error {
	select {
	case <-t.ready:
		return t.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// begin fills the ring with the last frames of the log.
func (t *topic) begin(frames []eventlog.Frame) {
	t.mu.Lock()
	t.ring.base = frames[0].Before().Seq
	t.head.Seq = t.ring.base
	t.mu.Unlock()
	for _, f := range frames {
		t.add(f, t.entries(new(event.Decoder), f))
	}
	t.mu.Lock()
	t.dropDecoded()
	t.mu.Unlock()
	t.hub.keepWithin()
}

// Frame adds what was appended.
func (t *topic) Frame(f eventlog.Frame) {
	if t.decoder == nil {
		t.decoder = new(event.Decoder)
	}
	t.add(f, t.entries(t.decoder, f))
	t.hub.keepWithin()
}

func (t *topic) add(f eventlog.Frame, list []*entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(list) > 0 {
		t.ring.add(f, list, max(t.hub.opts.RingEvents/4, 1))
		t.ring.keep(list, t.company())
	}
	for _, e := range list {
		t.pulse.event(e)
	}
	t.head = f.End()
	t.pulse.signAt = time.Now()
	t.trim(t.hub.opts.RingBytes)
	t.announce()
}

// company is how many events are kept decoded at least: a lone viewer is done with one
// when it has shown it, several show it at different times.
func (t *topic) company() int {
	if t.alone.Load() {
		return 1
	}
	return aFew
}

// shown drops the decoded events once the topic's only viewer has shown all of them.
func (t *topic) shown(by *Viewer) {
	if !t.alone.Load() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if by.at.Seq >= t.head.Seq {
		t.dropDecoded()
	}
}

// dropDecoded leaves the ring with lines alone. The caller holds mu.
func (t *topic) dropDecoded() {
	t.ring.forget(len(t.ring.decoded))
	t.charge()
}

// unreadable tells the operator of an event that nobody will see.
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
	t.hub.opts.Logger.Error("a session's log does not go on; its streams begin anew or are aborted",
		"tenant", t.key.Tenant, "session", t.key.Session, "seq", uint64(t.head.Seq), "err", err)
	t.broken = err
	t.announce()
}

// trim keeps the ring within its bounds. The caller holds mu.
func (t *topic) trim(size int) {
	t.ring.trim(size, t.hub.opts.RingEvents, t.head)
	t.charge()
}

func (t *topic) hasEvents() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.head.Seq > 0
}

// announce has all viewers look: those that wait in goroutines of their own, and those that
// are parked. The caller holds mu.
func (t *topic) announce() {
	if t.news != nil {
		close(t.news)
		t.news = nil
	}
	for _, r := range t.rows {
		t.hub.waiting.add(r)
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

// hasNews reports whether a viewer at a position has something to do. The caller holds mu.
func (t *topic) hasNews(after event.Seq) bool { return after < t.head.Seq || t.broken != nil }

// An outlook is what a viewer finds from its position on.
type outlook struct {
	entries []*entry      // what follows, from the ring
	behind  bool          // what follows is not in the ring any more: read the log
	through eventlog.Head // if behind: read the log up to here, the ring has the rest
	broken  bool          // nothing will follow here: join the session anew
	head    eventlog.Head // the last frame that the topic knows
}

// look returns what follows a position. Its entries are in into, and as many as fit.
func (t *topic) look(after event.Seq, into []*entry) outlook {
	o, b := t.find(after, into)
	if b.lines > 0 {
		o.entries = b.decode(after, into)
	}
	return o
}

// find is look without decoding, which nobody else should wait for: if the entries are
// in a block of the ring, it returns that block.
func (t *topic) find(after event.Seq, into []*entry) (o outlook, b block) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o.head = t.head
	switch {
	case after >= t.head.Seq:
		o.broken = t.broken != nil
	case after < t.ring.base:
		o.behind, o.through = true, t.head
		if before, known := t.ring.before(); known {
			o.through = before
		}
	case len(into) > 0:
		if o.entries = t.ring.recent(after, into); o.entries == nil {
			b = t.ring.holding(after)
		}
	}
	return o, b
}

// checkHead has the watch compare itself with the log after silence: if the very last
// message was lost on its way, nothing else shows it.
func (t *topic) checkHead(now time.Time, silence time.Duration) {
	t.mu.Lock()
	due := min(now.Sub(t.pulse.signAt), now.Sub(t.checkedAt)) >= silence
	if due {
		t.checkedAt = now
	}
	t.mu.Unlock()
	if due {
		t.watch.Check()
	}
}

// vitals is what heartbeats say, and the last event that the topic knows.
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
