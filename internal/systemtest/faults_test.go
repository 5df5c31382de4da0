package systemtest

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	runlogclient "github.com/runlog-dev/runlog/clients/go"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/internal/testservers"
)

// crowd is how many sessions stream while the cluster suffers.
const crowd = 50

// A fault happens to a cluster while the crowd streams, and is over when do returns.
type fault struct {
	name string
	do   func(*testing.T, *production, *gathering)
}

// faults are what a cluster has to bear, one after the other.
var faults = []fault{
	{"the leader of the log is killed", func(t *testing.T, p *production, c *gathering) {
		n := p.leader(t, "LOG_0")
		n.Kill()
		c.flow(t, "a leader was killed")
		n.Start()
	}},
	{"node after node is restarted", func(_ *testing.T, p *production, _ *gathering) {
		for i := range p.nats.Nodes() {
			p.nats.Node(i).Stop()
			p.nats.Node(i).Start()
		}
	}},
	{"a node that leads is cut off", func(t *testing.T, p *production, c *gathering) {
		for _, stream := range []string{"LOG_0", "JOBS"} {
			p.leads(t, stream, "n3")
		}
		p.nats.CutOff()
		defer p.nats.Join()
		c.flow(t, "a node was cut off")
		for _, stream := range []string{"LOG_0", "JOBS"} {
			eventually(t, stream+" to go on under another leader", func() bool {
				leader := p.leaderOf(stream)
				return leader != "n3" && leader != ""
			})
		}
	}},
	{"an edge is killed", func(t *testing.T, p *production, c *gathering) {
		p.edge[0].Kill()
		c.flow(t, "an edge was killed")
		p.edge[0].again()
	}},
	{"a worker is killed", func(t *testing.T, p *production, c *gathering) {
		p.worker[0].Kill()
		c.flow(t, "a worker was killed")
		p.worker[0].again()
	}},
	{"Postgres is away", func(t *testing.T, p *production, c *gathering) {
		p.pg.Kill()
		c.flow(t, "Postgres was killed")
		p.pg.Start()
	}},
	{"S3 is away", func(t *testing.T, p *production, c *gathering) {
		p.s3.Stop()
		c.flow(t, "S3 was stopped")
		p.s3.Start()
	}},
}

// Fifty sessions stream, and are watched over both edges, while one thing after the other goes wrong in a cluster of
// three nodes. Runs may pause; none fails, and nothing is lost, repeated or reordered. The log is sound afterwards.
// RUNLOG_CHAOS has it go on for that time, such as 5m.
func TestAClusterBearsItsFaults(t *testing.T) {
	p := startProductionOn(t, testservers.NATSWithIsland(t, 3), "RUNLOG_SLOTS=64")
	defer p.complaints(t)
	c := p.gather(t)
	end := time.Now()
	if long := os.Getenv("RUNLOG_CHAOS"); long != "" {
		end = end.Add(chaosFor(t))
	}
	c.flow(t, "the beginning")
	for first := true; first || time.Now().Before(end); first = false {
		for _, f := range faults {
			f.do(t, p, c)
			c.flow(t, f.name+", which is over")
		}
	}
	c.finish(t)
	t.Log(p.command("fsck")) // fails if it finds anything
}

// leaderOf is who leads a stream by what the first node knows, or empty.
func (p *production) leaderOf(stream string) string {
	info, err := p.streamInfo(0, stream)
	if err != nil || info.Cluster == nil {
		return ""
	}
	return info.Cluster.Leader
}

// leads makes a node the leader of a stream.
func (p *production) leads(t *testing.T, stream, node string) {
	t.Helper()
	began := time.Now()
	defer func() { t.Logf("%s leads %s after %v", node, stream, time.Since(began).Round(10*time.Millisecond)) }()
	nc, err := nats.Connect(p.nats.Node(0).URL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	eventually(t, node+" to lead "+stream, func() bool {
		if p.leaderOf(stream) == node {
			return true
		}
		_, _ = nc.Request("$JS.API.STREAM.LEADER.STEPDOWN."+stream, []byte(`{"placement":{"preferred":"`+node+`"}}`), time.Second)
		return p.leaderOf(stream) == node
	})
}

// A gathering is a crowd of sessions, in each of which one run follows the other until stop.
type gathering struct {
	p        *production
	sessions []*member
	stop     chan struct{}
	over     sync.WaitGroup
}

type member struct {
	session string
	seen    atomic.Int64 // events, so far
	viewers []*viewer
}

func (p *production) gather(t *testing.T) *gathering {
	t.Helper()
	c := &gathering{p: p, stop: make(chan struct{})}
	for i := range crowd {
		m := &member{session: fmt.Sprint("crowd-", i)}
		c.sessions = append(c.sessions, m)
		c.over.Go(func() { c.attend(t, m, i%2) })
	}
	return c
}

// attend starts run after run and watches each to its end, over the i-th edge first.
func (c *gathering) attend(t *testing.T, m *member, i int) {
	client := c.p.client(i)
	client.Patience = 3 * patience
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	for {
		select {
		case <-c.stop:
			return
		default:
		}
		r, err := client.Submit(ctx, runlogclient.Submission{Agent: "streamer", SessionID: m.session, Input: "go on"})
		if err != nil {
			t.Errorf("session %s: %v", m.session, err)
			return
		}
		v := &viewer{run: run{RunID: r.RunID, SessionID: r.SessionID}, done: make(chan struct{})}
		v.changed.L = &v.mu
		v.noticed = func() { m.seen.Add(1) }
		m.viewers = append(m.viewers, v)
		v.follow(ctx, client)
		if v.err != nil {
			return // finish tells
		}
	}
}

// flow waits until every session has gone on.
func (c *gathering) flow(t *testing.T, after string) {
	t.Helper()
	began := time.Now()
	var still []string
	before := make([]int64, len(c.sessions))
	for i, m := range c.sessions {
		before[i] = m.seen.Load()
	}
	for deadline := time.Now().Add(3 * patience); ; time.Sleep(20 * time.Millisecond) {
		still = still[:0]
		for i, m := range c.sessions {
			if m.seen.Load() < before[i]+2 {
				still = append(still, m.session)
			}
		}
		if len(still) == 0 {
			t.Logf("after %s: all %d sessions flow after %v", after, crowd, time.Since(began).Round(10*time.Millisecond))
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %s %d sessions stand still: %s", after, len(still), strings.Join(still, " "))
		}
	}
}

// finish lets the last runs end and compares what their viewers saw with the log.
func (c *gathering) finish(t *testing.T) {
	t.Helper()
	close(c.stop)
	c.over.Wait()
	runs := 0
	for _, m := range c.sessions {
		log := checkLog(t, c.p.at[0], m.session)
		fold := fold(t, log)
		for _, v := range m.viewers {
			runs++
			if v.err != nil {
				t.Errorf("the viewer of %s gave up after %d events: %v", v.run.RunID, len(v.list), v.err)
			}
			if want := ofRun(log, v.run.RunID); !slices.EqualFunc(v.list, want, same) {
				t.Errorf("the viewer of %s has seen %d events, the log has %d", v.run.RunID, len(v.list), len(want))
			}
			if r := fold.Run(v.run.RunID); r == nil || r.Status != event.Completed {
				t.Errorf("run %s: %+v", v.run.RunID, r)
			}
		}
	}
	t.Logf("%d runs", runs)
}
