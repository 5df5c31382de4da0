package stream

import (
	"context"
	"slices"
	"sync"
	"time"
)

// turns lets so many viewers read the log at once, and the others wait. Tenants take
// turns: a tenant with thousands of viewers that catch up delays another tenant's viewer
// by one read, not by thousands. Safe for concurrent use.
type turns struct {
	mu    sync.Mutex
	free  int
	all   int              // viewers that read or wait
	lines map[string]*line // of tenants with such viewers
	next  []*line          // lines with somebody in it, in their order
}

// A line is a tenant's viewers.
type line struct {
	all   int // that read or wait
	queue []*waiter
}

type waiter struct {
	turn chan struct{} // closed when it has come
	came time.Time
	gone bool // does not wait any more
}

func (t *turns) init(atOnce int) { t.free, t.lines = atOnce, map[string]*line{} }

// take waits for a turn, which done gives back.
func (t *turns) take(ctx context.Context, tenant string) (done func(), err error) {
	return t.takeSince(ctx, tenant, time.Now())
}

// takeSince is take for a viewer that has come before, and waits again.
func (t *turns) takeSince(ctx context.Context, tenant string, came time.Time) (done func(), err error) {
	t.mu.Lock()
	l := t.enter(tenant)
	done = func() { t.leave(tenant, l) }
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return done, nil
	}
	w := &waiter{turn: make(chan struct{}), came: came}
	if l.join(w); len(l.queue) == 1 {
		t.next = append(t.next, l)
	}
	t.mu.Unlock()
	select {
	case <-w.turn:
		return done, nil
	case <-ctx.Done():
		t.giveUp(tenant, l, w)
		return nil, context.Cause(ctx)
	}
}

// takeNow is take if there is a turn for who comes now.
func (t *turns) takeNow(tenant string) (done func(), ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.free == 0 {
		return nil, false
	}
	t.free--
	l := t.enter(tenant)
	return func() { t.leave(tenant, l) }, true
}

// enter counts a viewer in. The caller holds mu.
func (t *turns) enter(tenant string) *line {
	l := t.lines[tenant]
	if l == nil {
		l = &line{}
		t.lines[tenant] = l
	}
	t.all++
	l.all++
	return l
}

func (t *turns) leave(tenant string, l *line) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.out(tenant, l)
	t.pass()
}

func (t *turns) giveUp(tenant string, l *line, w *waiter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.out(tenant, l)
	select {
	case <-w.turn: // it had just come
		t.pass()
	default:
		w.gone = true
	}
}

// out counts a viewer out. The caller holds mu.
func (t *turns) out(tenant string, l *line) {
	t.all--
	if l.all--; l.all == 0 {
		delete(t.lines, tenant)
	}
}

// pass gives a turn to whoever is first in the next line. The caller holds mu.
func (t *turns) pass() {
	for len(t.next) > 0 {
		l := t.next[0]
		t.next = t.next[1:]
		w := l.first()
		if len(l.queue) > 0 {
			t.next = append(t.next, l)
		}
		if w != nil {
			close(w.turn)
			return
		}
	}
	t.free++
}

// join puts a waiter behind those who came before it.
func (l *line) join(w *waiter) {
	at := len(l.queue)
	for at > 0 && w.came.Before(l.queue[at-1].came) {
		at--
	}
	l.queue = slices.Insert(l.queue, at, w)
}

// first takes whoever still waits out of the line.
func (l *line) first() *waiter {
	for len(l.queue) > 0 {
		w := l.queue[0]
		l.queue[0] = nil
		l.queue = l.queue[1:]
		if !w.gone {
			return w
		}
	}
	return nil
}

// full reports whether at least most viewers read or wait, some of them the tenant's.
func (t *turns) full(tenant string, most int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all >= most && t.lines[tenant] != nil
}

// count is how many have a turn or wait for one.
func (t *turns) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all
}
