package edge_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/runlog-dev/runlog/edge"
	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/edge/dialect/native"
	"github.com/runlog-dev/runlog/edge/stream"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
	"github.com/runlog-dev/runlog/internal/testservers"
)

// Whatever sessions say, in whatever frames, and whatever is lost, purged, cut off and
// restarted meanwhile: each of many kinds of viewers gets what the log says, once and
// in order, or an honest reset; a stream ends properly with its run alone; nobody
// waits for what is there; and all is given back at the end.
//
// RUNLOG_SEED names the trial to begin with, and RUNLOG_SOAK how long to go on with others.
func TestRandomViewers(t *testing.T) {
	s := newTrials(t)
	seed, trials, until := uint64(1), 2, time.Time{}
	if d, err := time.ParseDuration(os.Getenv("RUNLOG_SOAK")); err == nil {
		seed, until = uint64(time.Now().Unix()), time.Now().Add(d)
	}
	if n, err := strconv.ParseUint(os.Getenv("RUNLOG_SEED"), 10, 64); err == nil {
		seed, trials = n, 1
	}
	for n := 0; n < trials || time.Now().Before(until); n++ {
		if !t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) { s.trial(t, seed) }) {
			return
		}
		seed++
	}
}

// trials have a log in common, and nothing else.
type trials struct {
	*site
	cluster *testservers.Cluster
	stream  jetstream.Stream
}

func newTrials(t *testing.T) *trials {
	t.Helper()
	c := testservers.NATS(t, 1)
	s := &lossySite{site: &site{t: t}}
	s.log = s.dial(c.URL(), 1)
	s.announce("demo")
	nc, err := nats.Connect(c.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	str, err := js.Stream(t.Context(), "LOG_0")
	if err != nil {
		t.Fatal(err)
	}
	return &trials{s.site, c, str}
}

// A trial is some sessions, who reads them, and two edges between them.
type trial struct {
	*trials
	t      *testing.T
	random *rand.Rand
	soon   time.Duration // within which what is there has to come

	edges    []*frail
	sessions []*chronicle
	runs     map[*chronicle][]string
	done     atomic.Bool // all is written
	seen     tally
	said     records            // by edges that complain
	paths    map[string]float64 // that edges have taken, by their metrics
}

func (s *trials) trial(t *testing.T, seed uint64) {
	before := runtime.NumGoroutine()
	tr := &trial{trials: s, t: t, random: rand.New(rand.NewPCG(seed, 7)), soon: patience, runs: map[*chronicle][]string{}, paths: map[string]float64{}}
	for range 2 {
		tr.edges = append(tr.edges, tr.frailEdge())
	}
	var writing, visiting sync.WaitGroup
	for i := range 3 {
		tr.begin(fmt.Sprintf("s%d-%d", seed, i), &writing)
	}
	for i := range 24 {
		v := tr.visitor(i)
		visiting.Go(func() {
			if err := v.visit(t.Context()); err != nil {
				t.Errorf("%s: %v\n%s", v.name, err, strings.Join(v.trace, "\n"))
			}
		})
	}
	go func() { writing.Wait(); tr.done.Store(true) }()
	tr.trouble()
	visiting.Wait()
	tr.checkGivenBack(before)
	t.Log(&tr.seen, tr.paths)
	if t.Failed() {
		t.Logf("edges have said:\n%s", tr.said.buf.String())
	}
}

func (tr *trial) written() bool { return tr.done.Load() }

// begin announces a session's runs and has them written.
func (tr *trial) begin(name string, writing *sync.WaitGroup) {
	c := newChronicle(name)
	var runs []string
	for i := range 4 + tr.random.IntN(5) {
		runs = append(runs, fmt.Sprint(name, "-r", i))
	}
	a := &author{chronicle: c, plan: map[string]string{}, random: rand.New(rand.NewPCG(tr.random.Uint64(), 1)), log: tr.log, stream: tr.stream, purges: tr.random.IntN(2) == 0, giants: 1}
	all := slices.Concat(runs, a.announce(runs))
	for _, run := range all {
		tr.index(run, name)
	}
	if err := a.play(tr.t.Context(), runs[:1]); err != nil { // who asks for a session that is not there gets 404
		tr.t.Fatal(err)
	}
	tr.sessions, tr.runs[c] = append(tr.sessions, c), all
	writing.Go(func() {
		if err := a.play(tr.t.Context(), runs[1:]); err != nil {
			tr.t.Error(err)
		}
	})
}

// visitor chooses who reads what, and how.
func (tr *trial) visitor(n int) *visitor {
	random := rand.New(rand.NewPCG(tr.random.Uint64(), 2))
	v := &visitor{trial: tr, random: random, query: url.Values{}, snapshot: random.IntN(6) == 0, late: random.IntN(6) == 0}
	c := tr.sessions[random.IntN(len(tr.sessions))]
	r := &reading{c: c, seen: &tr.seen}
	switch runs := tr.runs[c]; random.IntN(8) {
	case 0:
		v.path = "/v1/stream"
		for _, c := range tr.sessions {
			v.parts = append(v.parts, &reading{c: c, seen: &tr.seen})
		}
		v.book = newBundle(v.parts)
	case 1, 2, 3:
		v.path, v.parts, v.book = "/v1/sessions/"+c.key.Session+"/events", []*reading{r}, r
	default:
		r.run = runs[random.IntN(len(runs))]
		v.path, v.parts, v.book = "/v1/runs/"+r.run+"/events", []*reading{r}, r
	}
	if err := v.turn(); err != nil {
		tr.t.Fatal(err)
	}
	if len(v.parts) == 1 && random.IntN(4) == 0 {
		if err := r.from(event.Seq(random.IntN(int(c.committed()) + 1))); err != nil {
			tr.t.Fatal(err)
		}
	}
	v.name = fmt.Sprintf("visitor %d", n)
	return v
}

// turn chooses how a visitor goes on.
func (v *visitor) turn() error {
	r := v.random
	v.way, v.query = ways[r.IntN(5)], url.Values{}
	v.dropClient()
	catchup := []stream.Catchup{"", stream.Events, stream.Merged, stream.ToSnapshot}[r.IntN(4)]
	if catchup != "" {
		v.query.Set("catchup", string(catchup))
	}
	audience := dialect.Client
	if r.IntN(4) == 0 {
		audience = dialect.Auditor
		v.query.Set("include", "internal")
	}
	d := dialect.Dialect(native.Dialect{})
	if all := edge.Dialects(); len(v.parts) == 1 && r.IntN(2) == 0 {
		d = all[r.IntN(len(all))]
		v.query.Set("dialect", d.Name())
		v.way = ways[[]int{0, 2, 3}[r.IntN(3)]] // lines have no position in other dialects
	}
	for _, p := range v.parts {
		if len(v.parts) > 1 {
			v.query.Add("session", p.c.key.Session)
		}
		p.socket = v.way.accept == ""
		if err := p.turn(d, audience, catchup); err != nil {
			return err
		}
	}
	return nil
}

// trouble loses live messages, cuts the edges' connections to the log, and restarts
// edges and the log's server, until all is written.
func (tr *trial) trouble() {
	random := rand.New(rand.NewPCG(tr.random.Uint64(), 3))
	for !tr.written() {
		e := tr.edges[random.IntN(len(tr.edges))]
		switch random.IntN(8) {
		case 0:
			e.restart()
		case 1:
			e.way.Cut()
		case 2:
			e.way.Stall()
			time.Sleep(50 * time.Millisecond)
			e.way.Resume()
		case 3:
			e.way.Lose(nil)
			if random.IntN(4) == 0 {
				tr.cluster.Kill()
				tr.cluster.Start()
			}
		default:
			var n atomic.Int64
			of := int64(1 + random.IntN(4)) // one: all of them
			e.way.Lose(func(subject string) bool { return isLive(subject) && n.Add(1)%of == 0 })
		}
		time.Sleep(time.Duration(20+random.IntN(200)) * time.Millisecond)
	}
}

// checkGivenBack waits until edges hold nothing of viewers who have left, and then
// until the edges themselves have gone.
func (tr *trial) checkGivenBack(goroutines int) {
	for _, e := range tr.edges {
		waitFor(tr.t, func() bool { return e.server().Holds() == edge.Held{} })
		e.end()
	}
	http.DefaultClient.CloseIdleConnections()
	deadline := time.Now().Add(patience)
	for runtime.NumGoroutine() > goroutines+4 {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<20)
			tr.t.Fatalf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), goroutines, buf[:runtime.Stack(buf, true)])
		}
		time.Sleep(time.Millisecond)
	}
}

// A frail edge hears of the log over a connection that loses messages, keeps little in
// memory, and is restarted at another address.
type frail struct {
	tr   *trial
	way  *testservers.Lossy
	opts stream.Options

	mu    sync.Mutex
	url   string
	srv   *edge.Server
	stop  context.CancelFunc
	ended chan error
	nats  *nats.Conn

	metrics *prometheus.Registry
}

func (tr *trial) frailEdge() *frail {
	r := tr.random
	e := &frail{tr: tr, way: testservers.StartLossy(tr.t, tr.cluster.Node(0).Addr()), opts: stream.Options{
		RingBytes: 4000 << r.IntN(6), RingEvents: 4 << r.IntN(8), RingTotal: 20000 << r.IntN(4), PageBytes: 1000 << r.IntN(7), PageReaders: 1 + r.IntN(3),
		Linger: time.Duration(1+r.IntN(60)) * time.Millisecond, Ping: 40 * time.Millisecond, Heartbeat: 30 * time.Millisecond, CheckHead: 100 * time.Millisecond,
		WriteTimeout: time.Duration(50+r.IntN(3000)) * time.Millisecond, PageQueue: 4 + r.IntN(50),
	}}
	e.start()
	return e
}

func (e *frail) start() {
	logger := slog.New(slog.NewTextHandler(&e.tr.said, &slog.HandlerOptions{Level: slog.LevelWarn}))
	nc, l, err := e.dial()
	for ; err != nil; nc, l, err = e.dial() {
		if !errors.Is(err, eventlog.ErrUnavailable) {
			e.tr.t.Error(err)
			return
		}
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		e.tr.t.Error(err)
		return
	}
	reg := prometheus.NewRegistry()
	srv := edge.New(edge.Deps{Log: l, Logger: logger, Metrics: reg}, edge.Options{Stream: e.opts})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx, narrow{ln}) }()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.url, e.srv, e.stop, e.ended, e.nats, e.metrics = "http://"+ln.Addr().String(), srv, stop, ended, nc, reg
}

// narrow connections take little that their clients do not read.
type narrow struct{ net.Listener }

func (l narrow) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		err = conn.(*net.TCPConn).SetWriteBuffer(16 << 10)
	}
	return conn, err
}

func (e *frail) dial() (*nats.Conn, *eventlog.Log, error) {
	nc, err := eventlog.Connect(e.way.URL(), "test", nats.IgnoreDiscoveredServers(), nats.PingInterval(200*time.Millisecond), nats.ReconnectWait(20*time.Millisecond))
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	l, err := eventlog.Open(ctx, nc, eventlog.Options{})
	if err != nil {
		nc.Close()
	}
	return nc, l, err
}

func (e *frail) base() string         { e.mu.Lock(); defer e.mu.Unlock(); return e.url }
func (e *frail) server() *edge.Server { e.mu.Lock(); defer e.mu.Unlock(); return e.srv }

func (e *frail) restart() { e.end(); e.start() }

func (e *frail) end() {
	e.stop()
	if err := <-e.ended; err != nil {
		e.tr.t.Errorf("an edge ended with %v", err)
	}
	e.nats.Close()
	all, err := e.metrics.Gather()
	if err != nil {
		e.tr.t.Error(err)
	}
	for _, f := range all {
		name := strings.TrimPrefix(f.GetName(), "runlog_edge_")
		for _, m := range f.GetMetric() {
			switch name {
			case "streams_ended_total":
				e.tr.paths[m.GetLabel()[0].GetValue()] += m.GetCounter().GetValue()
			case "resets_total", "log_events_read_total", "parked_streams_woken_total", "events_sent_total":
				e.tr.paths[name] += m.GetCounter().GetValue()
			}
		}
	}
}
