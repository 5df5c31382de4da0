package stream

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/edge/room"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// frame makes a frame of n events that follow a position.
func frame(k eventlog.Key, after event.Seq, n int) eventlog.Frame {
	f := eventlog.Frame{Key: k, First: after + 1, Last: after + event.Seq(n)}
	for s := f.First; s <= f.Last; s++ {
		e := event.New(event.TextDelta, map[string]string{"delta": strings.Repeat("x", 100)})
		e.Seq, e.SessionID = s, k.Session
		f.Data = e.AppendLine(f.Data)
	}
	return f
}

func TestRingsTogetherAreBounded(t *testing.T) {
	const topics, rounds, limit = 50, 40, 200_000
	h := New(nil, nil, Options{Budget: room.Budget{Shared: limit}})
	var all []*topic
	for i := range topics {
		tp := &topic{hub: h, key: eventlog.Key{Tenant: "t", Session: fmt.Sprint(i)}, news: make(chan struct{})}
		h.topics[tp.key] = tp
		all = append(all, tp)
	}
	most := int64(0)
	for range rounds { // together five times the limit
		for _, tp := range all {
			tp.Frame(frame(tp.key, tp.head.Seq, 1))
			for deadline := time.Now().Add(10 * time.Second); h.rings.sweeping.Load() && time.Now().Before(deadline); {
				runtime.Gosched()
			}
			most = max(most, h.rings.used.Load())
		}
	}
	if most > limit+5_000 { // and one event
		t.Errorf("rings came to %d bytes, the limit is %d", most, limit)
	}
	if most < limit/2 {
		t.Errorf("rings came to no more than %d bytes of %d", most, limit)
	}
	for _, tp := range all {
		r := &tp.ring
		if len(r.blocks) == 0 || r.end() != tp.head.Seq || r.decoded[len(r.decoded)-1].Seq != tp.head.Seq || r.sum() != r.size {
			t.Fatalf("ring of %d bytes, counted as %d, from %d to %d, head is %d", r.sum(), r.size, r.base, r.end(), tp.head.Seq)
		}
	}
	h.Close()
	all[0].Frame(frame(all[0].key, all[0].head.Seq, 1)) // was on its way
	if used := h.rings.used.Load(); used != 0 {
		t.Errorf("%d bytes are counted and no topic is left", used)
	}
}

// await waits until no rings are being cut.
func (r *rings) await(t *testing.T) {
	t.Helper()
	await(t, "the end of a sweep", func() bool { return !r.sweeping.Load() })
}

// Sessions that are opened, and then are silent, are within the budget too.
func TestRingsOfSessionsThatAreOpenedAreBounded(t *testing.T) {
	const limit = 1 << 20
	h := New(nil, nil, Options{Budget: room.Budget{Shared: limit}})
	defer h.Close()
	for i := range 100 {
		tp := &topic{hub: h, key: eventlog.Key{Tenant: "t", Session: fmt.Sprint(i)}}
		h.topics[tp.key] = tp
		var frames []eventlog.Frame
		for at := range event.Seq(10) {
			frames = append(frames, frame(tp.key, 50*at, 50))
		}
		tp.begin(frames)
		h.rings.await(t)
	}
	if used := h.rings.used.Load(); used > limit*5/4 || used < limit/4 {
		t.Errorf("%d bytes of %d", used, limit)
	}
}

// A ring that was large once gives back all but its last frame, and one that is left
// alone by many others may not grow to what they had.
func TestRingsGiveBackWhatIsNotNeeded(t *testing.T) {
	const topics, limit = 100, 1 << 20
	h := New(nil, nil, Options{Budget: room.Budget{Shared: limit}})
	for i := range topics {
		tp := &topic{hub: h, key: eventlog.Key{Tenant: "t", Session: fmt.Sprint(i)}}
		h.topics[tp.key] = tp
		for range 600 {
			tp.Frame(frame(tp.key, tp.head.Seq, 1))
		}
		h.rings.await(t)
	}
	h.sweep()
	if used := h.rings.used.Load(); used > limit {
		t.Errorf("silent sessions keep %d bytes of %d", used, limit)
	}
	for _, tp := range h.topics {
		tp.Frame(frame(tp.key, tp.head.Seq, 100)) // its last frame stays
	}
	h.rings.await(t)
	h.sweep()
	if h.rings.sweepAt.Load() < 2*limit {
		t.Fatal("there is room for all last frames")
	}
	h.Close()
	tp := &topic{hub: h, key: key}
	h.topics[tp.key] = tp
	most := int64(0)
	for range 200 {
		tp.Frame(frame(tp.key, tp.head.Seq, 20))
		h.rings.await(t)
		most = max(most, h.rings.used.Load())
	}
	if most > limit {
		t.Errorf("%d bytes of %d", most, limit)
	}
}

// Rings that have room of their own are cut when the process has used up its memory, and
// not at each frame from then on.
func TestRingsAreCutForTheProcess(t *testing.T) {
	h := New(nil, nil, Options{Budget: room.Budget{Shared: 1 << 20}, Ledger: room.NewLedger()})
	h.rings.upTo = 1 << 40
	tp := &topic{hub: h, key: key}
	h.topics[tp.key] = tp
	for range 100 {
		tp.Frame(frame(tp.key, tp.head.Seq, 1))
	}
	if tp.ring.base != 0 {
		t.Fatalf("the ring begins after %d", tp.ring.base)
	}
	h.rings.upTo = 1
	tp.Frame(frame(tp.key, tp.head.Seq, 1))
	h.rings.await(t)
	if tp.ring.base != 100 {
		t.Errorf("the ring begins after %d", tp.ring.base)
	}
	if h.rings.surplus() != 0 {
		t.Error("the next frame cuts the rings again")
	}
}

// More sessions than the budget has room for: the last frames stay, and the rings
// are not cut again at each of them.
func TestLastFramesStayInRings(t *testing.T) {
	h := New(nil, nil, Options{Budget: room.Budget{Shared: 1000}})
	tp := &topic{hub: h, key: key, news: make(chan struct{})}
	h.topics[tp.key] = tp
	tp.add(frame(tp.key, 0, 20), tp.entries(new(event.Decoder), frame(tp.key, 0, 20)))
	tp.pulse.signAt = time.Now().Add(time.Hour) // the next sweep does not come too late
	h.sweep()
	if n := tp.ring.end() - tp.ring.base; n != 20 {
		t.Errorf("%d events of the last frame are left", n)
	}
	if at, used := h.rings.sweepAt.Load(), h.rings.used.Load(); at <= used {
		t.Errorf("the next frame sweeps again: at %d, used %d", at, used)
	}
	tp.Frame(frame(tp.key, 20, 1))
	tp.pulse.signAt = time.Now().Add(time.Hour)
	h.sweep()
	if tp.ring.base != 20 || tp.ring.end() != 21 {
		t.Errorf("events after %d to %d", tp.ring.base, tp.ring.end())
	}
	tp.pulse.signAt = time.Time{}
	h.sweep()
	if tp.ring.base != 21 || h.rings.used.Load() != 0 {
		t.Errorf("a silent session keeps %d bytes, and all events after %d", h.rings.used.Load(), tp.ring.base)
	}
}

func TestViewersGetEverythingWithoutRings(t *testing.T) {
	l := openLog(t)
	w := newWriter(t, l)
	write(t, w, event.RunStarted)
	h := newHub(t, l, Options{Budget: room.Budget{Shared: 1}, RingBytes: 1})
	got := make(chan string, 3)
	for range cap(got) {
		go func() { got <- serve(t, h, Request{RunID: "r"}) }()
	}
	const events = 200
	for range events - 2 {
		write(t, w, event.TextDelta)
	}
	write(t, w, event.RunCompleted)
	for range cap(got) {
		body := <-got
		at := 0
		for s := 1; s <= events; s++ {
			i := strings.Index(body[at:], fmt.Sprintf(`"seq":%d,`, s))
			if i < 0 {
				t.Fatalf("event %d is missing, or comes before its predecessor", s)
			}
			at += i
		}
		if n := strings.Count(body, `"seq":`); n != events {
			t.Errorf("%d events, want %d", n, events)
		}
	}
}

func TestATopicBeginsWithTheLastFrame(t *testing.T) {
	l := openLog(t)
	w := newWriter(t, l)
	write(t, w, event.RunStarted, event.TextDelta)
	if _, err := w.Append(event.New(event.TextDelta, struct{}{}), event.New(event.TextDelta, struct{}{})); err != nil {
		t.Fatal(err)
	}
	if err := w.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	h := newHub(t, l, Options{Observe: Observer{Paged: func(events, _ int) { t.Errorf("%d events were read from the log", events) }}})
	body := serve(t, h, Request{After: Position{Seq: 2}, NoFollow: true})
	if !strings.Contains(body, `"seq":3,`) || !strings.Contains(body, `"seq":4,`) || strings.Count(body, `"seq":`) != 2 {
		t.Errorf("after 2 came %s", body)
	}
}
