package room

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
)

// Whoever comes second shares; one that is alone has the room; a tenant has half of it;
// and all of it is given back.
func TestWhoHasRoom(t *testing.T) {
	room := &Room{Most: 100}
	share := func(tenant string) *Share { return &Share{Room: room, Tenant: tenant} }
	alone, second := share("a"), share("b")
	if !alone.Grow(500) || !alone.Grow(1) || second.Grow(1) {
		t.Error("one that is alone is never too large, and nobody comes beside it")
	}
	alone.GiveUp()
	alone.GiveUp()
	first, kin, other := share("a"), share("a"), share("b")
	if !first.Grow(30) || kin.Grow(30) || !other.Grow(30) || !kin.Grow(20) {
		t.Error("a tenant has half of the room")
	}
	kin.Set(200)
	if other.Grow(1) || other.Fits() {
		t.Error("what turned out to be larger counts")
	}
	kin.Set(10)
	if !other.Fits() || !other.Grow(20) {
		t.Error("what turned out to be smaller makes room")
	}
	for _, s := range []*Share{first, kin, other} {
		s.GiveUp()
	}
	if room.used != 0 || len(room.of) != 0 {
		t.Errorf("left over: %d of %v", room.used, room.of)
	}
	if none := (&Share{}); !none.Grow(1<<40) || none.Await(t.Context(), 1<<40) != nil {
		t.Error("without a room there is no limit")
	}
}

// Who waits gets room when there is enough for it, whoever gives it back, or hears why not.
func TestWaitingForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := &Room{Most: 100}
		share := func(tenant string) *Share { return &Share{Room: room, Tenant: tenant} }
		a, b := share("a"), share("b")
		if !a.Grow(50) || !b.Grow(50) {
			t.Fatal("there is room for both")
		}
		got := make(chan error, 2)
		waiting := share("c")
		go func() { got <- waiting.Await(t.Context(), 40) }()
		synctest.Wait()
		a.Set(20)
		synctest.Wait()
		if len(got) > 0 {
			t.Error("let in too early")
		}
		b.GiveUp()
		if err := <-got; err != nil || room.used != 60 {
			t.Errorf("%v, %d used", err, room.used)
		}
		why := errors.New("too late")
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() { got <- share("c").Await(ctx, 40) }()
		synctest.Wait()
		cancel(why)
		if err := <-got; !errors.Is(err, why) || room.used != 60 {
			t.Errorf("%v, %d used", err, room.used)
		}
	})
}

// Those who need the same get in in the order in which they came, and so does everybody:
// who gives up, or needs more than there is, keeps nobody out.
func TestWhoWaitsIsLetInInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Room{Most: 100}
		share := func(tenant string) *Share { return &Share{Room: r, Tenant: tenant} }
		held := share("held")
		held.Set(60)
		const n = 20
		let := make(chan int, n)
		var waits []*Share
		wait := func(ctx context.Context, i int, bytes int64) *Share {
			s := share(fmt.Sprint(i))
			go func() {
				if s.Await(ctx, bytes) == nil {
					let <- i
				}
			}()
			synctest.Wait()
			return s
		}
		ctx, cancel := context.WithCancel(t.Context())
		_ = wait(ctx, -1, 100) // the largest, who gives up
		_ = wait(ctx, -2, 50)
		cancel()
		synctest.Wait()
		large := wait(t.Context(), n, 100)
		for i := range n {
			waits = append(waits, wait(t.Context(), i, 50))
		}
		held.Set(20) // room for one
		for i, s := range waits {
			synctest.Wait()
			if got := <-let; got != i {
				t.Errorf("%d was let in, it was %d's turn", got, i)
			}
			if len(let) > 0 {
				t.Error("one more was let in")
			}
			s.GiveUp()
		}
		held.GiveUp()
		if got := <-let; got != n || r.Used() != 100 {
			t.Errorf("%d is in, with %d bytes", got, r.Used())
		}
		large.GiveUp()
	})
}

// Without a room there is nothing to wait for, nor to call anybody away from.
func TestNobodyWaitsWithoutARoom(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 { // of two channels that are ready, either is taken
		var s Share
		if err := s.Await(ctx, 1); err != nil || !s.Grow(1) {
			t.Fatal(err)
		}
	}
}
