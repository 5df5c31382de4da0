// Package room bounds what an edge holds in memory. A Budget divides it, a Ledger knows what of it is taken, and Rooms
// bound what requests hold at once: bodies that are being read, and conversations that are being told. Each kind has a
// room of its own, so that who sends slowly keeps nobody from reading, and who reads slowly keeps nobody from sending.
package room

import (
	"context"
	"sync"
)

// A Room is an amount of memory that requests share. All of them together may have Most,
// those of one tenant half of it. But a request that is the only one in the room, or of
// its tenant, is not too large for that bound. Beside others there is none either when the
// process has used up its memory. Safe for concurrent use.
type Room struct {
	Most   int64   // bytes; set before use
	Ledger *Ledger // of the process; nil: it has no ceiling
	UpTo   int64   // what the ledger may come to, in bytes

	mu    sync.Mutex
	used  int64
	of    map[string]int64 // by tenant
	freed chan struct{}    // closed when something is given back, if somebody waits for it
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
	ok, _ = s.grow(n, false)
	return ok
}

// Await counts n more bytes as soon as there is room for them. When ctx ends first it
// returns the cause.
func (s *Share) Await(ctx context.Context, n int64) error {
	for {
		ok, freed := s.grow(n, true)
		if ok {
			return nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// grow counts n more bytes if there is room. If not, and the share waits, freed is closed
// when something was given back.
func (s *Share) grow(n int64, waits bool) (ok bool, freed <-chan struct{}) {
	r := s.Room
	if r == nil {
		return true, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !s.fits(n) || !s.promised(n) {
		if waits && r.freed == nil {
			r.freed = make(chan struct{})
		}
		return false, r.freed
	}
	s.add(n)
	return true, nil
}

// fits is called with the room's mu held.
func (s *Share) fits(more int64) bool {
	r := s.Room
	others, kin := r.used-s.size, r.of[s.Tenant]-s.size
	return (others == 0 || r.used+more <= r.Most) && (kin == 0 || r.of[s.Tenant]+more <= r.Most/2)
}

// promised has the ledger promise n more bytes, and reports whether there is memory for
// them. It is called with the room's mu held.
func (s *Share) promised(n int64) bool {
	r := s.Room
	p, ok := r.Ledger.Promise(n, r.UpTo)
	if !ok && r.used == s.size {
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

// add is called with the room's mu held.
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
	if n < 0 && r.freed != nil {
		close(r.freed)
		r.freed = nil
	}
}
