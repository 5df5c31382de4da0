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
	tenant string
	all    int // that read or wait
	queue  []*waiter
}

type waiter struct {
	line *line
	turn chan struct{} // closed when it has come
	came time.Time
}

func (t *turns) init(atOnce int) { t.free, t.lines = atOnce, map[string]*line{} }

// take waits for a turn, which done gives back.
func (t *turns) take(ctx context.Context, tenant string) (done func(), err error) {
	return t.takeSince(ctx, tenant, time.Now())
}

// takeSince is take for a viewer that has come before, and waits again.
func (t *turns) takeSince(ctx context.Context, tenant string, came time.Time) (done func(), err error) {
	done, w := t.join(tenant, came)
	if w == nil {
		return done, nil
	}
	select {
	case <-w.turn:
		return done, nil
	case <-ctx.Done():
		t.giveUp(w)
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
	return func() { t.leave(l) }, true
}

// join takes a turn if one is free, or else a place in the tenant's line, behind those
// who came before.
func (t *turns) join(tenant string, came time.Time) (done func(), w *waiter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.enter(tenant)
	done = func() { t.leave(l) }
	if t.free > 0 {
		t.free--
		return done, nil
	}
	at := len(l.queue)
	for at > 0 && came.Before(l.queue[at-1].came) {
		at--
	}
	w = &waiter{l, make(chan struct{}), came}
	if l.queue = slices.Insert(l.queue, at, w); len(l.queue) == 1 {
		t.next = append(t.next, l)
	}
	return done, w
}

// enter counts a viewer in. The caller holds mu.
func (t *turns) enter(tenant string) *line {
	l := t.lines[tenant]
	if l == nil {
		l = &line{tenant: tenant}
		t.lines[tenant] = l
	}
	t.all++
	l.all++
	return l
}

// leave gives a turn back.
func (t *turns) leave(l *line) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.out(l)
	t.pass()
}

// giveUp takes somebody out of the line, or gives back the turn that had just come.
func (t *turns) giveUp(w *waiter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := w.line
	t.out(l)
	at := slices.Index(l.queue, w)
	if at < 0 {
		t.pass()
		return
	}
	if l.queue = slices.Delete(l.queue, at, at+1); len(l.queue) == 0 {
		at := slices.Index(t.next, l)
		t.next = slices.Delete(t.next, at, at+1)
	}
}

// out counts a viewer out. The caller holds mu.
func (t *turns) out(l *line) {
	t.all--
	if l.all--; l.all == 0 {
		delete(t.lines, l.tenant)
	}
}

// pass gives a turn to whoever is first in the next line. The caller holds mu.
func (t *turns) pass() {
	if len(t.next) == 0 {
		t.free++
		return
	}
	l := t.next[0]
	t.next = t.next[1:]
	close(l.queue[0].turn)
	l.queue[0] = nil
	if l.queue = l.queue[1:]; len(l.queue) > 0 {
		t.next = append(t.next, l)
	}
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
