package stream

import (
	"sync"
	"sync/atomic"
	"time"
)

// rowSize is how many viewers a flusher takes at once: those of a session with
// many are shared out.
const rowSize = 256

// A row is some of the viewers that are parked at a topic. They are of one dialect, so
// that a viewer waits for the encoding of its own dialect, and for no other's.
type row struct {
	dialect string
	topic   *topic
	taken   int          // places, guarded by topic.mu
	state   atomic.Int32 // see queue
	due     atomic.Int64 // by the hub's clock: when one of them is owed a sign of life; 0: never

	mu   sync.Mutex // held by the flusher that visits the row
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
	news := t.hasNews(p.v.at.Seq) // it may have come since the viewer looked last
	t.mu.Unlock()
	if news || left {
		t.hub.waiting.add(r)
	}
}

// place takes a place in a row of the dialect that is not full, or in a new one.
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

// vacate gives n places back. A row with none taken goes.
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

// decodedKept is how long the decoded events of a session that is silent are kept, and all
// of its ring at least if that has more than its share.
const decodedKept = time.Second

// remind has the rows visited in which somebody is owed a sign of life by now.
func (t *topic) remind(now time.Duration, share int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ring.size > 0 && time.Since(t.pulse.signAt) >= decodedKept {
		t.dropDecoded()
		t.dropLast(share, decodedKept)
	}
	for _, r := range t.rows {
		if due := r.due.Load(); due != 0 && due <= int64(now) {
			t.hub.waiting.add(r)
		}
	}
}
