package main

import (
	"bytes"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"ssebench/driver"
	"ssebench/engine"
)

// The load of the tail figure.
const (
	tailSessions = 500
	tailRate     = 20.0 // events per second and session
	tailSize     = 200  // bytes of an event's payload
	tailTime     = 2 * time.Second
	tailPairs    = 3 // of floor and figure, in each round: short ones, since other work comes and goes
)

// tail measures from an append to its arrival at an SSE client, and, in turns on
// the same server under the same load, to a plain subscriber of what the server
// republishes.
func tail(b *bench) ([]row, error) {
	server, err := b.server()
	if err != nil {
		return nil, err
	}
	defer server.stop()
	edge, err := b.edge(server)
	if err != nil {
		return nil, err
	}
	defer edge.stop()
	d, err := driver.Open("runlog", driver.Options{"addr": edge.addr, "nats": "nats://" + server.addr})
	if err != nil {
		return nil, err
	}
	var floor50, floor99, sse50, sse99, over times
	for range tailPairs * b.rounds {
		f, err := floorRound(d, server.addr)
		if err != nil {
			return nil, err
		}
		s, err := sseRound(d)
		if err != nil {
			return nil, err
		}
		floor50, floor99 = append(floor50, dur(f, .5)), append(floor99, dur(f, .99))
		sse50, sse99 = append(sse50, dur(s, .5)), append(sse99, dur(s, .99))
		over = append(over, dur(s, .5)-dur(f, .5))
	}
	detail := fmt.Sprintf("(p50 %s, floor %s; quietest rounds %s and %s; p99 %s, floor %s)",
		ms(sse50.median()), ms(floor50.median()), ms(sse50.at(0)), ms(floor50.at(0)), ms(sse99.median()), ms(floor99.median()))
	return []row{{"append → SSE client, 500 sessions × 20 events/s, p50 over append + republish to a core subscriber",
		"≤ 1 ms", "+" + ms(over.median()) + " " + detail, over.median() <= time.Millisecond}}, nil
}

func dur(h *engine.Hist, q float64) time.Duration { return time.Duration(h.Quantile(q)) }

func tailLoad(t time.Duration) engine.Load {
	return engine.Load{Active: tailSessions, Rate: tailRate, For: t, Size: tailSize, Workers: 8, Fanout: 1}
}

// tailClients makes sessions with a viewer each; nobody connects yet.
func tailClients(d driver.Driver) (*engine.Clients, error) {
	return engine.NewClients(d, engine.Config{Conns: tailSessions, Topics: tailSessions, Reactors: 1, Sources: 8, Inflight: 256})
}

// sseRound runs the load with an SSE client for each session.
func sseRound(d driver.Driver) (*engine.Hist, error) {
	cs, err := tailClients(d)
	if err != nil {
		return nil, err
	}
	defer cs.Close()
	cs.Connect()
	if !engine.WaitFor(30*time.Second, func() bool { return cs.Ready() == tailSessions }) {
		return nil, fmt.Errorf("%d of %d clients connected", cs.Ready(), tailSessions)
	}
	var st *engine.Stats
	for _, t := range []time.Duration{time.Second, tailTime} { // the first one warms up
		cs.Take()
		if _, err := cs.Publish(tailLoad(t)); err != nil {
			return nil, err
		}
		if !engine.WaitFor(30*time.Second, func() bool { return cs.Undelivered() == 0 }) {
			return nil, fmt.Errorf("%d events never arrived", cs.Undelivered())
		}
		st = cs.Take()
	}
	if st.Integrity != (engine.Integrity{}) {
		return nil, fmt.Errorf("clients did not get each event once and in order: %+v", st.Integrity)
	}
	return &st.FromCall, nil
}

// A floorTail takes what the server republishes.
type floorTail struct {
	mu   sync.Mutex
	hist engine.Hist
}

// floorRound runs the load with one subscriber of everything.
func floorRound(d driver.Driver, addr string) (*engine.Hist, error) {
	cs, err := tailClients(d)
	if err != nil {
		return nil, err
	}
	defer cs.Close()
	nc, err := nats.Connect("nats://" + addr)
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	t := &floorTail{}
	if _, err := nc.Subscribe("live.>", t.take); err != nil {
		return nil, err
	}
	if err := nc.Flush(); err != nil {
		return nil, err
	}
	for _, d := range []time.Duration{time.Second, tailTime} { // the first one warms up
		t.reset()
		res, err := cs.Publish(tailLoad(d))
		if err != nil {
			return nil, err
		}
		if !engine.WaitFor(30*time.Second, func() bool { return t.count() >= res.Published }) {
			return nil, fmt.Errorf("%d of %d events were republished", t.count(), res.Published)
		}
	}
	return &t.hist, nil
}

func (t *floorTail) take(m *nats.Msg) {
	now := engine.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for line := range bytes.Lines(m.Data) {
		if sent, ok := engine.SentAt(line); ok {
			t.hist.Record(now - sent)
		}
	}
}

func (t *floorTail) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hist = engine.Hist{}
}

func (t *floorTail) count() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.hist.Count()
}
