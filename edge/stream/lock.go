package stream

import (
	"context"
	"sync"
	"time"
)

// A lock is a mutex that is given to those who wait in the order in which they came, and
// that they can be called away from. The zero lock is free.
type lock struct {
	mu   sync.Mutex
	line *place // of who has the lock, and behind it those who wait; nil: it is free
}

// A place is that of somebody who waits for a lock or has it.
type place struct {
	turn chan struct{} // closed when the lock is his
	came time.Time
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
func (l *lock) Lock() { _ = l.Await(context.Background(), time.Now()) }

// Await waits for the lock as one that came at a time. When ctx ends first it returns the
// cause, and has no lock.
func (l *lock) Await(ctx context.Context, came time.Time) error {
	p := l.join(came)
	select {
	case <-p.turn:
		return nil
	case <-ctx.Done():
		l.leave(p)
		return context.Cause(ctx)
	}
}

// join takes a place behind those who came before.
func (l *lock) join(came time.Time) *place {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &place{turn: make(chan struct{}), came: came}
	if l.line == nil {
		l.line = p
		close(p.turn)
		return p
	}
	before := l.line
	for before.next != nil && !came.Before(before.next.came) {
		before = before.next
	}
	p.next, before.next = before.next, p
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

// pass gives the lock to the next in line. The caller holds mu.
func (l *lock) pass() {
	if l.line = l.line.next; l.line != nil {
		close(l.line.turn)
	}
}
