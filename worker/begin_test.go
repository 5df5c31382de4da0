package worker

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/runlog-dev/runlog/artifacts"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
	"github.com/runlog-dev/runlog/internal/testservers"
)

// spied is a log that says when a line has the text.
type spied struct {
	text string
	now  chan struct{}
}

func (t spied) Write(line []byte) (int, error) {
	if strings.Contains(string(line), t.text) {
		select {
		case t.now <- struct{}{}:
		default:
		}
	}
	return len(line), nil
}

// A worker that starts while the log does not answer waits for it.
func TestAWorkerBeginsWhenTheLogAnswers(t *testing.T) {
	t.Parallel()
	servers := testservers.NATS(t, 1)
	proxy := testservers.StartProxy(t, servers.Node(0).Addr())
	open := func(url string) (*eventlog.Log, *nats.Conn) {
		nc, err := eventlog.Connect(url, t.Name())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		l, err := eventlog.Open(t.Context(), nc, eventlog.Options{Lease: 2 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		return l, nc
	}
	store, err := artifacts.Open(t.Context(), "dir:"+t.TempDir(), artifacts.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	b := &bench{t: t, store: store}
	b.log, _ = open(servers.URL())
	l, nc := open("nats://" + proxy.Addr())
	w := b.newWorker(l, says("Here I am."))
	tried := spied{"the worker cannot begin yet", make(chan struct{}, 1)}
	w.opts.Logger = slog.New(slog.NewTextHandler(tried, nil))
	proxy.Blackhole()
	b.run(w, nc)
	<-tried.now
	if w.Ready() == nil {
		t.Error("it is ready before it has begun")
	}
	proxy.Heal()
	b.invoke("run_1", "hi")
	if _, run := b.ended("run_1"); run.Status != event.Completed {
		t.Errorf("the run is %s", run.Status)
	}
}
