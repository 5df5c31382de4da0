package stream

import (
	"sync"
	"sync/atomic"
	"time"
)

// rowSize is how many viewers a flusher takes at once: those of a session with
// many are shared out.
const rowSize = 256

// A row is some of the viewers that are parked at a topic, all of one dialect: they
// wait for each other's encoding, and for nobody else's.
type row struct {
	dialect string
	topic   *topic
	taken   int          // places, guarded by topic.mu
	state   atomic.Int32 // see queue
	due     atomic.Int64 // when the next sign of life is owed to one of them, by the hub's clock; 0: never

	mu   sync.Mutex // held by who moves them on
	list []*Parked
}

// seat gives a viewer, whose goroutine ends, a place at its topic.
func (t *topic) seat(p *Parked) {
	r := t.place(p.v.view.dialect.Name())
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, p)
	r.owes(p.v.nextSign())
	left := p.sit(r)
	t.mu.Lock()
	news := t.hasNews(p.v.at.Seq) // since it looked last
	t.mu.Unlock()
	if news || left {
		t.hub.waiting.add(r)
	}
}

// place finds a row that is not full and takes one of its places.
func (t *topic) place(dialect string) *row {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range t.rows {
		if r.taken < rowSize && r.dialect == dialect {
			r.taken++
			return r
		}
	}
	r := &row{topic: t, dialect: dialect, taken: 1}
	t.rows = append(t.rows, r)
	return r
}

// vacate gives places back.
func (r *row) vacate(n int) {
	t := r.topic
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.taken -= n; r.taken > 0 {
		return
	}
	for i := range t.rows {
		if t.rows[i] == r {
			last := len(t.rows) - 1
			t.rows[i], t.rows[last] = t.rows[last], nil
			t.rows = t.rows[:last]
			return
		}
	}
}

// owes notes when a sign of life is due. The caller holds mu.
func (r *row) owes(at time.Duration) {
	if due := r.due.Load(); due == 0 || int64(at) < due {
		r.due.Store(int64(at))
	}
}

// restAfter is how long a session is silent before its topic rests.
const restAfter = time.Second

// remind has the rows visited that owe a sign of life.
func (t *topic) remind(now time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.ring.lately) > 0 && time.Since(t.pulse.signAt) >= restAfter {
		t.rest()
	}
	for _, r := range t.rows {
		if due := r.due.Load(); due != 0 && due <= int64(now) {
			t.hub.waiting.add(r)
		}
	}
}
