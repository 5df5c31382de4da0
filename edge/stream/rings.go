package stream

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/runlog-dev/runlog/edge/room"
)

// rings bounds what the rings of all topics keep together: each may grow to
// Options.RingBytes as long as there is room for it, and all are cut to an equal
// share when there is not, or when the process has used up its memory.
type rings struct {
	limit    int64
	ledger   *room.Ledger
	upTo     int64 // what the ledger may come to
	used     atomic.Int64
	sweepAt  atomic.Int64 // use from which the rings are cut
	sweeping atomic.Bool
	pressed  atomic.Uint32 // the ledger's era in which the rings were cut for the process
}

func (r *rings) init(o *Options) {
	r.limit, r.ledger, r.upTo = o.Budget.Shared, o.Ledger, o.Budget.Requests
	r.sweepAt.Store(r.limit)
}

// keepWithin has the rings cut if they are too large, in a goroutine of its own.
func (h *Hub) keepWithin() {
	r := &h.rings
	if r.used.Load() <= r.sweepAt.Load() && r.surplus() == 0 || !r.sweeping.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer r.sweeping.Store(false)
		h.sweep()
	}()
}

// surplus is what the process has used up beyond its share of the ceiling. Once the rings
// were cut for that it is nothing, until it was measured what that has freed.
func (r *rings) surplus() int64 {
	if r.ledger == nil || r.pressed.Load() == r.ledger.Era() {
		return 0
	}
	return max(0, r.ledger.Used()-r.upTo)
}

// sweep drops the folds that nobody uses, and cuts every ring to its share of three
// quarters of the budget, so that the next sweep is a while off, less what the process
// has used up. The last frame of each topic stays for lastKept, even if these alone are over
// the budget: viewers are about to look for it.
func (h *Hub) sweep() {
	h.mu.Lock()
	all := make([]*topic, 0, len(h.topics))
	for _, t := range h.topics {
		all = append(all, t)
	}
	h.mu.Unlock()
	r := &h.rings
	most := r.limit / 4 * 3
	if n := r.surplus(); n > 0 {
		r.pressed.Store(r.ledger.Era())
		most = max(0, min(most, r.used.Load()-n))
	}
	share := int(most / int64(max(len(all), 1)))
	for _, t := range all {
		t.spareFold()
		t.mu.Lock()
		t.trim(share)
		t.dropLast(share, lastKept)
		t.mu.Unlock()
	}
	r.sweepAt.Store(r.next(r.used.Load()))
}

// lastKept is how long a frame stays that is larger than its ring may be: viewers who read
// have taken it by then.
const lastKept = 200 * time.Millisecond

// dropLast leaves nothing of a ring that is larger than its share, and silent for so long.
// The caller holds mu.
func (t *topic) dropLast(share int, silent time.Duration) {
	if t.ring.size > share && time.Since(t.pulse.signAt) >= silent {
		t.ring.drop()
		t.charge()
	}
}

// share is what each of so many rings may have when all of them are over the limit: the
// last frames of silent sessions are not worth more.
func (r *rings) share(of int) int {
	if r.used.Load() <= r.limit {
		return math.MaxInt
	}
	return int(r.limit / int64(max(of, 1)))
}

// next is the use at which the rings are cut again. If last frames alone are over the
// limit, that is a quarter of the limit later, and not at each frame.
func (r *rings) next(used int64) int64 { return max(r.limit, used+r.limit/4) }

// forget takes out the n bytes of a topic that goes. The use at which the rings are cut
// may fall with it, but does not rise.
func (r *rings) forget(n int) {
	if at := r.next(r.used.Add(int64(-n))); at < r.sweepAt.Load() {
		r.sweepAt.Store(at)
	}
}

// charge counts what the topic's ring keeps. The caller holds mu.
func (t *topic) charge() {
	n := t.ring.size - t.cost
	t.cost = t.ring.size
	if !t.retired {
		t.hub.rings.used.Add(int64(n))
	}
}

// retire takes a topic that no new viewer will find out of the budget.
func (t *topic) retire() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.retired {
		t.retired = true
		t.hub.rings.forget(t.cost)
	}
}
