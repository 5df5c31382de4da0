package stream

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/edge/dialect/langgraph"
	"github.com/runlog-dev/runlog/edge/dialect/native"
	"github.com/runlog-dev/runlog/edge/dialect/parts"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/internal/testservers"
)

// folding counts how often an event is encoded with the session before it.
type folding struct {
	parts.Dialect
	told *atomic.Int64
}

func (f folding) EventAfter(s *event.Session, e event.Event, line []byte, to dialect.Audience) []dialect.Message {
	f.told.Add(1)
	return f.Dialect.EventAfter(s, e, line, to)
}

// answers are n messages in a run.
func answers(n int) []event.Event {
	list := []event.Event{of(event.RunStarted, event.RunStartedData{Agent: "demo", Attempt: 1})}
	for i := range n {
		id := fmt.Sprint("m", i)
		said := []event.Part{event.TextPart("hello")}
		list = append(list, of(event.MessageStarted, event.MessageStartedData{MessageID: id, Role: event.RoleAssistant, Index: i}),
			of(event.TextDelta, event.TextDeltaData{MessageID: id, Delta: "hello"}),
			of(event.MessageCompleted, event.MessageCompletedData{MessageID: id, Role: event.RoleAssistant, Index: i, Parts: said, SHA256: event.TextHash(said)}))
	}
	return list
}

// A foldedSession is one of which the ring has all, and nothing decoded. Each event is
// a frame.
type foldedSession struct {
	hub   *Hub
	topic *topic
	nc    *nats.Conn
}

func newFoldedSession(t *testing.T, list []event.Event) *foldedSession {
	t.Helper()
	l, nc := dialLog(t, testservers.NATS(t, 1).URL())
	h := newHub(t, l, Options{})
	s := &foldedSession{h, nil, nc}
	s.topic = s.view(t, native.Dialect{}).topic
	w := newWriter(t, l)
	for _, e := range list {
		if _, err := w.Append(e); err != nil {
			t.Fatal(err)
		}
		if err := w.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "all events", func() bool { return s.topic.look(0, nil).head.Seq == event.Seq(len(list)) })
	s.topic.mu.Lock()
	s.topic.dropDecoded()
	s.topic.mu.Unlock()
	return s
}

func (s *foldedSession) view(t *testing.T, d dialect.Dialect) *Viewer {
	t.Helper()
	v, err := s.hub.View(t.Context(), Request{Key: key, RunID: "r", Dialect: d, Transport: SSE{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	return v
}

// step shows a viewer's next event, which it decodes for itself.
func (v *Viewer) stepOne(t *testing.T) {
	t.Helper()
	var one [1]*entry
	list := v.topic.look(v.at.Seq, one[:]).entries
	if len(list) == 0 {
		return
	}
	if _, err := v.mine(t.Context(), nil, list[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := v.wire(t.Context(), nil, list[0]); err != nil {
		t.Fatal(err)
	}
	v.at.Seq = list[0].Seq
}

// Viewers go through a session one behind the other: what the first one has had told
// with the session before it is told to the others too.
func TestWhatIsToldWithTheFoldIsToldOnce(t *testing.T) {
	const behind = 50
	list := answers(60)
	s := newFoldedSession(t, list)
	d := folding{told: new(atomic.Int64)}
	first, second := s.view(t, d), s.view(t, d)
	for i := range len(list) + behind {
		first.stepOne(t)
		if i >= behind {
			second.stepOne(t)
		}
	}
	needed := 0
	for _, e := range list {
		if d.Folds(e) {
			needed++
		}
	}
	if n := int(d.told.Load()); n != needed || n == 0 {
		t.Errorf("encoded %d times, %d events need it", n, needed)
	}
	if used := s.hub.rings.used.Load(); used <= int64(s.topic.ring.size) {
		t.Error("what is at hand is not in the budget")
	}
	s.topic.dropFold()
	if used := s.hub.rings.used.Load(); used != int64(s.topic.ring.size) {
		t.Errorf("%d bytes are in the budget, the ring has %d", used, s.topic.ring.size)
	}
}

// Viewers at several places of a session, each of which needs the session before what
// it shows, do not read it from the log again at every event.
func TestViewersAtSeveralPlacesReadTheLogLittle(t *testing.T) {
	list := answers(60)
	s := newFoldedSession(t, list)
	viewers := []*Viewer{s.view(t, parts.Dialect{}), s.view(t, langgraph.Dialect{}), s.view(t, folding{told: new(atomic.Int64)})}
	before := s.nc.Stats().OutMsgs
	for i := range len(list) + 100 {
		for j, v := range viewers {
			if i >= 50*j {
				v.stepOne(t)
			}
		}
	}
	if n := s.nc.Stats().OutMsgs - before; n > 20 {
		t.Errorf("asked the log %d times for %d events", n, len(list))
	}
}

// An event that cannot be read is passed over, whether the session before what is
// shown is in the ring or has to be read from the log.
func TestAnEventThatCannotBeReadStopsNoDialect(t *testing.T) {
	list := answers(3)
	s := newFoldedSession(t, list)
	head := s.topic.look(0, nil).head
	broken := nats.NewMsg("log.0." + key.Tenant + "." + key.Session)
	broken.Header.Set("Runlog-Seq", fmt.Sprintf("%d-%d", head.Seq+1, head.Seq+2))
	broken.Header.Set("Nats-Expected-Last-Subject-Sequence", fmt.Sprint(head.Pos))
	broken.Data = []byte("{\"v\":2\n")
	if _, err := s.nc.RequestMsg(broken, patience); err != nil {
		t.Fatal(err)
	}
	await(t, "what cannot be read", func() bool { return s.topic.look(0, nil).head.Seq == head.Seq+2 })
	head = s.topic.look(0, nil).head
	w := s.hub.log.Writer(key, head)
	defer w.Close()
	write(t, w, event.MessageStarted, event.RunCompleted)
	for _, after := range []event.Seq{0, head.Seq} {
		for _, d := range []dialect.Dialect{parts.Dialect{}, langgraph.Dialect{}} {
			h := New(s.hub.log, s.hub.log.NewLive(), Options{}) // which has nothing of it
			body := serve(t, h, Request{Dialect: d, Transport: SSE{}, NoFollow: true, After: Position{Seq: after}})
			if id := fmt.Sprintf("id: %d\n", head.Seq+2); !strings.Contains(body, id) {
				t.Errorf("%s after %d does not come to the end:\n%s", d.Name(), after, body)
			}
			h.Close()
		}
	}
}

// Two sub-agents speak in turns: whose they are is asked of the log once, wherever the
// viewers are.
func TestWhoseSubAgentsAreIsAskedOnce(t *testing.T) {
	list := []event.Event{of(event.RunStarted, event.RunStartedData{Agent: "demo", Attempt: 1})}
	sub := func(run string, kind event.Type, data any) {
		e := of(kind, data)
		e.RunID, e.Agent = run, "helper"
		list = append(list, e)
	}
	for _, run := range []string{"a", "b"} {
		sub(run, event.RunStarted, event.RunStartedData{Agent: "helper", Attempt: 1, ParentRunID: "r"})
	}
	for i := range 100 {
		sub([]string{"a", "b"}[i%2], event.StepStarted, event.StepStartedData{Step: i/2 + 1, Model: "m"})
	}
	s := newFoldedSession(t, list)
	first, second := s.view(t, native.Dialect{}), s.view(t, native.Dialect{})
	before := s.nc.Stats().OutMsgs
	for i := range len(list) + 40 {
		first.stepOne(t)
		if i >= 40 {
			second.stepOne(t)
		}
	}
	if n := s.nc.Stats().OutMsgs - before; n > 10 {
		t.Errorf("asked the log %d times for %d events", n, len(list))
	}
	if !first.sub.mine || !second.sub.mine {
		t.Error("whose they are is not known")
	}
}

// What is at hand of events that were told is bounded: the first ones go.
func TestToldIsBounded(t *testing.T) {
	var all encodings
	a, b := view{dialect: parts.Dialect{}}, view{dialect: native.Dialect{}}
	message := [][]byte{[]byte(strings.Repeat("x", 1000))}
	for seq := range event.Seq(100) {
		all.add(seq, &wire{view: a, messages: message}, 20_000)
		all.add(seq, &wire{view: b, messages: message}, 20_000)
		if all.size > 20_000 || len(all.of) != len(all.order) {
			t.Fatalf("%d bytes, %d and %d events", all.size, len(all.of), len(all.order))
		}
	}
	for _, v := range []view{a, b} {
		if all.find(99, v) == nil {
			t.Error("the last one is gone")
		}
		if all.find(50, v) != nil {
			t.Error("one of the first is there")
		}
	}
	for seq := range event.Seq(3) { // one that is too large stays for those who are at it
		all.add(200+seq, &wire{view: a, messages: [][]byte{make([]byte, 30_000)}}, 20_000)
		if all.find(200+seq, a) == nil || len(all.of) != 1 || len(all.order) != 1 {
			t.Errorf("%d bytes of %d events", all.size, len(all.of))
		}
	}
}

// Folds, and what was told with them, are of the memory that topics share: they go when that
// is used up, but for those in use, and all that they took is given back.
func TestFoldsAreOfTheBudget(t *testing.T) {
	s := newFoldedSession(t, answers(60))
	v := s.view(t, parts.Dialect{})
	before := s.hub.rings.used.Load()
	for range 100 {
		v.stepOne(t)
	}
	f := &s.topic.fold
	taken := s.hub.rings.used.Load() - before
	if f.size < 30*len("hello") || taken != int64(f.size+f.made.size) {
		t.Fatalf("%d bytes of folds and %d of told are counted as %d", f.size, f.made.size, taken)
	}
	f.mu.Lock()
	s.hub.sweep()
	if len(f.folds) == 0 {
		t.Error("a fold in use is gone")
	}
	f.mu.Unlock()
	s.hub.sweep()
	if left := s.hub.rings.used.Load() - before; len(f.folds) > 0 || f.size > 0 || left > 0 {
		t.Errorf("%d folds and %d bytes are left", len(f.folds), left)
	}
	at := v.at.Seq
	for range 10 {
		v.stepOne(t)
	}
	if v.at.Seq != at+10 || f.size == 0 {
		t.Errorf("it does not go on from %d: %d", at, v.at.Seq)
	}
}

// What a fold at hand lacks was purged, and a snapshot has it: the dialect tells what
// follows, and nobody has to begin anew.
func TestAFoldThatAPurgeLeavesBehind(t *testing.T) {
	s := newFoldedSession(t, answers(60))
	v := s.view(t, parts.Dialect{})
	if _, err := v.foldAt(t.Context(), 10, nil); err != nil {
		t.Fatal(err)
	}
	hundred, err := s.hub.log.LoadAt(t.Context(), key, 100, nil)
	if err == nil {
		err = s.hub.log.CatchTo(t.Context(), key, hundred, 100, s.topic.look(0, nil).head, nil)
	}
	if err == nil {
		err = s.hub.log.SaveSnapshot(t.Context(), key, hundred.Encode(), 100)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.topic.mu.Lock()
	s.topic.trim(1)
	s.topic.mu.Unlock()
	s.purge(t, 90)
	fold, err := v.foldAt(t.Context(), 150, nil)
	if err != nil || fold.Seq != 150 || len(fold.Messages) != 50 {
		t.Errorf("%+v, %v", fold, err)
	}
}

// purge removes the frames before one.
func (s *foldedSession) purge(t *testing.T, pos uint64) {
	t.Helper()
	js, err := jetstream.New(s.nc)
	if err != nil {
		t.Fatal(err)
	}
	str, err := js.Stream(t.Context(), "LOG_0")
	if err == nil {
		err = str.Purge(t.Context(), jetstream.WithPurgeSequence(pos))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A viewer has read further in the log than its topic has heard of: what it is told is
// told with all that was before.
func TestAFoldGoesFurtherThanItsTopic(t *testing.T) {
	list := answers(60)
	s := newFoldedSession(t, list[:100])
	v := s.view(t, parts.Dialect{})
	s.topic.watch.Close() // the rest is lost on its way
	head, err := s.hub.log.Head(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	w := s.hub.log.Writer(key, head)
	defer w.Close()
	if _, err := w.Append(list[100:]...); err != nil || w.Sync(t.Context()) != nil {
		t.Fatal(err)
	}
	if fold, err := v.foldAt(t.Context(), 150, nil); err != nil || fold.Seq != 150 {
		t.Errorf("the fold is %+v, %v", fold, err)
	}
}

// needy counts how often it is asked whether an event needs the session before it.
type needy struct {
	parts.Dialect
	asked *atomic.Int64
}

func (d needy) Folds(e event.Event) bool {
	folds := d.Dialect.Folds(e)
	if folds {
		d.asked.Add(1)
	}
	return folds
}

// The log is away when a viewer needs the session before an event that the ring has: its
// stream goes on when the log is there again.
func TestAStreamOutlivesTheLogThatItsFoldNeeds(t *testing.T) {
	c := testservers.NATS(t, 1)
	l, nc := dialLog(t, c.URL())
	w := newWriter(t, l)
	list := answers(40)
	for _, part := range [][]event.Event{list[:60], list[60:]} { // the ring begins with the second one
		if _, err := w.Append(part...); err != nil {
			t.Fatal(err)
		}
		if err := w.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	d := needy{asked: new(atomic.Int64)}
	v, err := newHub(t, l, Options{}).View(t.Context(), Request{Key: key, After: Position{Seq: w.Head().Seq - 5}, RunID: "r", Dialect: d, Transport: SSE{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	write(t, w, event.RunCompleted)
	await(t, "the run's end", func() bool { return v.topic.look(0, nil).head.Seq == w.Head().Seq })
	c.Stop()
	await(t, "the loss of the connection", func() bool { return !nc.IsConnected() })
	served := make(chan error, 1)
	go func() { served <- v.Serve(t.Context(), httptest.NewRecorder()) }()
	await(t, "another try", func() bool { return d.asked.Load() > 4 || len(served) > 0 })
	c.Start()
	if err := <-served; err != nil {
		t.Error(err)
	}
}
