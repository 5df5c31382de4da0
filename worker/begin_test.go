package worker

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/runlog-dev/runlog/artifacts"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
	"github.com/runlog-dev/runlog/internal/testservers"
	"github.com/runlog-dev/runlog/worker/model"
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

// remoteBench is a bench on a server of its own, and a log whose way there the proxy is.
func remoteBench(t *testing.T) (b *bench, proxy *testservers.Proxy, l *eventlog.Log, nc *nats.Conn) {
	t.Helper()
	servers := testservers.NATS(t, 1)
	proxy = testservers.StartProxy(t, servers.Node(0).Addr())
	store, err := artifacts.Open(t.Context(), "dir:"+t.TempDir(), artifacts.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	at := func(url string) func() (*nats.Conn, error) {
		return func() (*nats.Conn, error) { return eventlog.Connect(url, t.Name()) }
	}
	b = &bench{t: t, lease: 2 * time.Second, store: store, dial: at("nats://" + proxy.Addr())}
	l, nc = b.open()
	b.dial = at(servers.URL())
	b.log, _ = b.open()
	return b, proxy, l, nc
}

// A worker that starts while the log does not answer waits for it.
func TestAWorkerBeginsWhenTheLogAnswers(t *testing.T) {
	t.Parallel()
	b, proxy, l, nc := remoteBench(t)
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

// A worker that is to stop does so although the log does not answer: it waits for
// nothing that the next one can do.
func TestAWorkerStopsWhileTheLogIsAway(t *testing.T) {
	for name, cancelled := range map[string]bool{"at the end of a run": false, "at the end of a cancelled one": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, proxy, l, nc := remoteBench(t)
			speaks, goOn := make(chan struct{}), make(chan struct{})
			w := b.newWorker(l, play(func(ctx context.Context, req model.Request, emit func(model.Chunk) error) (model.Result, error) {
				close(speaks)
				if cancelled {
					<-ctx.Done()
					proxy.Blackhole()
					close(goOn)
					return model.Result{}, ctx.Err()
				}
				<-goOn
				return says("first")(ctx, req, emit)
			}))
			w.opts.Grace, w.patience = 100*time.Millisecond, 100*time.Millisecond
			first := b.run(w, nc)
			b.invoke("run_1", "hi")
			<-speaks
			if cancelled {
				b.cancelRun("run_1")
				<-goOn
			} else {
				proxy.Blackhole()
				close(goOn)
			}
			stopped := make(chan struct{})
			go func() { first.drain(); close(stopped) }()
			select {
			case <-stopped:
			case <-time.After(30 * time.Second):
				t.Error("the worker still waits for the log")
			}
			proxy.Heal()
			b.worker(says("second"))
			if _, run := b.ended("run_1"); !cancelled && run.Status != event.Completed || cancelled && run.Status != event.Cancelled {
				t.Errorf("the run is %s", run.Status)
			}
			b.events()
		})
	}
}
