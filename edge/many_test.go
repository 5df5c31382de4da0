package edge_test

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/edge"
	"github.com/runlog-dev/runlog/edge/room"
	"github.com/runlog-dev/runlog/edge/stream"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
	"github.com/runlog-dev/runlog/internal/testservers"
)

// manyURL names sessions s0 to s<n-1>.
func manyURL(n int, more string) string {
	q := url.Values{}
	for i := range n {
		q.Add("session", fmt.Sprint("s", i))
	}
	return "/v1/stream?" + q.Encode() + more
}

// One connection follows many sessions while they are written; wherever it is cut
// and at whichever edge it goes on, each session's events come once and in order.
func TestManySessionsOverOneConnection(t *testing.T) {
	s := newSite(t)
	edges := []*served{s.serve(edge.Options{}), s.serve(edge.Options{Stream: stream.Options{RingEvents: 10, PageBytes: 1000}})}
	const sessions, n = 5, 40
	var writers sync.WaitGroup
	for i := range sessions {
		w := s.scribe("default", fmt.Sprint("s", i))
		w.write(started("r"))
		writers.Go(func() {
			for j := range n {
				w.write(said("r", strconv.Itoa(j)))
			}
		})
	}
	for _, way := range ways[:3] {
		got, after := map[string][]event.Seq{}, ""
		total := 0
		for try := 0; total < sessions*(n+1); try++ {
			l, err := way.openMany(t, edges[try%2].url+manyURL(sessions, ""), after)
			if err != nil {
				t.Fatal(err)
			}
			for range 9 + 7*try {
				if total == sessions*(n+1) {
					break
				}
				m, err := l.next()
				if err != nil {
					t.Fatal(err)
				}
				if m.id == "" {
					t.Fatalf("no cursor: %+v", m)
				}
				after = m.id
				e := as[event.Event](t, []byte(m.data))
				got[e.SessionID] = append(got[e.SessionID], e.Seq)
				total++
			}
			l.close()
		}
		for i := range sessions {
			if err := complete(got[fmt.Sprint("s", i)], 1, n+1); err != nil {
				t.Errorf("%s, session %d: %v", way.name, i, err)
			}
		}
		l, err := way.openMany(t, edges[0].url+manyURL(sessions, "&follow=false"), after)
		if rest, err := all(t, l, err); err != nil || len(rest) > 0 {
			t.Errorf("%s, after all: %v %v", way.name, rest, err)
		}
	}
	writers.Wait()
}

// openMany reads lines of NDJSON as the objects that they are here.
func (w way) openMany(t testing.TB, url, after string) (viewer, error) {
	v, err := w.open(t, http1(nil), url, after)
	if l, ok := v.(*listener); ok && l.json {
		return &lineViewer{l}, err
	}
	return v, err
}

type lineViewer struct{ *listener }

func (v *lineViewer) next() (message, error) {
	for {
		line, err := v.rd.ReadBytes('\n')
		if err != nil {
			return message{}, err
		}
		if m := as[socketMessage](v.t, line); m.Event != "ping" {
			return message{m.ID, m.Event, string(m.Data)}, nil
		}
	}
}

func TestManySessionsAreBoundedAndWalled(t *testing.T) {
	s := newSite(t)
	key, other := s.key("a"), s.key("b")
	e := s.edge(edge.Options{})
	for i := range 100 {
		s.scribe("a", fmt.Sprint("s", i)).write(started("r"))
	}
	s.scribe("b", "foreign").write(started("r"))
	get := func(path, auth string, status int, header ...string) string {
		t.Helper()
		return string(wantStatus(t, e.do("GET", path, "", append(header, "Authorization", auth)...), status))
	}
	whole := get(manyURL(100, "&follow=0"), key, 200)
	if n := strings.Count(whole, "event: run.started"); n != 100 {
		t.Errorf("%d sessions began", n)
	}
	last := whole[strings.LastIndex(whole, "id: ")+4:]
	last = last[:strings.Index(last, "\n")]
	if rest := get(manyURL(100, "&follow=0"), key, 200, "Last-Event-ID", last); strings.Contains(rest, "id:") {
		t.Errorf("after %s: %s", last, rest)
	}
	if snapshots := get(manyURL(3, "&follow=0&snapshot=1"), key, 200); strings.Count(snapshots, "event: snapshot") != 3 {
		t.Errorf("%s", snapshots)
	}
	get(manyURL(101, ""), key, 400)
	get("/v1/stream", key, 400)
	get("/v1/stream?session=s1&session=s1", key, 400)
	get("/v1/stream?session=s1&dialect=plain", key, 400)
	get("/v1/stream?session=s1&session=none", key, 404)
	get("/v1/stream?session=s1&session=foreign", key, 404)
	get("/v1/stream?session=foreign&session=s1", other, 404)
	get(manyURL(3, ""), "Bearer rl_guess", 401)
	get(manyURL(99, ""), key, 400, "Last-Event-ID", last)
	get("/v1/stream?session=s1&session=s0", key, 400, "Last-Event-ID", stream.Positions{Mark: stream.NewPositions([]string{"s0", "s1"}).Mark, At: make([]stream.Position, 2)}.String())
	ahead := stream.NewPositions([]string{"s0", "s1"})
	ahead.At[1] = stream.Position{Seq: 9}
	get("/v1/stream?session=s0&session=s1", key, 409, "Last-Event-ID", ahead.String())
}

// Who follows other sessions than before goes on where each was, and gets a new one
// from its start, or as a snapshot. A cursor of the new set wins over the names.
func TestSessionsComeAndGo(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{})
	for _, id := range []string{"a", "b", "c"} {
		s.scribe("default", id).write(started("r"), said("r", "1"), said("r", "2"))
	}
	read := func(url, after string) (list []string, last string) {
		t.Helper()
		for _, m := range e.listen("/v1/stream?follow=false&"+url, "Last-Event-ID", after).rest() {
			d := as[struct {
				Session string    `json:"session_id"`
				Seq     event.Seq `json:"seq"`
			}](t, []byte(m.data))
			list, last = append(list, fmt.Sprint(d.Session, d.Seq, m.event == "snapshot")), m.id
		}
		slices.Sort(list)
		return list, last
	}
	_, old := read("session=a&session=b", "")
	e.get(400, "/v1/stream?session=a&session=c", "Last-Event-ID", old)
	for _, c := range []struct{ url, want string }{
		{"session=b/3&session=c/1", "[c2 false c3 false]"},
		{"session=b/2&session=c", "[b3 false c1 false c2 false c3 false]"},
		{"session=b%2F2&session=c&snapshot=1", "[b3 false c3 true]"},
		{"session=b/3&session=c/3", "[]"},
	} {
		got, last := read(c.url, "")
		if fmt.Sprint(got) != c.want {
			t.Errorf("%s: %v, want %s", c.url, got, c.want)
		}
		if again, _ := read(c.url, last); last != "" && len(again) > 0 {
			t.Errorf("%s after %s: %v", c.url, last, again)
		}
	}
	for url, status := range map[string]int{"session=a/9": 409, "session=a/x": 400, "session=a/1/2": 400, "session=a/-1": 400, "session=a/1&session=a/2": 400, "session=a/1&session=none": 404, "session=/1": 404} {
		e.get(status, "/v1/stream?"+url)
	}
}

// Streams of many count with each session that they follow, also against the memory
// that an edge may use: a hundred of them are a hundred viewers.
func TestSessionsOfManyAreCounted(t *testing.T) {
	s := newSite(t)
	for i := range 100 {
		s.scribe("default", fmt.Sprint("s", i)).write(started("r"))
	}
	free := room.InUse() + 64<<20
	for name, opts := range map[string]edge.Options{"streams": {MaxStreams: 150}, "memory": {Memory: 4 * free}} {
		e := s.serve(opts)
		var open []*listener
		status := 200
		for len(open) < 2000 {
			resp := e.do("GET", manyURL(100, ""), "")
			if status = resp.StatusCode; status != 200 {
				break
			}
			open = append(open, newListener(t, resp))
		}
		most := 1
		if name == "memory" {
			most = int(free) / (16 << 10) / 100
		}
		if status != 503 || len(open) != most || e.refusals(name) != 1 {
			t.Fatalf("%s: status %d after %d, want 503 after %d", name, status, len(open), most)
		}
		newListener(t, e.do("GET", manyURL(1, ""), "")).must()
		for _, l := range open {
			l.close()
		}
		waitFor(t, func() bool { return e.do("GET", manyURL(100, "&follow=0"), "").StatusCode == 200 })
	}
}

// A stream of many sessions is refused as soon as one of them is: where the log does
// not answer, the others are not waited for in turns of a few.
// A tenant whose streams are limited does not use up, by few of them, what all tenants may follow by streams of many.
func TestATenantLeavesSessionsToOthers(t *testing.T) {
	s := newSite(t)
	a, b := s.key("a"), s.key("b")
	for i := range 4 {
		s.scribe("a", fmt.Sprint("s", i)).write(started("r"))
		s.scribe("b", fmt.Sprint("s", i)).write(started("r"))
	}
	e := s.edge(edge.Options{MaxStreams: 8, TenantStreams: 8})
	first := e.listen(manyURL(3, ""), "Authorization", a)
	first.must()
	p := as[problem](t, wantStatus(t, e.do("GET", manyURL(2, ""), "", "Authorization", a), 429))
	if p.Code != "rate_limited" || !strings.Contains(p.Detail, "more than 4 sessions of one tenant") {
		t.Errorf("%+v", p)
	}
	e.listen(manyURL(4, ""), "Authorization", b).must()
	e.listen(manyURL(1, ""), "Authorization", a).must()
	first.close()
	waitFor(t, func() bool {
		resp, err := e.try("GET", manyURL(3, "&follow=false"), "", "Authorization", a)
		return err == nil && resp.StatusCode == 200
	})
}

func TestManySessionsAreRefusedWithTheFirst(t *testing.T) {
	c := testservers.NATS(t, 1)
	way := testservers.StartLossy(t, c.Node(0).Addr())
	nc, err := eventlog.Connect(way.URL(), "test")
	if err != nil {
		t.Fatal(err)
	}
	e := (&site{t: t}).edgeOn(openOn(t, nc, eventlog.Options{}), edge.Options{})
	e.get(404, "/v1/stream?session=none")
	way.Stall()
	asked := since(nc)
	e.get(503, manyURL(100, ""))
	if n := asked(); n == 0 || n > 200 { // each is asked for up to five times
		t.Errorf("the log was asked %d times", n)
	}
}

// An edge that is full or goes away refuses a stream of many sessions before it reads
// any of them.
func TestManySessionsOfAFullEdge(t *testing.T) {
	s := newSite(t)
	s.scribe("default", "s0").write(started("r"))
	nc, err := s.nats.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	l, err := eventlog.Open(t.Context(), nc, eventlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e := s.edgeOn(l, edge.Options{MaxStreams: 1, Stream: stream.Options{CheckHead: time.Hour}})
	first := e.listen("/v1/sessions/s0/events")
	first.must()
	asked := since(nc)
	refused := func(code string) {
		t.Helper()
		resp := e.do("GET", manyURL(1, ""), "")
		if p := as[problem](t, wantStatus(t, resp, 503)); p.Code != code || resp.Header.Get("Retry-After") == "" {
			t.Errorf("%+v, want %s", p, code)
		}
		if n := asked(); n > 0 {
			t.Errorf("the log was asked %d times", n)
		}
	}
	refused("overloaded")
	first.close()
	waitFor(t, func() bool { // its place is free
		resp, err := e.try("GET", "/v1/sessions/s0/events?follow=false", "")
		return err == nil && resp.StatusCode == 200
	})
	asked()
	e.srv.Drain()
	refused("unavailable")
	at := stream.NewPositions([]string{"s0"}).String()
	if resp, err := e.try("GET", manyURL(1, ""), "", "Accept", "text/event-stream", "Last-Event-ID", at); err == nil {
		t.Errorf("an EventSource that resumes gets %s", resp.Status)
	}
}

func FuzzPositions(f *testing.F) {
	f.Add("0")
	f.Add(stream.NewPositions([]string{"a", "b"}).String())
	f.Add("x~1_2.3_4")
	f.Fuzz(func(t *testing.T, s string) {
		p := stream.NewPositions([]string{"a", "b"})
		if err := p.Parse(s); err != nil {
			if !errors.Is(err, stream.ErrBadCursor) {
				t.Errorf("%q: %v", s, err)
			}
			return
		}
		again := stream.NewPositions([]string{"a", "b"})
		if err := again.Parse(p.String()); err != nil || again.String() != p.String() {
			t.Errorf("%q became %s and %s", s, p, again)
		}
	})
}
