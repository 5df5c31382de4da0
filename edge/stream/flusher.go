package stream

import (
	"context"
	"errors"
	"time"

	"github.com/runlog-dev/runlog/event"
)

// A flusher moves parked viewers on: all that has come since a viewer's last write goes
// to its socket in one write, which is tried once. A viewer that cannot go on that way,
// because the socket is full or because it has to read the log, gets a goroutine.
type flusher struct {
	hub  *Hub
	out  output // its buffer is that of each viewer in turn
	into [aFew]*entry
	sock attempt
}

func (h *Hub) newFlusher() *flusher {
	buf := make([]byte, 0, 2*flushAt)
	f := &flusher{hub: h, out: output{chunked: true, buf: &buf}}
	f.sock.init()
	return f
}

// run takes rows until the queue is closed.
func (f *flusher) run() {
	for r := f.hub.waiting.take(nil); r != nil; r = f.hub.waiting.take(r) {
		f.visit(r)
	}
}

// visit moves the viewers of a row on. Those that do not stay give up their places.
func (f *flusher) visit(r *row) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := f.hub.clock()
	r.due.Store(0)
	stay := r.list[:0]
	for _, p := range r.list {
		if f.moveOn(p, now) {
			r.topic.shown(p.v)
			stay = append(stay, p)
			r.owes(p.v.nextSign())
		}
	}
	gone := len(r.list) - len(stay)
	clear(r.list[len(stay):])
	r.list = stay
	if gone > 0 {
		r.vacate(gone)
	}
}

// moveOn shows a viewer what follows. It stays in its row if it has been shown all there
// is and its socket has taken it.
func (f *flusher) moveOn(p *Parked, now time.Duration) (stays bool) {
	if cause := p.leaving(); cause != nil {
		go p.end(cause)
		return false
	}
	for {
		how, err := f.fill(p.v, now)
		if err == nil {
			err = f.send(p)
		}
		switch {
		case err != nil:
			go p.end(err)
			return false
		case how == stuck || len(p.unsent) > 0:
			go p.run()
			return false
		case how == over:
			go p.end(nil)
			return false
		case how == idle:
			return true
		}
	}
}

// fill fills the buffer with what the viewer shows next, as much as one write takes.
func (f *flusher) fill(v *Viewer, now time.Duration) (verdict, error) {
	f.out.empty()
	for len(*f.out.buf) < flushAt {
		how, err := v.glance(&f.out, f.into[:], now)
		if how != more || err != nil {
			return how, err
		}
	}
	return more, v.flush(&f.out)
}

// send writes the buffer. What the socket does not take is left with the viewer.
func (f *flusher) send(p *Parked) error {
	b, size := f.out.take()
	if size == 0 {
		return nil
	}
	p.written += int64(size)
	n, err := f.sock.write(p.raw, b)
	if err == nil && n < len(b) {
		p.unsent = append([]byte(nil), b[n:]...)
	}
	if cap(*f.out.buf) > 4*flushAt { // after one very large event
		*f.out.buf = make([]byte, 0, 2*flushAt)
	}
	return err
}

// glance is what step is to a viewer with a goroutine: it shows some of what follows,
// but never waits. stuck says that the viewer cannot go on without waiting.
func (v *Viewer) glance(out *output, into []*entry, now time.Duration) (verdict, error) {
	o := v.topic.look(v.at.Seq, into)
	switch {
	case o.behind || o.broken:
		return stuck, v.flush(out)
	case len(o.entries) > 0:
		defer clear(o.entries)
		n := v.ready(o.entries)
		if n == 0 {
			return stuck, v.flush(out)
		}
		how, err := v.show(context.Background(), out, o.entries[:n])
		if errors.Is(err, errStuck) { // somebody has the folds by now
			return stuck, v.flush(out)
		}
		return how, err
	case now >= v.nextSign():
		return idle, v.tick(out, time.Now())
	}
	return idle, v.flush(out)
}

// ready is how many events from the first one on can be shown without waiting.
func (v *Viewer) ready(list []*entry) int {
	for i, e := range list {
		if v.mayWait(e) {
			return i
		}
	}
	return len(list)
}

// mayWait reports whether an event is one to show in a goroutine: it is large, which a
// goroutine need not copy, or mine, wire or Request.Ends may block.
func (v *Viewer) mayWait(e *entry) bool {
	if _, known := v.ofRun(e); !known || len(e.line) >= flushAt || v.req.Ends != nil && e.Type == event.RunStatus {
		return true
	}
	return v.folding(e) != nil && !v.topic.atHand(e, v.view)
}
