package stream

import (
	"slices"
	"sync"
)

// A queue has the rows for which there is something to do, each once.
//
// A flusher that goes alone through the rows of one session and dialect finds more to
// write at each viewer than several that share them, and leaves the other processors
// to those who read. So it is left alone with a few of those; for all other rows
// another one is woken, since what a dialect takes to encode keeps nobody waiting
// but its own viewers.
type queue struct {
	mu       sync.Mutex
	more     sync.Cond
	rows     []*row
	next     int    // of rows
	at       []*row // being visited
	flushers int    // that take rows
	idle     int    // of them, waiting and not called
	closed   bool
}

// enough is how many rows may wait for a flusher that visits others of their kind:
// about a thousand writes.
const enough = 4

func (q *queue) init(flushers int) {
	q.more.L = &q.mu
	q.flushers = flushers
}

// call wakes a flusher for the rows that wait, unless they are few and all of a kind
// that is being visited. The caller holds mu.
func (q *queue) call() {
	waiting := q.rows[q.next:]
	if q.idle == 0 || len(waiting) == 0 {
		return
	}
	if len(waiting) > enough*len(q.at) || slices.ContainsFunc(waiting, q.isStrange) {
		q.idle--
		q.more.Signal()
	}
}

// isStrange: no row of its kind is being visited.
func (q *queue) isStrange(r *row) bool {
	return !slices.ContainsFunc(q.at, func(v *row) bool { return v.topic == r.topic && v.dialect == r.dialect })
}

// The states of a row. No two flushers are at one: the second would wait for the first.
const (
	resting int32 = iota
	queued
	visited
	again // there is more to do than the flusher that visits it has seen
)

func (q *queue) add(r *row) {
	for !r.state.CompareAndSwap(resting, queued) {
		if s := r.state.Load(); s == queued || s == again || s == visited && r.state.CompareAndSwap(visited, again) {
			return
		}
	}
	q.push(r)
}

func (q *queue) push(r *row) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.rows = append(q.rows, r)
	q.call()
}

// take lets go of the row that the flusher has visited, if any, and waits for the
// next one; nil when the queue is closed.
func (q *queue) take(done *row) *row {
	q.mu.Lock()
	defer q.mu.Unlock()
	if done != nil {
		q.letGo(done)
	}
	for q.next == len(q.rows) && !q.closed {
		q.idle++
		q.more.Wait() // who calls has taken it out of idle
	}
	if q.closed {
		return nil
	}
	r := q.pop()
	q.at = append(q.at, r)
	q.call()
	return r
}

// letGo ends a visit; if there is more to do by now the row waits again. The caller
// holds mu, and takes a row next.
func (q *queue) letGo(r *row) {
	i := slices.Index(q.at, r)
	q.at = slices.Delete(q.at, i, i+1)
	if !r.state.CompareAndSwap(visited, resting) {
		r.state.Store(queued)
		q.rows = append(q.rows, r)
	}
}

// pop takes the first row. The caller holds mu.
func (q *queue) pop() *row {
	r := q.rows[q.next]
	q.rows[q.next] = nil
	q.next++
	if q.next*2 >= len(q.rows) { // half of it is done: the rest moves up
		n := copy(q.rows, q.rows[q.next:])
		clear(q.rows[n:])
		q.rows, q.next = q.rows[:n], 0
	}
	r.state.Store(visited)
	return r
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.more.Broadcast()
}
