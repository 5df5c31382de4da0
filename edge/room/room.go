// Package room bounds what an edge holds in memory. A Budget divides it, a Ledger knows what of it is taken, and Rooms
// bound what requests hold at once: bodies that are being read, and conversations that are being told. Each kind has a
// room of its own, so that who sends slowly keeps nobody from reading, and who reads slowly keeps nobody from sending.
package room

import (
	"context"
	"slices"
	"sync"
	"time"
)

// A Room is an amount of memory that requests share. All of them together may have Most,
// those of one tenant half of it. But a request that is the only one in the room, or of
// its tenant, is not too large for that bound. There is none either when the process has
// used up its memory. Safe for concurrent use.
type Room struct {
	Most   int64   // bytes; set before use
	Ledger *Ledger // of the process; nil: it has no ceiling
	UpTo   int64   // what the ledger may come to, in bytes

	mu      sync.Mutex
	used    int64
	of      map[string]int64 // by tenant
	waiting []*waiter        // in the order in which they came
	looked  time.Time        // when it was last looked for memory that others gave back
}

// A waiter is a share that is to be n bytes larger.
type waiter struct {
	share *Share
	n     int64
	in    chan struct{} // closed when it is
}

// Used is how many bytes of it are taken.
func (r *Room) Used() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.used
}

// A Share is what one request has of a Room. Without a Room nothing is counted. It is used
// by one goroutine at a time.
type Share struct {
	Room    *Room
	Tenant  string
	size    int64
	promise Promise // of what was counted last
}

// Grow counts n more bytes if there is room for them.
func (s *Share) Grow(n int64) (ok bool) {
	if s.Room == nil {
		return true
	}
	s.Room.mu.Lock()
	defer s.Room.mu.Unlock()
	return s.grow(n)
}

// Await counts n more bytes as soon as there is room for them: of those for whom there is,
// who came first is first. Who needs little does not wait for who needs much. When ctx ends
// first it returns the cause.
func (s *Share) Await(ctx context.Context, n int64) error {
	if s.Room == nil {
		return nil
	}
	w := s.join(n)
	var again <-chan time.Time // without a ledger all that is given back is told
	if s.Room.Ledger != nil {
		tick := time.NewTicker(lookAfter)
		defer tick.Stop()
		again = tick.C
	}
	for {
		select {
		case <-w.in:
			return nil
		case now := <-again:
			s.Room.look(now)
		case <-ctx.Done():
			if s.Room.leave(w) {
				return context.Cause(ctx)
			}
			return nil // it was let in at the last moment
		}
	}
}

// look lets those in who waited for the ledger alone: what others than the room's own
// requests give back is not told, but measured. One of those who wait looks for all.
func (r *Room) look(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.looked) >= lookAfter/2 {
		r.looked = now
		r.letIn()
	}
}

// join lets a share in, or has it wait.
func (s *Share) join(n int64) *waiter {
	w := &waiter{s, n, make(chan struct{})}
	s.Room.mu.Lock()
	defer s.Room.mu.Unlock()
	if s.grow(n) {
		close(w.in)
	} else {
		s.Room.waiting = append(s.Room.waiting, w)
	}
	return w
}

// leave reports whether somebody still waited, who does not any more.
func (r *Room) leave(w *waiter) (waited bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := slices.Index(r.waiting, w)
	if at >= 0 {
		r.waiting = slices.Delete(r.waiting, at, at+1)
	}
	return at >= 0
}

// letIn lets those in who waited for what there is now. The caller holds mu.
func (r *Room) letIn() {
	r.waiting = slices.DeleteFunc(r.waiting, func(w *waiter) bool {
		ok := w.share.grow(w.n)
		if ok {
			close(w.in)
		}
		return ok
	})
}

// grow counts n more bytes if there is room. The caller holds the room's mu.
func (s *Share) grow(n int64) (ok bool) {
	if ok = s.fits(n) && s.promised(n); ok {
		s.add(n)
	}
	return ok
}

// fits reports whether there is room for all that is counted and more, beside what others
// have. The caller holds the room's mu.
func (s *Share) fits(more int64) bool {
	r := s.Room
	others, kin := r.used-s.size, r.of[s.Tenant]-s.size
	return (others == 0 || r.used+more <= r.Most) && (kin == 0 || r.of[s.Tenant]+more <= r.Most/2)
}

// promised has the ledger promise n more bytes, and reports whether there is memory for
// them. One that is alone may have more than that, but not if others than requests have
// nearly all of it, as they will for long. The caller holds the room's mu.
func (s *Share) promised(n int64) bool {
	r := s.Room
	p, ok := r.Ledger.Promise(n, r.UpTo)
	if !ok && r.used == s.size && r.Ledger.Used() <= r.UpTo/4*3 {
		p, ok = r.Ledger.add(n), true
	}
	if ok {
		s.promise = r.Ledger.joined(s.promise, p)
	}
	return ok
}

// Fits reports whether there is room for all that is counted now.
func (s *Share) Fits() bool {
	if s.Room == nil {
		return true
	}
	s.Room.mu.Lock()
	defer s.Room.mu.Unlock()
	return s.fits(0)
}

// Set counts n bytes in place of what was counted, whether or not there is room: for a
// request that was let in and knows better now what it takes.
func (s *Share) Set(n int64) {
	if s.Room == nil || n == s.size {
		return
	}
	s.Room.mu.Lock()
	defer s.Room.mu.Unlock()
	if more := n - s.size; more > 0 {
		s.promise = s.Room.Ledger.joined(s.promise, s.Room.Ledger.add(more))
	} else {
		s.promise = s.Room.Ledger.less(s.promise, -more)
	}
	s.add(n - s.size)
}

// Size is what is counted.
func (s *Share) Size() int64 { return s.size }

// GiveUp gives all of it back. It may be called again.
func (s *Share) GiveUp() { s.Set(0) }

// add counts n bytes, which may be less than none. The caller holds the room's mu.
func (s *Share) add(n int64) {
	r := s.Room
	if r.of == nil {
		r.of = map[string]int64{}
	}
	s.size += n
	r.used += n
	if r.of[s.Tenant] += n; r.of[s.Tenant] == 0 {
		delete(r.of, s.Tenant)
	}
	if n < 0 {
		r.letIn()
	}
}
