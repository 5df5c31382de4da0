package edge_test

import (
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
	tight  bool // there is little room for whole conversations

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
	tr := &trial{trials: s, t: t, random: rand.New(rand.NewPCG(seed, 7)), runs: map[*chronicle][]string{}, paths: map[string]float64{}}
	tr.tight = tr.random.IntN(2) == 0
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

// begin plans a session's runs and has them written.
func (tr *trial) begin(name string, writing *sync.WaitGroup) {
	c := newChronicle(name)
	var runs, all []string
	a := &author{chronicle: c, plan: map[string]string{}, random: rand.New(rand.NewPCG(tr.random.Uint64(), 1)), log: tr.log, stream: tr.stream, purges: tr.random.IntN(2) == 0, giants: 1}
	plots := scenarios.All()
	for i := range 4 + tr.random.IntN(5) {
		run := fmt.Sprint(name, "-r", i)
		if i == 0 || tr.random.IntN(3) > 0 {
			a.plan[run] = plots[tr.random.IntN(len(plots))].Name
		}
		runs, all = append(runs, run), append(all, a.runsOf(run)...)
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
