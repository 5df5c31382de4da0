package edge_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/nats-io/nats.go"

	"github.com/runlog-dev/runlog/edge"
	"github.com/runlog-dev/runlog/edge/stream"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
	"github.com/runlog-dev/runlog/internal/testservers"
)

// A lossySite is an installation whose edge hears of the log over a connection
// that loses what a test wants.
type lossySite struct {
	*site
	cluster *testservers.Cluster
	way     *testservers.Lossy
	edge    *edgeNode
}

// checkHead is how long a session may be silent before an edge reads its head, and
// the bound for what is found in no other way.
const checkHead = 300 * time.Millisecond

func newLossySite(t *testing.T, nodes int) *lossySite {
	t.Helper()
	c := testservers.NATS(t, nodes)
	s := &lossySite{site: &site{t: t}, cluster: c, way: testservers.StartLossy(t, c.Node(nodes-1).Addr())}
	s.log = s.dial(c.URL(), nodes)
	through := s.dial(s.way.URL(), nodes, nats.IgnoreDiscoveredServers(), nats.PingInterval(200*time.Millisecond), nats.ReconnectWait(50*time.Millisecond))
	s.announce("demo")
	s.edge = s.edgeOn(through, edge.Options{Stream: stream.Options{CheckHead: checkHead, Heartbeat: 50 * time.Millisecond, Ping: 100 * time.Millisecond}})
	return s
}

func (s *lossySite) dial(url string, replicas int, opts ...nats.Option) *eventlog.Log {
	s.t.Helper()
	nc, err := eventlog.Connect(url, "test", opts...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(nc.Close)
	ctx, cancel := context.WithTimeout(s.t.(*testing.T).Context(), patience)
	defer cancel()
	l, err := eventlog.Open(ctx, nc, eventlog.Options{Replicas: replicas})
	if err != nil {
		s.t.Fatal(err)
	}
	return l
}

// A follower reads a stream to its end, and counts its signs of life.
type follower struct {
	l    *listener
	done chan struct{}

	mu     sync.Mutex
	more   sync.Cond
	got    []event.Seq
	life   int // heartbeats and pings
	err    error
	closed bool
}

// begin submits a run and follows all its streams and its session's, until all have
// its first event.
func (s *lossySite) begin(t *testing.T, session string) (w *scribe, runID string, all []*follower) {
	t.Helper()
	var r run
	waitFor(t, func() bool { // a connection that was cut may not be there again
		resp, err := s.edge.try("POST", "/v1/runs", `{"input":"x","session_id":"`+session+`"}`)
		if err != nil || resp.StatusCode != 202 {
			return false
		}
		r = as[run](t, wantStatus(t, resp, 202))
		return true
	})
	for _, path := range []string{"/v1/runs/" + r.RunID + "/events", "/v1/sessions/" + session + "/events"} {
		for _, accept := range []string{"text/event-stream", "application/x-ndjson"} {
			f := &follower{l: s.edge.listen(path, "Accept", accept), done: make(chan struct{})}
			f.more.L = &f.mu
			go f.read()
			all = append(all, f)
		}
	}
	w = s.scribe("default", session)
	w.write(started(r.RunID))
	for _, f := range all {
		f.has(t, 1)
	}
	return w, r.RunID, all
}

func (f *follower) read() {
	defer close(f.done)
	for {
		m, err := f.l.any()
		f.mu.Lock()
		switch {
		case err != nil:
			f.err, f.closed = err, true
		case m.id == "" || m.event == "heartbeat":
			f.life++
		default:
			n, _ := strconv.ParseUint(m.id, 10, 64)
			f.got = append(f.got, event.Seq(n))
		}
		f.more.Broadcast()
		f.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// await waits until ok.
func (f *follower) await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	stop := time.AfterFunc(patience, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.closed = true
		f.more.Broadcast()
	})
	defer stop.Stop()
	f.mu.Lock()
	defer f.mu.Unlock()
	for !ok() {
		if f.closed {
			t.Fatalf("no %s: got %d events, %v", what, len(f.got), f.err)
		}
		f.more.Wait()
	}
}

// has waits for the n-th event.
func (f *follower) has(t *testing.T, n int) {
	t.Helper()
	f.await(t, fmt.Sprint("event ", n), func() bool { return len(f.got) >= n })
}

// lives waits for two more signs of life: the stream is not silent now.
func (f *follower) lives(t *testing.T) {
	t.Helper()
	f.mu.Lock()
	before := f.life
	f.mu.Unlock()
	f.await(t, "sign of life", func() bool { return f.life >= before+2 })
}

// complete checks that all have got the events 1 to n once, and that the streams
// of the run, which come first, are over.
func checkComplete(t *testing.T, all []*follower, n int) {
	t.Helper()
	for i, f := range all {
		f.has(t, n)
		if i < 2 {
			<-f.done
			if !errors.Is(f.err, io.EOF) {
				t.Errorf("stream %d ended with %v", i, f.err)
			}
		}
		f.mu.Lock()
		if err := complete(f.got, 1, event.Seq(n)); err != nil {
			t.Errorf("stream %d: %v", i, err)
		}
		f.mu.Unlock()
	}
}

func isLive(subject string) bool { return strings.HasPrefix(subject, "live.") }

// An attack is what happens on the way while a run of a number of events is written;
// say appends that many, end the last one.
type attack struct {
	s   *lossySite
	w   *scribe
	run string
	all []*follower
}

func (a attack) say(n int) {
	for i := range n {
		a.w.write(said(a.run, strconv.Itoa(i)))
	}
}

func (a attack) end() { a.w.write(completed(a.run)) }

// live: the streams show signs of life now.
func (a attack) live(t *testing.T) {
	for _, f := range a.all {
		f.lives(t)
	}
}

const said60 = 60

var attacks = map[string]func(t *testing.T, a attack){
	"two of three live messages": func(_ *testing.T, a attack) {
		i := 0
		a.s.way.Lose(func(subject string) bool {
			i++
			return isLive(subject) && i%3 != 0
		})
		a.say(said60)
		a.end()
	},
	"the last ones": func(t *testing.T, a attack) {
		a.say(said60 - 3)
		for _, f := range a.all {
			f.has(t, said60-2)
		}
		a.s.way.Lose(isLive)
		a.say(3)
		a.end()
	},
	"all live messages": func(_ *testing.T, a attack) {
		a.s.way.Lose(isLive)
		a.say(said60)
		a.end()
	},
	"the connection": func(_ *testing.T, a attack) {
		for range 4 {
			a.say(said60 / 4)
			a.s.way.Cut()
		}
		a.end()
	},
	"a connection that says nothing any more": func(t *testing.T, a attack) {
		a.say(said60 / 2)
		a.s.way.Stall() // for good: the edge's pings find out
		a.say(said60 / 2)
		a.end()
		a.live(t)
	},
	"time": func(t *testing.T, a attack) {
		a.s.way.Stall()
		a.say(said60)
		a.live(t)
		a.s.way.Resume() // all at once
		a.end()
	},
}

// Whatever is lost between the log and an edge, and in whatever way, its viewers get
// every event once, and see meanwhile that their streams live.
func TestLossOnTheWay(t *testing.T) {
	s := newLossySite(t, 1)
	for what, happens := range attacks {
		t.Run(what, func(t *testing.T) {
			w, runID, all := s.begin(t, strings.ReplaceAll(what, " ", "-"))
			before := s.way.Lost()
			happens(t, attack{s, w, runID, all})
			checkComplete(t, all, said60+2)
			s.way.Lose(nil)
			t.Logf("%d messages were lost", s.way.Lost()-before)
		})
	}
	if s.way.Lost() < said60 {
		t.Errorf("only %d messages were lost in all", s.way.Lost())
	}
}

// The stream's leader changes time and again, and a third of what is live is lost.
func TestLossWhileLeadersChange(t *testing.T) {
	s := newLossySite(t, 3)
	w, runID, all := s.begin(t, "s")
	random := rand.New(rand.NewPCG(1, 2))
	s.way.Lose(func(subject string) bool { return isLive(subject) && random.IntN(3) == 0 })
	nc, err := nats.Connect(s.cluster.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	const rounds, each = 3, 40
	for range rounds {
		for i := range each {
			if i == each/2 {
				if _, err := nc.Request("$JS.API.STREAM.LEADER.STEPDOWN.LOG_0", nil, patience); err != nil {
					t.Fatal(err)
				}
			}
			w.write(said(runID, strconv.Itoa(i)))
		}
	}
	w.write(completed(runID))
	checkComplete(t, all, rounds*each+2)
	if s.way.Lost() == 0 {
		t.Error("nothing was lost")
	}
}

// A client whose edge goes away while it reads what the client has missed is told to
// come back, and not that it asks for something it may not have.
func TestDrainDuringAReadSaysSo(t *testing.T) {
	s := newLossySite(t, 1)
	s.scribe("default", "s").write(started("r"), said("r", "a"))
	other := s.edge.listen("/v1/sessions/s/events")
	defer other.close()
	other.must()
	s.way.Stall()
	c := s.edge.dial("/v1/sessions/s/events?snapshot=1", websocket.DialOptions{})
	waitFor(t, func() bool { return s.edge.srv.Holds().Streams == 2 })
	time.Sleep(20 * time.Millisecond) // into the read, which says so to nobody
	s.edge.srv.Drain()
	if code := c.closed(); code != websocket.StatusServiceRestart {
		t.Errorf("closed with %d", code)
	}
}
