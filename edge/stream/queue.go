package stream

import (
	"slices"
	"sync"
)

// A queue has the rows in which somebody has something to do, each once, and the
// flushers that visit them.
//
// Rows of one session and dialect are of one kind. A single flusher that goes through
// all rows of a kind finds more to write at each viewer than several that share them,
// and it leaves the other processors to the clients. So a flusher is left alone with
// the rows of a kind, as long as only a few of them wait. For a row of any other kind
// another flusher is woken at once: a session or dialect that takes long keeps only its
// own viewers waiting.
type queue struct {
	mu       sync.Mutex
	more     sync.Cond
	rows     []*row // those from next on wait
	next     int
	at       []*row // being visited
	flushers int    // how many take rows
	idle     int    // how many of them sleep and have not been woken yet
	closed   bool
}

// enough is how many rows may wait for each flusher that visits one of their kind:
// about a thousand writes.
const enough = 4

func (q *queue) init(flushers int) {
	q.more.L = &q.mu
	q.flushers = flushers
}

// call wakes a flusher, if one sleeps, unless the rows that wait are few and all of a
// kind that is being visited. The caller holds mu.
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

// isStrange reports whether no row of r's kind is being visited.
func (q *queue) isStrange(r *row) bool {
	return !slices.ContainsFunc(q.at, func(v *row) bool { return v.topic == r.topic && v.dialect == r.dialect })
}

// The states of a row. It is never with two flushers: the second would only wait for the
// first.
const (
	resting int32 = iota // nothing is to be done
	queued               // it waits for a flusher
	visited              // a flusher is there
	again                // a flusher is there, and more has come that it may not have seen
)

// add has a row visited. It takes no lock if the row waits already.
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

// take ends the visit to a row, if there was one, and waits for the next row; nil when
// the queue is closed.
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

// letGo ends a visit. If more has come meanwhile the row waits again. The caller holds
// mu and takes a row next, so that nobody needs to be woken.
func (q *queue) letGo(r *row) {
	i := slices.Index(q.at, r)
	q.at = slices.Delete(q.at, i, i+1)
	if !r.state.CompareAndSwap(visited, resting) {
		r.state.Store(queued)
		q.rows = append(q.rows, r)
	}
}

// pop takes the row that has waited longest. The caller holds mu.
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
