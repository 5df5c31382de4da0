package stream

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/edge/dialect/native"
	"github.com/runlog-dev/runlog/edge/room"
	"github.com/runlog-dev/runlog/event"
)

// crowd is a hub for large conversations that one can be loaded of at once.
func crowd() *Hub {
	return New(nil, nil, Options{Budget: room.Budget{Ceiling: 64 << 20, Told: 4 << 20}, LoadWait: time.Second, CheckHead: time.Hour})
}

func (h *Hub) gate(hold *Hold) *entrance { return &entrance{hub: h, tenant: "a", hold: hold} }

// Who is small neither waits nor counts; who only looks waits for his turn and takes no room; who tells has his turn until
// the fold has become an answer, and room until that has been read.
func TestTurnsAndRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := crowd()
		pass := func(hold *Hold, n int) error { return h.gate(hold).pass(t.Context(), n) }
		small, first, second, looks := h.Hold("a"), h.Hold("a"), h.Hold("a"), &Hold{}
		if err := errors.Join(pass(first, 1<<20), pass(small, smallFold), pass(first, 3<<20)); err != nil {
			t.Fatal(err)
		}
		for _, hold := range []*Hold{second, looks} {
			if err := pass(hold, 1<<20); !errors.Is(err, ErrCrowded) {
				t.Errorf("without a turn: %v", err)
			}
			hold.Drop()
		}
		first.Encoded(3 << 20) // it came to more than half of the room
		if err := pass(second, 1<<20); !errors.Is(err, ErrCrowded) {
			t.Errorf("without room: %v", err)
		}
		if err := pass(looks, 1<<20); err != nil {
			t.Errorf("who only looks: %v", err)
		}
		looks.Drop()
		first.Drop()
		if err := pass(second, 1<<20); err != nil {
			t.Errorf("there is room again: %v", err)
		}
		second.Drop()
	})
}

// Those who were let in while everybody was small, and waited for their turn, are not let in on that: what came before
// them has grown.
func TestWhatGrowsBeforeOthersHadTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := crowd()
		first := h.Hold("a")
		if err := h.gate(first).pass(t.Context(), 100<<10); err != nil {
			t.Fatal(err)
		}
		got := make(chan error)
		for range 10 {
			go func() { got <- h.gate(h.Hold("a")).pass(context.WithoutCancel(t.Context()), 100<<10) }()
		}
		synctest.Wait()
		first.Encoded(5 << 20)
		for range 10 {
			if err := <-got; !errors.Is(err, ErrCrowded) {
				t.Errorf("let in beside 5 MiB of 4: %v", err)
			}
		}
	})
}

// A viewer that has the only turn does not wait for another one.
func TestNobodyWaitsForHimself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := crowd()
		v := &Viewer{hub: h, kept: h.Hold("a")}
		if err := h.gate(v.kept).pass(t.Context(), 1<<20); err != nil {
			t.Fatal(err)
		}
		e := v.entrance()
		if err := e.pass(t.Context(), 1<<20); err != nil {
			t.Error(err)
		}
		e.hold.Drop()
		v.kept.Drop()
		if err := v.entrance().pass(t.Context(), 1<<20); err != nil {
			t.Errorf("the turn was not given back: %v", err)
		}
	})
}

// A viewer that has the only turn for what its encoder keeps, and has to begin again with a snapshot, does not wait for
// itself.
func TestASnapshotReplacesWhatIsKept(t *testing.T) {
	l := openLog(t)
	fill(t, l, of(event.RunStarted, event.RunStartedData{Agent: "demo", Attempt: 1}), said(strings.Repeat("x", 200<<10)))
	h := newHub(t, l, Options{Budget: room.Budget{Ceiling: 64 << 20}, LoadWait: 50 * time.Millisecond})
	v, err := h.View(t.Context(), Request{Key: key, Dialect: native.Dialect{}, Transport: NDJSON{}})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	v.kept = h.Hold(key.Tenant)
	gate := entrance{hub: h, tenant: key.Tenant, hold: v.kept}
	if err := gate.pass(t.Context(), 1<<20); err != nil {
		t.Fatal(err)
	}
	if err := v.takeSnapshot(t.Context(), dialect.Reset, false); err != nil {
		t.Error(err)
	}
}

// A viewer that has the only turn gives it to the one that needs it to be done with the folds, for which this one waits.
func TestWhoWaitsForFoldsHasNoTurn(t *testing.T) {
	h := crowd()
	h.opts.LoadWait = 10 * time.Second
	v := &Viewer{hub: h, topic: &topic{hub: h}, kept: h.Hold("a")}
	if err := h.gate(v.kept).pass(t.Context(), 1<<20); err != nil {
		t.Fatal(err)
	}
	f := &v.topic.fold
	f.mu.Lock()
	f.folds = []*event.Session{event.NewSession("s")}
	done := make(chan error)
	go func() {
		_, err := v.descends(t.Context(), nil, &entry{Event: event.Event{Seq: 1, RunID: "sub"}})
		done <- err
	}()
	other := &Hold{}
	err := h.gate(other).pass(t.Context(), 1<<20)
	other.Drop()
	f.mu.Unlock()
	if err := errors.Join(err, <-done); err != nil {
		t.Error(err)
	}
	f.drop.Stop()
}
