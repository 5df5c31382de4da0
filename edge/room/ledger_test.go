package room

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A process is what a ledger measures.
type process struct {
	inUse       atomic.Int64
	collections atomic.Uint64
}

// using is a process that uses n bytes.
func using(n int64) *process {
	p := &process{}
	p.inUse.Store(n)
	p.collections.Store(1)
	return p
}

func ledgerOf(p *process) *Ledger {
	l := NewLedger()
	l.measure = func() (int64, uint64) { return p.inUse.Load(), p.collections.Load() }
	return l
}

// collected has garbage be collected, and that be noticed.
func (p *process) collected(l *Ledger) {
	time.Sleep(eraAtLeast)
	p.collections.Add(1)
	l.Used()
}

// A burst is refused before any of what it will take can be measured, and what was promised
// counts until it was measured, and not twice for good.
func TestPromisesCountUntilTheyAreMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := using(100)
		l := ledgerOf(p)
		taken := 0
		for range 100 {
			if _, ok := l.Promise(10, 500); ok {
				taken++
			}
		}
		if taken != 40 || l.Used() != 500 {
			t.Fatalf("%d were taken, %d are used", taken, l.Used())
		}
		p.inUse.Store(300) // half of it, so far
		p.collected(l)
		if _, ok := l.Promise(10, 500); ok {
			t.Error("what was promised a moment ago is forgotten")
		}
		p.inUse.Store(500)
		p.collected(l)
		if used := l.Used(); used != 500 {
			t.Errorf("%d are used of 500", used)
		}
		p.inUse.Store(100)
		p.collected(l)
		if _, ok := l.Promise(400, 500); !ok {
			t.Errorf("all have gone, and %d are used", l.Used())
		}
	})
}

// What is returned at once is nobody's; what is returned when it was measured is the
// collector's to give back.
func TestPromisesAreReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := using(100)
		l := ledgerOf(p)
		for range 1000 {
			promise, ok := l.Promise(300, 500)
			if !ok {
				t.Fatal("one at a time is too much")
			}
			l.Return(promise)
		}
		late, _ := l.Promise(300, 500)
		p.inUse.Store(400)
		p.collected(l)
		p.collected(l)
		p.collected(l)
		l.Return(late)
		if used := l.Used(); used != 400 {
			t.Errorf("%d are used of 400", used)
		}
		l.Return(Promise{})
		if p, ok := (*Ledger)(nil).Promise(1<<60, 0); !ok || p != (Promise{}) {
			t.Error("nobody has a limit")
		}
	})
}

// Rooms that are not full have nothing to give when the process has used up its memory;
// what they have given counts; and who is alone may be too large, unless others than
// requests have the memory.
func TestRoomsKeepToTheLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := using(100)
		room := &Room{Most: 1000, Ledger: ledgerOf(p), UpTo: 500}
		a, b := &Share{Room: room, Tenant: "a"}, &Share{Room: room, Tenant: "b"}
		if !a.Grow(300) || b.Grow(200) || !b.Grow(100) {
			t.Errorf("%d are used", room.Ledger.Used())
		}
		if _, ok := room.Ledger.Promise(10, 500); ok {
			t.Error("what the room has given is promised to others")
		}
		b.GiveUp()
		a.Set(100)
		if used := room.Ledger.Used(); used != 200 {
			t.Errorf("%d are used of 200", used)
		}
		a.Set(350)
		if used := room.Ledger.Used(); used != 450 {
			t.Errorf("%d are used of 450", used)
		}
		a.GiveUp()
		if !a.Grow(900) || b.Grow(1) {
			t.Error("one may be too large, two may not")
		}
		a.GiveUp()
		p.inUse.Store(480)
		p.collected(room.Ledger)
		if a.Grow(300) || !a.Grow(20) {
			t.Error("streams have the memory")
		}
	})
}

// Who waits because the process has used up its memory, and not the room, is let in when others than those in the room
// have given some back.
func TestWhoWaitsForTheLedgerIsLetIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := using(480)
		room := &Room{Most: 1000, Ledger: ledgerOf(p), UpTo: 500}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		got := make(chan error, 2)
		for _, tenant := range []string{"a", "b"} {
			go func() { got <- (&Share{Room: room, Tenant: tenant}).Await(ctx, 100) }()
		}
		time.Sleep(5 * time.Second)
		if len(got) > 0 || room.Used() > 0 {
			t.Fatal("they were let in before there was memory")
		}
		p.inUse.Store(200)
		p.collected(room.Ledger)
		began := time.Now()
		if err := errors.Join(<-got, <-got); err != nil || time.Since(began) > time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}
