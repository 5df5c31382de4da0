package stream

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/edge/dialect/native"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

var key = eventlog.Key{Tenant: "default", Session: "s"}

func openLog(t testing.TB) *eventlog.Log {
	t.Helper()
	e, err := eventlog.StartEmbedded(t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	nc, err := e.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close(); _ = e.Close() })
	l, err := eventlog.Open(t.Context(), nc, eventlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// dialLog opens a log on a server outside of the process.
func dialLog(t testing.TB, url string) (*eventlog.Log, *nats.Conn) {
	t.Helper()
	nc, err := eventlog.Connect(url, "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	l, err := eventlog.Open(t.Context(), nc, eventlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return l, nc
}

func run(t testing.TB, lv *eventlog.Live) {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = lv.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
}

// newHub returns a hub that follows a log.
func newHub(t testing.TB, l *eventlog.Log, opts Options) *Hub {
	t.Helper()
	lv := l.NewLive()
	run(t, lv)
	h := New(l, lv, opts)
	t.Cleanup(h.Close)
	return h
}

// newWriter writes the session that tests look at.
func newWriter(t testing.TB, l *eventlog.Log) *eventlog.Writer {
	w := l.Writer(key, eventlog.Head{})
	t.Cleanup(w.Close)
	return w
}

func write(t testing.TB, w *eventlog.Writer, types ...event.Type) {
	t.Helper()
	for _, kind := range types {
		e := event.New(kind, struct{}{})
		e.RunID = "r"
		if _, err := w.Append(e); err != nil {
			t.Fatal(err)
		}
		if err := w.Sync(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}

// serve reads a stream to its end.
func serve(t testing.TB, h *Hub, r Request) string {
	t.Helper()
	r.Key = key
	if r.Dialect == nil {
		r.Dialect = native.Dialect{}
	}
	if r.Transport == nil {
		r.Transport = NDJSON{}
	}
	v, err := h.View(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	w := httptest.NewRecorder()
	if _, err := v.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := v.Serve(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	return w.Body.String()
}

// All live messages are lost: what was appended is found all the same.
func TestLostLiveMessagesAreFoundByTheHead(t *testing.T) {
	l := openLog(t)
	w := newWriter(t, l)
	write(t, w, event.RunStarted)
	h := New(l, l.NewLive(), Options{CheckHead: 20 * time.Millisecond, Heartbeat: 10 * time.Millisecond}) // Live does not run
	defer h.Close()
	got := make(chan string)
	go func() { got <- serve(t, h, Request{RunID: "r"}) }()
	write(t, w, event.TextDelta, event.RunCompleted)
	if lines := strings.Count(<-got, `"seq":`); lines != 3 {
		t.Errorf("%d events", lines)
	}
}

// counting counts how often an event is encoded.
type counting struct {
	native.Dialect
	encoded *atomic.Int64
}

func (c counting) Event(e event.Event, line []byte, to dialect.Audience) []dialect.Message {
	c.encoded.Add(1)
	return c.Dialect.Event(e, line, to)
}

func TestAnEventIsEncodedOnceForAllViewers(t *testing.T) {
	l := openLog(t)
	w := newWriter(t, l)
	h := newHub(t, l, Options{})
	d := counting{encoded: new(atomic.Int64)}
	const viewers, events = 20, 50
	views := make([]*Viewer, viewers)
	got := make(chan string, viewers)
	for i := range views {
		v, err := h.View(t.Context(), Request{Key: key, RunID: "r", Dialect: d, Transport: SSE{}})
		if err != nil {
			t.Fatal(err)
		}
		defer v.Close()
		views[i] = v
	}
	if n := h.Topics(); n != 1 {
		t.Errorf("%d topics for one session", n)
	}
	for range events - 1 {
		write(t, w, event.TextDelta)
	}
	write(t, w, event.RunCompleted)
	for _, v := range views {
		go func() {
			w := httptest.NewRecorder()
			if err := v.Serve(t.Context(), w); err != nil {
				t.Error(err)
			}
			_, body, _ := strings.Cut(w.Body.String(), "\n\n")
			got <- body
		}()
	}
	first := <-got
	for range viewers - 1 {
		if other := <-got; other != first {
			t.Fatal("two viewers got different bytes")
		}
	}
	// Two that ask at the same instant may both encode.
	if n := d.encoded.Load(); n < events || n > 2*events {
		t.Errorf("%d events were encoded %d times for %d viewers", events, n, viewers)
	}
}

func TestTopicsGoWithTheirViewers(t *testing.T) {
	l := openLog(t)
	h := newHub(t, l, Options{Linger: time.Millisecond})
	for range 20 { // closes and opens race
		v, err := h.View(t.Context(), Request{Key: key})
		if err != nil {
			t.Fatal(err)
		}
		v.Close()
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if v, err := h.View(gone, Request{Key: eventlog.Key{Tenant: "default", Session: "other"}}); err == nil {
		v.Close() // the topic was open before the viewer had gone
	}
	for deadline := time.Now().Add(20 * time.Second); h.Topics() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d topics without viewers", h.Topics())
		}
	}
}

// Asking for sessions that are not there leaves nothing behind.
func TestATopicWithoutEventsDoesNotLinger(t *testing.T) {
	l := openLog(t)
	h := newHub(t, l, Options{Linger: time.Hour})
	for _, session := range []string{"none", "s"} {
		k := eventlog.Key{Tenant: "default", Session: session}
		if session == "s" {
			fill(t, l, said("x"))
		}
		v, err := h.View(t.Context(), Request{Key: k})
		if err != nil {
			t.Fatal(err)
		}
		there := session == "s"
		if v.HasEvents() != there || h.HasEvents(k) != there {
			t.Errorf("%s: %v, %v", session, v.HasEvents(), h.HasEvents(k))
		}
		v.Close()
		if got := h.Topics() == 1; got != there {
			t.Errorf("%s: topic stays: %v", session, got)
		}
	}
}

func TestRingIsBounded(t *testing.T) {
	l := openLog(t)
	w := newWriter(t, l)
	h := newHub(t, l, Options{RingEvents: 10, RingBytes: 1 << 20})
	v, err := h.View(t.Context(), Request{Key: key, RunID: "r"})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	for range 200 {
		write(t, w, event.TextDelta)
	}
	write(t, w, event.RunCompleted)
	if err := v.Wait(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	v.topic.mu.Lock()
	defer v.topic.mu.Unlock()
	r := &v.topic.ring
	if n := r.end() - r.base; n > 10 || n < 7 || r.end() != v.topic.head.Seq {
		t.Errorf("%d events to %d", n, r.end())
	}
	if size := r.sum(); size != r.size || size != v.topic.cost {
		t.Errorf("size is %d, counted as %d and %d", size, r.size, v.topic.cost)
	}
}

// double sends each event as three messages, so that a cut may fall inside.
type double struct{ native.Dialect }

func (d double) Event(e event.Event, line []byte, to dialect.Audience) []dialect.Message {
	m := d.Dialect.Event(e, line, to)[0]
	return []dialect.Message{m, m, m}
}

func TestCutInsideAnEventResumesInside(t *testing.T) {
	l := openLog(t)
	w := newWriter(t, l)
	write(t, w, event.RunStarted, event.TextDelta, event.RunCompleted)
	h := newHub(t, l, Options{})
	ids := func(after Position, d dialect.Dialect) (got []string) {
		body := serve(t, h, Request{After: after, NoFollow: true, Dialect: d, Transport: SSE{}})
		for line := range strings.Lines(body) {
			if id, ok := strings.CutPrefix(line, "id: "); ok {
				got = append(got, strings.TrimSpace(id))
			}
		}
		return got
	}
	all := ids(Position{}, double{})
	if want := "[1.0 1.1 1 2.0 2.1 2 3.0 3.1 3]"; fmt.Sprint(all) != want {
		t.Fatalf("got %v, want %s", all, want)
	}
	for i, id := range all {
		at, err := ParsePosition(id)
		if err != nil {
			t.Fatal(err)
		}
		if got := ids(at, double{}); fmt.Sprint(got) != fmt.Sprint(all[i+1:]) && len(got)+len(all[i+1:]) > 0 {
			t.Errorf("after %s: %v, want %v", id, got, all[i+1:])
		}
		if native := ids(at, native.Dialect{}); len(native) != 3-int(at.Seq) {
			t.Errorf("after %s in another dialect: %v", id, native)
		}
	}
}

func FuzzPosition(f *testing.F) {
	for _, s := range []string{"", "0", "41", "41.0", "41.65535", "-1", "abc", "18446744073709551615", "18446744073709551616", "1.", ".1", "0.0", "٤", "1e3", " 1", "1\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParsePosition(s)
		if err != nil {
			if p != (Position{}) {
				t.Errorf("%q: %+v beside an error", s, p)
			}
			return
		}
		again, err := ParsePosition(p.String())
		if err != nil || again != p {
			t.Errorf("%q is %+v, read again %+v, %v", s, p, again, err)
		}
		if strings.ContainsAny(s, "+-eE \n") {
			t.Errorf("%q was taken for a position", s)
		}
	})
}

func TestFrames(t *testing.T) {
	m := dialect.Message{Event: "x", Data: []byte(`{"a":1}`)}
	bare := dialect.Message{Event: "position", Data: []byte(`{"seq":1}`), Bare: true}
	for _, c := range []struct {
		got  []byte
		want string
	}{
		{SSE{}.Append(nil, "41.0", m), "id: 41.0\nevent: x\ndata: {\"a\":1}\n\n"},
		{SSE{}.Append(nil, "", dialect.Message{Data: []byte("{}")}), "data: {}\n\n"},
		{NDJSON{}.Append(nil, "41", m), "{\"a\":1}\n"},
		{NDJSON{}.Append(nil, "", bare), "{\"type\":\"position\",\"seq\":1}\n"},
		{NDJSON{}.Append(nil, "", dialect.Message{Event: "x", Data: []byte("{}"), Bare: true}), "{\"type\":\"x\"}\n"},
	} {
		if string(c.got) != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

// held is a dialect whose encoding waits, as a slow one's would.
type held struct {
	native.Dialect
	entered chan struct{}
	release chan struct{}
}

func (h held) Event(e event.Event, line []byte, to dialect.Audience) []dialect.Message {
	select {
	case h.entered <- struct{}{}:
	default:
	}
	<-h.release
	return h.Dialect.Event(e, line, to)
}

// Viewers of one dialect do not wait for another one's encoding: they have all of
// the run, its end too, while that one is still at the first event.
func TestNoDialectSlowsAnothersViewers(t *testing.T) {
	l := openLog(t)
	w := newWriter(t, l)
	h := newHub(t, l, Options{})
	slow := held{entered: make(chan struct{}, 1), release: make(chan struct{})}
	late := make(chan string)
	go func() { late <- serve(t, h, Request{RunID: "r", Dialect: slow}) }()
	quick := make(chan string, 20)
	for range cap(quick) {
		go func() { quick <- serve(t, h, Request{RunID: "r"}) }()
	}
	write(t, w, event.RunStarted)
	<-slow.entered
	write(t, w, event.TextDelta, event.TextDelta, event.RunCompleted)
	for range cap(quick) {
		if got := <-quick; strings.Count(got, `"seq":`) != 4 {
			t.Errorf("a viewer beside the slow one got %s", got)
		}
	}
	close(slow.release)
	if got := <-late; strings.Count(got, `"seq":`) != 4 {
		t.Errorf("the slow one got %s", got)
	}
}
