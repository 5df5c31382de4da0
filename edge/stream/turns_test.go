package stream

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/runlog-dev/runlog/edge/dialect/native"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// A tenant that has many viewers waiting holds up another's by one read at most; its
// own come in the order in which they came.
func TestTenantsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ts turns
		ts.init(1)
		held, err := ts.take(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var order []string
		wait := func(ctx context.Context, tenant, name string) {
			go func() {
				done, err := ts.take(ctx, tenant)
				if err != nil {
					return
				}
				mu.Lock()
				order = append(order, name)
				mu.Unlock()
				done()
			}()
			synctest.Wait() // it stands in its line
		}
		leaving, leave := context.WithCancel(t.Context())
		wait(leaving, "a", "gone")
		wait(t.Context(), "a", "a1")
		wait(t.Context(), "a", "a2")
		wait(t.Context(), "a", "a3")
		wait(leaving, "c", "gone")
		wait(t.Context(), "b", "b1")
		wait(t.Context(), "b", "b2")
		leave()
		synctest.Wait()
		if ts.count() != 6 || len(ts.lines["a"].queue) != 3 || len(ts.next) != 2 {
			t.Errorf("%d are there, %d wait in %d lines; who gives up leaves nothing behind", ts.count(), len(ts.lines["a"].queue), len(ts.next))
		}
		held()
		synctest.Wait()
		if want := []string{"a1", "b1", "a2", "b2", "a3"}; !slices.Equal(order, want) {
			t.Errorf("turns went to %v, want %v", order, want)
		}
		if ts.count() != 0 || len(ts.lines) != 0 || ts.free != 1 {
			t.Errorf("left over: %+v", &ts)
		}
	})
}

// However many come, wait and give up, no more read at once than may, and no turn is
// lost.
func TestNoTurnIsLost(t *testing.T) {
	const atOnce = 3
	var ts turns
	ts.init(atOnce)
	var mu sync.Mutex
	reading, most := 0, 0
	note := func(n int) {
		mu.Lock()
		defer mu.Unlock()
		reading += n
		most = max(most, reading)
	}
	var all sync.WaitGroup
	for i := range 500 {
		ctx, cancel := context.WithCancel(t.Context())
		all.Go(func() {
			defer cancel()
			done, err := ts.take(ctx, string(rune('a'+i%7)))
			if err != nil {
				if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				return
			}
			note(1)
			note(-1)
			done()
		})
		if i%3 == 0 {
			cancel()
		}
	}
	all.Wait()
	if most > atOnce || ts.free != atOnce || ts.count() != 0 || len(ts.lines) != 0 {
		t.Errorf("%d at once; left over: %+v", most, &ts)
	}
}

// nobody reads what is written.
type nobody struct{ io.Writer }

func (nobody) Header() http.Header { return http.Header{} }
func (nobody) WriteHeader(int)     {}
func (nobody) FlushError() error   { return nil }

// A viewer reads what it missed while a crowd of another tenant's does, in as many
// reads of theirs as its own, not in all of them.
func TestACrowdDoesNotHoldUpAnotherTenant(t *testing.T) {
	const crowd, events = 60, 200
	l := openLog(t)
	mine := eventlog.Key{Tenant: "small", Session: "s"}
	for _, k := range []eventlog.Key{key, mine} {
		w := l.Writer(k, eventlog.Head{})
		write(t, w, slices.Repeat([]event.Type{event.RunStarted}, events)...)
		w.Close()
	}
	var reads atomic.Int64
	h := newHub(t, l, Options{PageReaders: 1, PageBytes: 1500, RingEvents: 1, Observe: Observer{Paged: func(int, int) { reads.Add(1) }}})
	first, err := h.pages.take(t.Context(), "first")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	view := func(k eventlog.Key) error {
		v, err := h.View(ctx, Request{Key: k, NoFollow: true, Dialect: native.Dialect{}, Transport: NDJSON{}})
		if err != nil {
			return err
		}
		defer v.Close()
		if _, err := v.Prepare(ctx); err != nil {
			return err
		}
		return v.Serve(ctx, nobody{io.Discard})
	}
	for range crowd {
		all.Go(func() { _ = view(key) }) // until it is stopped
	}
	await(t, "the crowd", func() bool { return h.pages.count() == crowd+1 })
	done := make(chan error, 1)
	all.Go(func() { done <- view(mine) })
	await(t, "the other one", func() bool { return h.pages.count() == crowd+2 })
	first()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if n := reads.Load(); n > 500 {
		t.Errorf("the crowd read %d times meanwhile", n)
	}
	t.Logf("%d reads of all until the one was done", reads.Load())
}
