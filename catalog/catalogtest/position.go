package catalogtest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/catalog"
	"github.com/runlog-dev/runlog/event"
)

func position(t testing.TB, db *catalog.DB, partition int) uint64 {
	t.Helper()
	return get(db.Position(within(t), partition))(t)
}

func testPosition(t *testing.T, open func(testing.TB) *catalog.DB) {
	db, ctx, log := open(t), within(t), NewLog(11, 2, 20)
	if at := position(t, db, 3); at != 0 {
		t.Fatalf("position of an empty catalog is %d", at)
	}
	must(t, db.ApplyAt(ctx, 3, 0, 10, Grouped(log.Entries[:10])))
	must(t, db.ApplyAt(ctx, 3, 10, 40, Grouped(log.Entries[10:])))
	must(t, db.ApplyAt(ctx, 3, 40, 50, nil))
	if at, other := position(t, db, 3), position(t, db, 4); at != 50 || other != 0 {
		t.Errorf("positions are %d and %d, want 50 and 0", at, other)
	}
	DumpOf(t, db, log).Equal(t, inOneGo(t, open(t), log))
	for _, wrong := range [][2]uint64{{10, 60}, {10, 10}, {50, 49}, {0, 60}, {60, 70}} {
		if err := db.ApplyAt(ctx, 3, wrong[0], wrong[1], nil); err == nil {
			t.Errorf("from %d to %d was taken at 50", wrong[0], wrong[1])
		}
	}
	l := &lines{session: "never", run: "r"}
	l.add(event.RunStarted, map[string]any{})
	wantErr(t, db.ApplyAt(ctx, 3, 40, 60, []catalog.Events{{Tenant: "acme", Events: l.events}}), catalog.ErrMoved)
	_, err := db.Session(ctx, "acme", "never")
	wantErr(t, err, catalog.ErrNotFound)
}

func testMovedOnce(t *testing.T, open func(testing.TB) *catalog.DB) {
	db, log := open(t), NewLog(12, 3, 20)
	var won atomic.Int64
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for i := range log.Entries {
				err := db.ApplyAt(within(t), 0, uint64(i), uint64(i+1), Grouped(log.Entries[i:i+1]))
				if err == nil {
					won.Add(1)
				} else {
					wantErr(t, err, catalog.ErrMoved)
				}
			}
		})
	}
	group.Wait()
	if n := won.Load(); n != int64(len(log.Entries)) {
		t.Errorf("%d moves for %d frames", n, len(log.Entries))
	}
	DumpOf(t, db, log).Equal(t, inOneGo(t, open(t), log))
}

func testReset(t *testing.T, open func(testing.TB) *catalog.DB) {
	db, ctx, log := open(t), within(t), NewLog(13, 2, 60)
	secret, _, err := db.CreateKey(ctx, "acme", "ci", nil)
	must(t, err)
	must(t, db.ApplyAt(ctx, 0, 0, 99, Grouped(log.Entries)))
	want := DumpOf(t, db, log)
	must(t, db.Reset(ctx))
	get(db.KeyByHash(ctx, catalog.HashKey(secret)))(t)
	if at := position(t, db, 0); at != 0 {
		t.Errorf("position after a reset is %d", at)
	}
	for session, tenant := range log.Sessions() {
		_, err := db.Session(ctx, tenant, session)
		wantErr(t, err, catalog.ErrNotFound)
		if rest := get(db.Artifacts(ctx, tenant, session))(t); len(rest) > 0 {
			t.Errorf("artifacts survive: %+v", rest)
		}
	}
	for _, tenant := range Tenants {
		if rest := dumpRuns(ctx, t, db, tenant); len(rest) > 0 {
			t.Errorf("runs survive: %v", rest)
		}
	}
	wantErr(t, db.ApplyAt(ctx, 0, 99, 100, nil), catalog.ErrMoved)
	must(t, db.ApplyAt(ctx, 0, 0, 99, Grouped(log.Entries)))
	DumpOf(t, db, log).Equal(t, want)
}

func testLead(t *testing.T, open func(testing.TB) *catalog.DB) {
	db, ctx := open(t), within(t)
	for i, step := range []struct {
		holder string
		lease  time.Duration
		want   bool
	}{
		{"a", time.Hour, true},
		{"b", time.Hour, false},
		{"a", time.Hour, true},
		{"b", time.Hour, false},
		{"a", -time.Second, true}, // has run out
		{"b", time.Hour, true},
		{"a", time.Hour, false},
	} {
		if got := get(db.Lead(ctx, 0, step.holder, step.lease))(t); got != step.want {
			t.Fatalf("step %d: %s leads: %v", i, step.holder, got)
		}
	}
	if !get(db.Lead(ctx, 1, "a", time.Hour))(t) {
		t.Error("another partition is taken")
	}
	must(t, db.Release(ctx, 0, "a")) // not its own
	if get(db.Lead(ctx, 0, "a", time.Hour))(t) {
		t.Error("a released what b holds")
	}
	must(t, db.Release(ctx, 0, "b"))
	if !get(db.Lead(ctx, 0, "a", time.Hour))(t) {
		t.Error("what b released is not free")
	}
	testOneLeader(t, db)
}

func testOneLeader(t *testing.T, db *catalog.DB) {
	t.Helper()
	var leaders atomic.Int64
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			led, err := db.Lead(within(t), 9, fmt.Sprint("h", i), time.Hour)
			if err != nil {
				t.Error(err)
			}
			if led {
				leaders.Add(1)
			}
		})
	}
	group.Wait()
	if n := leaders.Load(); n != 1 {
		t.Errorf("%d of 8 lead one partition", n)
	}
}
