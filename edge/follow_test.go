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
	for i := range 10_000 {
		if _, err := w.w.Append(said("r", strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.w.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	e := s.edge(edge.Options{})
	body := e.get(200, "/v1/sessions/s/events?follow=false", "Last-Event-ID", "9900")
	if size := len(body) / 100; size > 400 {
		t.Errorf("%d bytes for each of 100 missed events", size)
	}
	whole := e.get(200, "/v1/sessions/s/events?follow=false", "Accept", "application/x-ndjson")
	if n := strings.Count(string(whole), "\n"); n != 10_000 {
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
	e := s.serve(edge.Options{Stream: stream.Options{WriteTimeout: 2 * time.Second, RingBytes: 1 << 20}})
	w := s.scribe("default", "s")
	w.write(started("r"))
	stuck := make([]net.Conn, 10)
	for i := range stuck {
		conn := e.connect()
		_ = conn.SetReadBuffer(64 << 10)
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
	if grown := int64(heap()) - int64(before); grown > 64<<20 { // the event log is in this process too
		t.Errorf("the heap has grown by %d MB", grown>>20)
	}
	waitFor(t, func() bool { _, open := e.sample("open_streams"); return open <= 1 }) // all but the one that reads
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

// A draining edge aborts its streams: no client may take that for the end.
// A stream does not say Connection: close. Where it does, fetch of Node.js takes a
// connection that breaks, by a drain or a crash, for the end of the answer.
func TestStreamsDoNotAnnounceTheEndOfTheConnection(t *testing.T) {
	s := newSite(t)
	s.scribe("default", "s").write(started("r"))
	e := s.edge(edge.Options{})
	l := e.listen("/v1/sessions/s/events")
	if l.must(); l.resp.Close || l.resp.Header.Get("Connection") != "" {
		t.Errorf("headers: %v", l.resp.Header)
	}
}

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
		time.Sleep(time.Millisecond)
	}
}
