package edge_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/runlog-dev/runlog/edge"
	"github.com/runlog-dev/runlog/edge/stream"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// count returns from..to.
func count(from, to event.Seq) []event.Seq {
	var all []event.Seq
	for s := from; s <= to; s++ {
		all = append(all, s)
	}
	return all
}

// complete says what is wrong with what a viewer has got of a log.
func complete(got []event.Seq, from, to event.Seq) error {
	if !slices.Equal(got, count(from, to)) {
		return fmt.Errorf("got %d events %v, want %d to %d", len(got), got, from, to)
	}
	return nil
}

// Viewers come and go while a run is written, each time resuming at the other
// edge: everybody gets everything once.
func TestViewersThatDropWhileTheLogGrowsMissNothing(t *testing.T) {
	s := newSite(t)
	edges := []*edgeNode{s.edge(edge.Options{}), s.edge(edge.Options{Stream: stream.Options{RingEvents: 20, PageBytes: 1000}})}
	const n = 250
	r := as[run](t, wantStatus(t, edges[0].do("POST", "/v1/runs", `{"input":"x","session_id":"s"}`), 202))
	w := s.scribe("default", "s")
	w.write(started(r.RunID))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			got, err := dropper{edges, "/v1/runs/" + r.RunID + "/events", 7 + 13*i, i%2 == 0, 0}.run()
			if err == nil {
				err = complete(got, 1, n+2)
			}
			if err != nil {
				t.Errorf("viewer %d: %v", i, err)
			}
			if i > 0 {
				return
			}
			// Had the cursor been wrong by one, it would show.
			for _, wrong := range []int{-1, 1} {
				got, err := dropper{edges, "/v1/runs/" + r.RunID + "/events", 50, false, wrong}.run()
				if err == nil && complete(got, 1, n+2) == nil {
					t.Errorf("a cursor that is wrong by %d was not noticed", wrong)
				}
			}
		})
	}
	for i := range n {
		w.write(said(r.RunID, strconv.Itoa(i)))
	}
	w.write(completed(r.RunID))
	wg.Wait()
}

// A dropper drops its stream after every few events and goes on at the next edge.
type dropper struct {
	edges  []*edgeNode
	path   string
	every  int
	ndjson bool
	wrong  int // added to each cursor
}

func (d dropper) run() (got []event.Seq, err error) {
	accept := "text/event-stream"
	if d.ndjson {
		accept = "application/x-ndjson"
	}
	cursor := 0
	for try := 0; ; try++ {
		header := []string{"Accept", accept}
		if cursor > 0 {
			header = append(header, "Last-Event-ID", strconv.Itoa(cursor+d.wrong))
		}
		resp, err := d.edges[try%len(d.edges)].try("GET", d.path, "", header...)
		if err != nil {
			return got, err
		}
		if resp.StatusCode == http.StatusNoContent {
			return got, nil
		}
		if resp.StatusCode != 200 {
			return got, fmt.Errorf("status %d", resp.StatusCode)
		}
		l := newListener(d.edges[0].t, resp)
		for range d.every {
			m, err := l.next()
			if errors.Is(err, io.EOF) {
				return got, nil
			}
			if err != nil {
				return got, err
			}
			cursor, _ = strconv.Atoi(m.id)
			got = append(got, event.Seq(cursor))
		}
		l.close()
	}
}

// What is appended exactly between the subscription, the look at the head and
// the reading of history arrives once.
func TestNothingIsLostBetweenHistoryAndLive(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{Stream: stream.Options{Linger: time.Millisecond}}) // each viewer opens a topic anew
	for round := range 20 {
		session := fmt.Sprint("s", round)
		w := s.scribe("default", session)
		w.write(said("r", "first"))
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := range 30 {
				w.write(said("r", strconv.Itoa(i)))
			}
			w.write(completed("r"))
		}()
		l := e.listen("/v1/sessions/" + session + "/events")
		var got []event.Seq
		for len(got) < 32 {
			got = append(got, seqs(t, []message{l.must()})...)
		}
		l.close()
		<-done
		if err := complete(got, 1, 32); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
}

// A viewer at the end of a long log gets only what it missed.
func TestResumeCostsWhatWasMissed(t *testing.T) {
	s := newSite(t)
	w := s.scribe("default", "s")
	for i := range 3000 {
		if _, err := w.w.Append(said("r", strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.w.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	e := s.edge(edge.Options{})
	body := e.get(200, "/v1/sessions/s/events?follow=false", "Last-Event-ID", "2900")
	if size := len(body) / 100; size > 400 {
		t.Errorf("%d bytes for each of 100 missed events", size)
	}
	whole := e.get(200, "/v1/sessions/s/events?follow=false", "Accept", "application/x-ndjson")
	if n := strings.Count(string(whole), "\n"); n != 3000 {
		t.Errorf("%d events from the start", n)
	}
}

// Fifty deltas of one instant are told apart by the log, not by a clock.
func TestEventsOfOneInstantResumeInOrder(t *testing.T) {
	s := newSite(t)
	w := s.scribe("default", "s")
	now := event.At(time.Now())
	list := make([]event.Event, 50)
	for i := range list {
		list[i] = said("r", strconv.Itoa(i))
		list[i].Time = now
	}
	if _, err := w.w.Append(list...); err != nil || w.w.Sync(t.Context()) != nil {
		t.Fatal(err)
	}
	e := s.edge(edge.Options{})
	got := seqs(t, e.listen("/v1/sessions/s/events?follow=false", "Last-Event-ID", "10").rest())
	if err := complete(got, 11, 50); err != nil {
		t.Error(err)
	}
}

func TestFiltersHideAndNeverRenumber(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{Stream: stream.Options{Heartbeat: 20 * time.Millisecond}})
	w := s.scribe("default", "s")
	w.write(started("r"))
	for range 200 {
		w.write(hiddenEvent())
	}
	w.write(said("r", "x"), hiddenEvent())
	l := e.listen("/v1/sessions/s/events")
	var ids []string
	for range 6 {
		m := l.must()
		ids = append(ids, m.event+" "+m.id)
	}
	// Three times because of the number, the last time at a heartbeat.
	want := []string{"run.started 1", "position 65", "position 129", "position 193", "text.delta 202", "position 203"}
	if !slices.Equal(ids, want) {
		t.Errorf("got %q, want %q", ids, want)
	}
	var inner event.Seq
	for _, m := range e.listen("/v1/sessions/s/events?follow=false&include=internal", "Last-Event-ID", "193").rest() {
		inner = as[event.Event](t, []byte(m.data)).Seq
	}
	if inner != 203 {
		t.Errorf("the auditor's last event is %d", inner)
	}
	if got := seqs(t, e.listen("/v1/sessions/s/events?follow=false", "Last-Event-ID", "129").rest()); !slices.Equal(got, []event.Seq{202}) {
		t.Errorf("back without internal: %v", got)
	}
}

func TestInternalPartsAreNotShown(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{})
	parts := []event.Part{event.TextPart("open"), {Type: event.PartText, Text: "hush", Internal: true}}
	s.scribe("default", "s").write(of("r", event.MessageCompleted, event.MessageCompletedData{MessageID: "m", Role: event.RoleAssistant, Parts: parts, SHA256: event.TextHash(parts)}))
	for _, path := range []string{"events?follow=false", "events?follow=false&snapshot=1", "snapshot", "messages", "messages?format=openai", "messages?format=anthropic"} {
		body := string(e.get(200, "/v1/sessions/s/"+path))
		if strings.Contains(body, "hush") || !strings.Contains(body, "open") {
			t.Errorf("%s: %s", path, body)
		}
		sep := "?"
		if strings.Contains(path, "?") {
			sep = "&"
		}
		if body := string(e.get(200, "/v1/sessions/s/"+path+sep+"include=internal")); !strings.Contains(body, "hush") {
			t.Errorf("auditor's %s: %s", path, body)
		}
	}
}

func TestSnapshotAndItsTail(t *testing.T) {
	s := newSite(t)
	w := s.scribe("default", goldenSession)
	w.golden()
	e := s.edge(edge.Options{})
	l := e.listen("/v1/sessions/" + goldenSession + "/events?snapshot=1")
	m := l.must()
	if m.event != "snapshot" || m.id != "42" {
		t.Fatalf("first: %+v", m)
	}
	snap := as[event.Session](t, []byte(m.data))
	if snap.Seq != 42 || len(snap.Messages) != 3 || snap.Book != nil {
		t.Errorf("%+v", snap)
	}
	w.write(started("next"))
	if m := l.must(); m.event != "run.started" || m.id != "43" {
		t.Errorf("tail: %+v", m)
	}
	// The same URL after a drop: what was missed, no second snapshot.
	if m := e.listen("/v1/sessions/"+goldenSession+"/events?snapshot=1", "Last-Event-ID", "42").must(); m.id != "43" {
		t.Errorf("resumed: %+v", m)
	}
	lines := e.listen("/v1/sessions/"+goldenSession+"/events?snapshot=1&follow=false", "Accept", "application/x-ndjson").rest()
	if len(lines) != 1 || lines[0].event != "snapshot" || lines[0].id != "43" {
		t.Errorf("%+v", lines)
	}
}

// purge removes what the log holds of a session before a seq.
func (s *site) purge(session string, before event.Seq) {
	s.t.Helper()
	nc, err := s.nats.Connect()
	if err != nil {
		s.t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		s.t.Fatal(err)
	}
	str, err := js.Stream(s.t.Context(), "LOG_0")
	if err != nil {
		s.t.Fatal(err)
	}
	k := eventlog.Key{Tenant: "default", Session: session}
	head, err := s.log.Head(s.t.Context(), k)
	if err != nil {
		s.t.Fatal(err)
	}
	for f, err := range s.log.Read(s.t.Context(), k, before-1, head) {
		if err == nil {
			err = str.Purge(s.t.Context(), jetstream.WithPurgeSubject("log.0.default."+session), jetstream.WithPurgeSequence(f.Pos))
		}
		if err != nil {
			s.t.Fatal(err)
		}
		return
	}
}

// A position that is no longer kept is answered with a reset that carries the
// fold, and the tail goes on from there.
func TestLostPositionIsAReset(t *testing.T) {
	s := newSite(t)
	w := s.scribe("default", "s")
	r := as[run](t, wantStatus(t, s.edge(edge.Options{}).do("POST", "/v1/runs", `{"input":"x","session_id":"s"}`), 202))
	w.write(started(r.RunID))
	for i := range 50 {
		w.write(said(r.RunID, strconv.Itoa(i)))
	}
	k := eventlog.Key{Tenant: "default", Session: "s"}
	fold, head, err := s.log.Load(t.Context(), k)
	if err == nil {
		err = s.log.SaveSnapshot(t.Context(), k, fold.Encode(), head)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.write(said(r.RunID, "after the snapshot"))
	s.purge("s", 40)
	e := s.edge(edge.Options{})
	for _, path := range []string{"/v1/sessions/s/events", "/v1/runs/" + r.RunID + "/events"} {
		for _, at := range []string{"", "5", "38"} {
			l := e.listen(path, "Last-Event-ID", at)
			m := l.must()
			if m.event != "reset" || m.id != "52" {
				t.Fatalf("%s after %q: %+v", path, at, m)
			}
			if snap := as[event.Session](t, []byte(m.data)); snap.Seq != 52 || len(snap.Messages) != 1 {
				t.Errorf("reset with %+v", snap)
			}
			l.close()
		}
		l := e.listen(path, "Last-Event-ID", "39")
		if m := l.must(); m.id != "40" {
			t.Errorf("a position that is kept: %+v", m)
		}
		l.close()
	}
	l := e.listen("/v1/runs/"+r.RunID+"/events", "Last-Event-ID", "1")
	l.must()
	w.write(completed(r.RunID))
	if got := seqs(t, l.rest()); !slices.Equal(got, []event.Seq{53}) {
		t.Errorf("the tail after a reset: %v", got)
	}
}

func TestStreamsShowThatTheyAreAlive(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{Stream: stream.Options{Heartbeat: 30 * time.Millisecond, Ping: 70 * time.Millisecond}})
	r := as[run](t, wantStatus(t, e.do("POST", "/v1/runs", `{"input":"x","session_id":"s"}`), 202))
	l := e.listen("/v1/runs/" + r.RunID + "/events")
	type beat struct {
		Status  event.Status `json:"status"`
		Elapsed int64        `json:"elapsed_ms"`
		Head    event.Seq    `json:"head"`
	}
	await := func(l *listener, status event.Status) beat {
		t.Helper()
		for {
			m, err := l.any()
			if err != nil {
				t.Fatalf("waiting for %s: %v", status, err)
			}
			if m.event != "heartbeat" {
				continue
			}
			if m.id != "" {
				t.Fatalf("a heartbeat moves the cursor: %+v", m)
			}
			if b := as[beat](t, []byte(m.data)); b.Status == status {
				return b
			}
		}
	}
	await(l, event.Pending)
	w := s.scribe("default", "s")
	w.write(started(r.RunID), of(r.RunID, event.RunStatus, event.RunStatusData{Status: event.Running}))
	if b := await(l, event.Running); b.Head != 2 {
		t.Errorf("%+v", b)
	}
	if err := s.log.Beat(w.k, eventlog.Beat{RunID: r.RunID, Status: event.WaitingTool, ElapsedMS: 41_000, Head: 2}); err != nil {
		t.Fatal(err)
	}
	if b := await(l, event.WaitingTool); b.Elapsed < 41_000 || b.Elapsed > 60_000 {
		t.Errorf("%+v", b)
	}
	session := e.listen("/v1/sessions/s/events", "Accept", "application/x-ndjson")
	if b := await(session, event.WaitingTool); b.Head != 2 {
		t.Errorf("%+v", b)
	}
	await(l, "unattended") // nobody beats for two leases
	await(session, "unattended")

	raw := e.do("GET", "/v1/runs/"+r.RunID+"/events?after=2", "")
	for found := false; !found; {
		buf := make([]byte, 4096)
		n, err := raw.Body.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		found = strings.Contains(string(buf[:n]), ": ping\n\n")
	}
}

// A client that stops reading costs nothing, is cut off, and resumes.
func TestReaderThatStopsReading(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{Stream: stream.Options{WriteTimeout: 300 * time.Millisecond}})
	w := s.scribe("default", "s")
	w.write(started("r"))
	stuck := make([]net.Conn, 10)
	for i := range stuck {
		conn, err := net.Dial("tcp", strings.TrimPrefix(e.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.(*net.TCPConn).SetReadBuffer(64 << 10)
		fmt.Fprintf(conn, "GET /v1/sessions/s/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
		stuck[i] = conn
	}
	other := e.listen("/v1/sessions/s/events")
	other.must()

	before := heap()
	big := strings.Repeat("x", 100_000)
	const n = 250 // 25 MB for each
	go func() {
		for range n {
			w.write(said("r", big))
		}
		w.write(completed("r"))
	}()
	var got []event.Seq
	for m := other.must(); ; m = other.must() {
		got = append(got, seqs(t, []message{m})...)
		if m.event == "run.completed" {
			break
		}
	}
	if err := complete(got, 2, n+2); err != nil {
		t.Errorf("the other viewer: %v", err)
	}
	if grown := int64(heap()) - int64(before); grown > 48<<20 {
		t.Errorf("the heap has grown by %d MB", grown>>20)
	}
	for _, conn := range stuck {
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		read, err := io.Copy(io.Discard, conn)
		if err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("the connection was not closed: %v", err)
		}
		if read > 20<<20 {
			t.Errorf("%d bytes were kept for a client that did not read", read)
		}
	}
	resumed := seqs(t, e.listen("/v1/sessions/s/events?follow=false", "Last-Event-ID", "3").rest())
	if err := complete(resumed, 4, n+2); err != nil {
		t.Error(err)
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Awkward text comes through byte for byte.
func TestFramingIsByteExact(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{})
	w := s.scribe("default", "s")
	texts := []string{"a\u2028b\u2029c\u0085d", "\r", "\r\n", "\n\ndata: x\n\nid: 99\n\n", ": ping", "北京 🌤 é", "\x00\x1f\ufeff", `{"a":"\u0000"}`, "</script>&amp;"}
	for _, text := range texts {
		w.write(said("r", text))
	}
	w.write(of("r", event.Custom, event.CustomData{Name: "n", Value: []byte(`{"z":9007199254740993,"a":1.0}`)}))
	for _, accept := range []string{"text/event-stream", "application/x-ndjson"} {
		all := e.listen("/v1/sessions/s/events?follow=false", "Accept", accept).rest()
		if len(all) != len(texts)+1 {
			t.Fatalf("%s: %d messages", accept, len(all))
		}
		for i, want := range texts {
			var d event.TextDeltaData
			if err := as[event.Event](t, []byte(all[i].data)).Into(&d); err != nil || d.Delta != want {
				t.Errorf("%s: got %q, want %q", accept, d.Delta, want)
			}
		}
		if !strings.Contains(all[len(texts)].data, `{"z":9007199254740993,"a":1.0}`) {
			t.Errorf("%s: numbers were touched: %s", accept, all[len(texts)].data)
		}
	}
}

// A draining edge aborts its streams: no client may take that for the end.
func TestDrainAbortsStreamsAndFinishesTheRest(t *testing.T) {
	s := newSite(t)
	s.scribe("default", "s").write(started("r"))
	l := s.open(eventlog.Options{})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := edge.New(edge.Deps{Log: l, Catalog: s.catalog}, edge.Options{})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx, ln) }()
	e := &edgeNode{t: t, url: "http://" + ln.Addr().String(), srv: srv}
	waitFor(t, func() bool {
		resp, err := e.try("GET", "/readyz", "")
		return err == nil && resp.StatusCode == 200
	})
	var streams []*listener
	for _, accept := range []string{"text/event-stream", "application/x-ndjson"} {
		v := e.listen("/v1/sessions/s/events", "Accept", accept)
		v.must()
		streams = append(streams, v)
	}
	stop()
	for _, v := range streams {
		if _, err := v.next(); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("the stream ended as if it were over: %v", err)
		}
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := http.Get(e.url + "/healthz"); err == nil {
		t.Error("it still serves")
	}
}

func waitFor(t testing.TB, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); {
		if time.Now().After(deadline) {
			t.Fatal("it did not come to pass")
		}
		runtime.Gosched()
	}
}
