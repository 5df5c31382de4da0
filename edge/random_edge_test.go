package edge_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/runlog-dev/runlog/edge"
	"github.com/runlog-dev/runlog/edge/room"
	"github.com/runlog-dev/runlog/edge/stream"
	"github.com/runlog-dev/runlog/eventlog"
	"github.com/runlog-dev/runlog/internal/testservers"
)

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

func (tr *trial) frailEdge(n int) *frail {
	r := tr.random
	e := &frail{tr: tr, way: testservers.StartLossy(tr.t, tr.cluster.Node(n%tr.cluster.Nodes()).Addr()), opts: stream.Options{
		RingBytes: 4000 << r.IntN(6), RingEvents: 4 << r.IntN(8), Budget: room.Budget{Shared: 20000 << r.IntN(4)}, PageBytes: 1000 << r.IntN(7), PageReaders: 1 + r.IntN(3),
		Linger: time.Duration(1+r.IntN(60)) * time.Millisecond, Ping: 40 * time.Millisecond, Heartbeat: 30 * time.Millisecond, CheckHead: 100 * time.Millisecond,
		WriteTimeout: time.Duration(50+r.IntN(3000)) * time.Millisecond, PageQueue: 4 + r.IntN(50),
	}}
	if tr.tight {
		e.opts.Budget.Told, e.opts.LoadWait = 60_000<<r.IntN(5), time.Duration(20+r.IntN(500))*time.Millisecond
	}
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
	l, err := eventlog.Open(ctx, nc, eventlog.Options{Replicas: e.tr.cluster.Nodes()})
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
