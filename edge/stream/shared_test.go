package stream

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/edge/dialect/native"
	"github.com/runlog-dev/runlog/edge/room"
	"github.com/runlog-dev/runlog/event"
)

// A painter is a dialect whose snapshots take until it is told to go on.
type painter struct {
	native.Dialect
	*painting
}

type painting struct {
	begun atomic.Int32
	goOn  chan struct{}
}

func (p painter) Snapshot(kind dialect.Kind, s *event.Session, to dialect.Audience) []dialect.Message {
	p.begun.Add(1)
	<-p.goOn
	return p.Dialect.Snapshot(kind, s, to)
}

func viewer(t *testing.T, h *Hub, d dialect.Dialect) *Viewer {
	t.Helper()
	v, err := h.View(t.Context(), Request{Key: key, Dialect: d, Transport: SSE{}, Snapshot: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	return v
}

// here is how many viewers look for snapshots.
func (all *stands) here() (n int) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for _, st := range all.of {
		n += st.here
	}
	return n
}

// However many viewers ask for a snapshot while one is made, one more is made for all of them: it has what was appended
// before they asked, as the first one may not. Who comes later takes it as long as it is sent and the log has not gone
// on. It counts once, and is nobody's when all have left.
func TestViewersShareASnapshot(t *testing.T) {
	const many = 50
	l := openLog(t)
	w := newWriter(t, l)
	appendTo(t, w, of(event.RunStarted, event.RunStartedData{Agent: "demo", Attempt: 1}), said(strings.Repeat("x", 100<<10)))
	h := newHub(t, l, Options{Budget: room.Budget{Told: 1 << 20}, LoadWait: time.Minute})
	d := painter{painting: &painting{goOn: make(chan struct{})}}
	var all sync.WaitGroup
	take := func(v *Viewer) {
		all.Go(func() {
			if err := v.takeSnapshot(t.Context(), dialect.Snapshot, false); err != nil {
				t.Error(err)
			}
		})
	}
	first := viewer(t, h, d)
	take(first)
	await(t, "the first snapshot", func() bool { return d.begun.Load() == 1 })
	appendTo(t, w, said("news"))
	var others []*Viewer
	for range many {
		others = append(others, viewer(t, h, d))
		take(others[len(others)-1])
	}
	await(t, "all who ask", func() bool { return h.stands.here() == 1+many })
	close(d.goOn)
	all.Wait()
	late := viewer(t, h, d)
	take(late)
	all.Wait()
	if n := d.begun.Load(); n != 2 {
		t.Errorf("%d snapshots were made", n)
	}
	if first.at.Seq != 2 {
		t.Errorf("the first one shows event %d", first.at.Seq)
	}
	for _, v := range append(others, late) {
		if v.at.Seq != 3 || v.first != late.first {
			t.Fatalf("one shows event %d", v.at.Seq)
		}
	}
	if told, one := h.Holds().Told, int64(late.first.size()); told != int64(first.first.size())+one {
		t.Errorf("%d bytes are counted, one has %d", told, one)
	}
	appendTo(t, w, said("more"))
	later := viewer(t, h, d)
	take(later)
	all.Wait()
	if later.at.Seq != 4 {
		t.Errorf("who came when the log had gone on is shown event %d", later.at.Seq)
	}
	for _, v := range append(others, first, late, later) {
		v.dropSnapshot()
	}
	if told := h.Holds().Told; told != 0 || len(h.stands.of) != 0 {
		t.Errorf("all have gone: %d bytes, %d stands", told, len(h.stands.of))
	}
}

// Who waits for a snapshot that another viewer makes, which leaves, makes it.
func TestAMakerThatLeavesIsFollowed(t *testing.T) {
	l := openLog(t)
	w := newWriter(t, l)
	appendTo(t, w, of(event.RunStarted, event.RunStartedData{Agent: "demo", Attempt: 1}), said(strings.Repeat("x", 200<<10)))
	h := newHub(t, l, Options{Budget: room.Budget{Ceiling: 64 << 20}, LoadWait: time.Minute})
	busy := &Hold{}
	if err := h.gate(busy).pass(t.Context(), 1<<20); err != nil { // the only turn
		t.Fatal(err)
	}
	leaves, leave := context.WithCancel(t.Context())
	got := make(chan error, 2)
	take := func(ctx context.Context, v *Viewer) { got <- v.takeSnapshot(ctx, dialect.Snapshot, false) }
	maker, other := viewer(t, h, native.Dialect{}), viewer(t, h, native.Dialect{})
	go take(leaves, maker)
	await(t, "the maker's wait", func() bool { return h.loads.turns.count() == 2 })
	go take(t.Context(), other)
	await(t, "the other", func() bool { return h.stands.here() == 2 })
	leave()
	if err := <-got; !errors.Is(err, context.Canceled) {
		t.Errorf("who has left: %v", err)
	}
	busy.Drop()
	if err := <-got; err != nil || other.first == nil {
		t.Errorf("who has not: %v", err)
	}
}

// Loads that have to wait have nothing in memory meanwhile: they have let go of what they had read, and read it again.
func TestWhoWaitsToLoadHasReadNothing(t *testing.T) {
	h := crowd()
	busy, waits := &Hold{}, h.Hold("a")
	if err := h.gate(busy).try(t.Context(), 1<<20); err != nil {
		t.Fatal(err)
	}
	gate := h.gate(waits)
	var large *largeError
	if err := gate.try(t.Context(), 2<<20); !errors.As(err, &large) || large.bytes != 2<<20 {
		t.Fatalf("%v", err)
	}
	if told, n := h.Holds().Told, h.loads.turns.count(); told != 0 || n != 1 {
		t.Errorf("%d bytes and %d turns are taken", told, n)
	}
	if err := gate.try(t.Context(), smallFold); err != nil {
		t.Errorf("what is small: %v", err)
	}
	busy.Drop()
	if err := gate.try(t.Context(), 2<<20); err != nil {
		t.Error(err)
	}
	waits.Drop()
}
