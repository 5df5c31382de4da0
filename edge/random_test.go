package edge_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/runlog-dev/runlog/edge"
	"github.com/runlog-dev/runlog/edge/dialect/scenarios"
	"github.com/runlog-dev/runlog/internal/testservers"
)

// Whatever sessions say, in whatever frames, and whatever is lost, purged, cut off and
// restarted meanwhile: each of many kinds of viewers gets what the log says, once and
// in order, or an honest reset; a stream ends properly with its run alone; nobody
// waits for what is there; and all is given back at the end. Some have seen what a restore
// of the log has lost.
//
// RUNLOG_SEED names the trial to begin with, and RUNLOG_SOAK how long to go on with others.
// With RUNLOG_NODES=3 the log is in a cluster, whose nodes are killed and frozen one by one.
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

// trials have a log in common, and nothing else. It was restored at the beginning of some.
type trials struct {
	*lossySite
	cluster *testservers.Cluster
	stream  jetstream.Stream
}

func newTrials(t *testing.T) *trials {
	t.Helper()
	nodes := 1
	if n, err := strconv.Atoi(os.Getenv("RUNLOG_NODES")); err == nil {
		nodes = n
	}
	c := testservers.NATS(t, nodes)
	s := &lossySite{site: &site{t: t}}
	s.log = s.dial(c.URL(), nodes)
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
	return &trials{s, c, str}
}

// A trial is some sessions, who reads them, and two edges between them.
type trial struct {
	*trials
	t      *testing.T
	random *rand.Rand
	tight  bool // there is little room for whole conversations
	loses  bool // the log is restored once

	edges    []*frail
	sessions []*chronicle
	runs     map[*chronicle][]string
	done     atomic.Bool // all is written
	seen     tally
	said     records            // by edges that complain
	paths    map[string]float64 // that edges have taken, by their metrics
}

func (s *trials) trial(t *testing.T, seed uint64) {
	tr := &trial{trials: s, t: t, random: rand.New(rand.NewPCG(seed, 7)), runs: map[*chronicle][]string{}, paths: map[string]float64{}}
	tr.tight, tr.loses = tr.random.IntN(2) == 0, tr.random.IntN(2) == 0
	var authors []*author
	for i := range 3 {
		authors = append(authors, tr.begin(fmt.Sprintf("s%d-%d", seed, i)))
	}
	if tr.loses {
		tr.restore(authors)
	}
	before := runtime.NumGoroutine()
	for i := range 2 {
		tr.edges = append(tr.edges, tr.frailEdge(i))
	}
	var writing, visiting sync.WaitGroup
	for _, a := range authors {
		writing.Go(func() {
			if err := a.play(t.Context(), a.runs[1:]); err != nil {
				t.Error(err)
			}
		})
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
		tr.said.mu.Lock()
		defer tr.said.mu.Unlock()
		t.Logf("edges have said:\n%s", tr.said.buf.String())
	}
}

func (tr *trial) written() bool { return tr.done.Load() }

// begin plans a session's runs and has the first one written: who asks for a session that is
// not there gets 404.
func (tr *trial) begin(name string) *author {
	c := newChronicle(name)
	var all []string
	a := &author{chronicle: c, plan: map[string]string{}, random: rand.New(rand.NewPCG(tr.random.Uint64(), 1)), log: tr.log, stream: tr.stream, purges: tr.random.IntN(2) == 0, giants: 1}
	plots := scenarios.All()
	for i := range 4 + tr.random.IntN(5) {
		run := fmt.Sprint(name, "-r", i)
		if i == 0 && !tr.loses || tr.random.IntN(3) > 0 {
			a.plan[run] = plots[tr.random.IntN(len(plots))].Name
		}
		if i == 0 && tr.loses && len(a.runsOf(run)) > 1 {
			delete(a.plan, run) // a restore forgets those that the log has not begun
		}
		a.runs, all = append(a.runs, run), append(all, a.runsOf(run)...)
	}
	if err := a.play(tr.t.Context(), a.runs[:1]); err != nil {
		tr.t.Fatal(err)
	}
	tr.sessions, tr.runs[c] = append(tr.sessions, c), all
	return a
}

// restore takes the ends of logs away, as a restore of an older backup does, says so, and has
// the authors go on from there.
func (tr *trial) restore(authors []*author) {
	tr.t.Helper()
	ctx := tr.t.Context()
	var err error
	for _, a := range authors {
		err = errors.Join(err, a.lose(ctx))
	}
	tr.log = tr.dial(tr.cluster.URL(), tr.cluster.Nodes())
	if _, restoreErr := tr.log.Restore(ctx, nil); err != nil || restoreErr != nil {
		tr.t.Fatal(err, restoreErr)
	}
	for _, a := range authors {
		if err := a.goOn(ctx, tr.log); err != nil {
			tr.t.Fatal(err)
		}
	}
}

// trouble loses live messages, cuts the edges' connections to the log, and restarts
// edges and the log's servers, until all is written.
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
				tr.strike(random)
			}
		default:
			var n atomic.Int64
			of := int64(1 + random.IntN(4)) // one: all of them
			e.way.Lose(func(subject string) bool { return isLive(subject) && n.Add(1)%of == 0 })
		}
		time.Sleep(time.Duration(20+random.IntN(200)) * time.Millisecond)
	}
}

// strike kills the log's only server, or one of several; or it freezes that for a while, in
// which the others may choose another leader.
func (tr *trial) strike(random *rand.Rand) {
	n := tr.cluster.Node(random.IntN(tr.cluster.Nodes()))
	if tr.cluster.Nodes() == 1 || random.IntN(2) == 0 {
		n.Kill()
		n.Start()
		return
	}
	n.Pause()
	time.Sleep(time.Duration(random.IntN(15000)) * time.Millisecond)
	n.Resume()
}

// checkGivenBack waits until edges hold nothing of viewers who have left, and then
// until the edges themselves have gone.
func (tr *trial) checkGivenBack(goroutines int) {
	for _, e := range tr.edges {
		for deadline := time.Now().Add(patience); e.server().Holds() != (edge.Held{}); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				tr.t.Fatalf("nobody is there, and an edge holds %+v", e.server().Holds())
			}
		}
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
