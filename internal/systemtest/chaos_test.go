package systemtest

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/event"

	runlogclient "github.com/runlog-dev/runlog/clients/go"
)

// chaosFor is how long servers go down one after the other. RUNLOG_CHAOS sets another time, such as 5m.
func chaosFor(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("RUNLOG_CHAOS")
	if text == "" {
		return 8 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Servers of all kinds go down and come back in random order while clients submit and follow runs: every run ends as
// it should, every viewer sees just what the log holds.
func chaos(t *testing.T, p *production) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	c := p.client(0)
	var viewers []*viewer
	submit := func() {
		sub := runlogclient.Submission{Agent: "probe", SessionID: fmt.Sprintf("chaos-%d-%d", seed, random.IntN(6)), Input: p.anything(random)}
		r, err := c.Submit(t.Context(), sub)
		if err != nil {
			t.Fatalf("submit in the middle of chaos: %v", err)
		}
		viewers = append(viewers, p.watch(t, run{RunID: r.RunID, SessionID: r.SessionID}, random.IntN(2)))
	}
	for range 6 {
		submit()
	}
	for end := time.Now().Add(chaosFor(t)); time.Now().Before(end); {
		t.Log(p.strike(random))
		submit()
	}
	p.whole()
	p.awaitLeader(t, viewers[0].run.SessionID)
	for _, v := range viewers {
		v.completed(t, p.at[0])
		p.honest(t, v.run)
	}
	t.Logf("%d runs", len(viewers))
}

// awaitLeader waits for the election after the death of the node that led the log: until then
// reads are refused with 503.
func (p *production) awaitLeader(t *testing.T, session string) {
	t.Helper()
	eventually(t, "the log to have a leader", func() bool {
		a, err := p.at[0].try(t.Context(), http.MethodGet, "/v1/sessions/"+session+"/events?follow=false", "", "Accept", ndjson)
		return err == nil && a.StatusCode == http.StatusOK
	})
}

// anything is an input for the probe.
func (p *production) anything(random *rand.Rand) string {
	inputs := []string{"tell", "hello", `count {"n":10,"delay_ms":100}`, `sleep {"ms":1500}`, "write some note", "stumble"}
	return inputs[random.IntN(len(inputs))]
}

// strike takes one server down, in one of several ways, and brings it back.
func (p *production) strike(random *rand.Rand) string {
	i := random.IntN(2)
	switch random.IntN(7) {
	case 0:
		p.worker[i].Kill()
		p.worker[i].again()
		return fmt.Sprintf("worker %d was killed", i)
	case 1:
		p.worker[i].Stop()
		p.worker[i].again()
		return fmt.Sprintf("worker %d was stopped", i)
	case 2:
		p.worker[i].Pause()
		time.Sleep(lease * time.Duration(5+random.IntN(10)) / 10)
		p.worker[i].Resume()
		return fmt.Sprintf("worker %d was paused", i)
	case 3:
		p.edge[i].Kill()
		p.edge[i].again()
		return fmt.Sprintf("edge %d was killed", i)
	case 4:
		p.edge[i].Stop()
		p.edge[i].again()
		return fmt.Sprintf("edge %d was stopped", i)
	case 5:
		p.pg.Kill()
		p.pg.Start()
		return "postgres was killed"
	}
	n := random.IntN(p.nats.Nodes())
	p.nats.Node(n).Kill()
	p.nats.Node(n).Start()
	return fmt.Sprintf("node %d of NATS was killed", n)
}

// honest checks that no tool was executed twice but by its policy, in truth and not only in the log.
func (p *production) honest(t *testing.T, r run) {
	t.Helper()
	byKey := map[string]int{}
	for _, u := range p.ledger.of(t, r.RunID) {
		byKey[u.key]++
		if byKey[u.key] > 1 && u.tool == "sleep" {
			t.Errorf("run %s executed %s %d times", r.RunID, u.tool, byKey[u.key])
		}
	}
}

// A worker that a network partition cuts off for longer than its lease loses its sessions; when the network is whole
// again nothing of it gets in.
func TestAPartitionedWorkerIsFenced(t *testing.T) {
	t.Parallel()
	s := startSmall(t)
	s.worker[1].Pause()
	s.idle(t)
	sleeping := s.watch(t, s.at[0].submit(t, request{Input: `sleep {"ms":60000}`}), 0)
	sleeping.sees(t, event.ToolRunning, 1)
	counting := s.watch(t, s.at[0].submit(t, request{Input: countOn}), 0)
	counting.sees(t, event.ToolProgress, 2)
	talking := s.watch(t, s.at[0].submit(t, request{Input: "tell"}), 0)
	talking.sees(t, event.TextDelta, 2)

	cut := time.Now()
	s.network.Blackhole()
	s.worker[1].Resume()
	for _, v := range []*viewer{talking, counting, sleeping} {
		v.sees(t, event.RunRecovered, 1)
	}
	s.network.Heal()
	s.network.Cut()

	log, fold := talking.completed(t, s.at[0])
	takenOver(t, log, cut)
	if got := said(fold, talking.run.RunID); got != told() {
		t.Errorf("the text is %q", got)
	}
	counting.completed(t, s.at[0])
	executedTwice(t, s.production, counting.run)
	sleeping.completed(t, s.at[0])
	s.ledger.once(t, sleeping.run.RunID, "sleep")
	for _, v := range []*viewer{talking, counting, sleeping} {
		eventually(t, "the worker that was cut off to stop", func() bool { return s.worker[0].stopped(v.run.SessionID) })
	}
	s.worker[1].Stop()
	if got := s.at[0].finish(t, request{Input: "back again?"}); got.Status != event.Completed {
		t.Errorf("the worker that was cut off: %+v", got)
	}
}
