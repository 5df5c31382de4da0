package stream

import "sync"

// A lock is a mutex that can be waited for beside other things. Who waits gets it in the
// order in which they came. The zero lock is free.
type lock struct {
	mu   sync.Mutex
	line *place // of who has the lock, and behind it those who wait; nil: it is free
}

// A place is that of somebody who waits for a lock or has it.
type place struct {
	turn chan struct{} // closed when the lock is his
	next *place
}

// TryLock takes the lock if it is free.
func (l *lock) TryLock() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.line != nil {
		return false
	}
	l.line = &place{}
	return true
}

// Lock waits for the lock.
func (l *lock) Lock() { <-l.join().turn }

// join takes a place behind all others. Who does not wait for its turn leaves it.
func (l *lock) join() *place {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &place{turn: make(chan struct{})}
	if l.line == nil {
		close(p.turn)
	}
	end := &l.line
	for *end != nil {
		end = &(*end).next
	}
	*end = p
	return p
}

// leave gives a place up, or the lock if its turn has come.
func (l *lock) leave(p *place) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p == l.line {
		l.pass()
		return
	}
	for before := l.line; before != nil; before = before.next {
		if before.next == p {
			before.next = p.next
			return
		}
	}
}

// Unlock gives the lock to who has waited longest.
func (l *lock) Unlock() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pass()
}

// pass is called with mu held.
func (l *lock) pass() {
	if l.line = l.line.next; l.line != nil {
		close(l.line.turn)
	}
}
