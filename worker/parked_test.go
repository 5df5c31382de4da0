package worker

import (
	"bytes"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
	"github.com/runlog-dev/runlog/worker/tool"
)

// held is what a worker holds for its sessions.
type held struct{ sessions, goroutines, subscriptions, tickets int }

// holds waits until every slot of the worker asks for a ticket, and counts.
func (b *bench) holds(w *running, nc *nats.Conn) held {
	b.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); w.free() < w.opts.Slots; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("%d of %d slots ask for a ticket", w.free(), w.opts.Slots)
		}
	}
	js, err := jetstream.New(nc)
	if err != nil {
		b.t.Fatal(err)
	}
	jobs, err := js.Stream(b.t.Context(), "JOBS")
	if err != nil {
		b.t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return held{len(w.held), runtime.NumGoroutine(), w.nc.NumSubscriptions(), int(jobs.CachedInfo().State.Msgs)}
}

// park lets runs wait for their client, each in a session of its own.
func (b *bench) park(nc *nats.Conn, from, to int) {
	b.t.Helper()
	var parked atomic.Int32
	sub, err := nc.Subscribe("live.>", func(m *nats.Msg) { parked.Add(int32(bytes.Count(m.Data, []byte(`"session.released"`)))) })
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	for i := from; i < to; i++ {
		b.submitTo(sessionNo(i), event.Command{Kind: event.Invoke, RunID: fmt.Sprint("run_", i), Agent: "a", Messages: []event.InputMessage{
			{MessageID: fmt.Sprint("msg_", i), Role: event.RoleUser, Parts: []event.Part{event.TextPart("hi")}}}})
	}
	for deadline := time.Now().Add(2 * time.Minute); int(parked.Load()) < to-from; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("%d of %d runs are parked", parked.Load(), to-from)
		}
	}
}

func sessionNo(i int) eventlog.Key {
	return eventlog.Key{Tenant: "default", Session: fmt.Sprint("parked_", i)}
}

// What waits is in the log and in the server's timers, and nowhere in a worker.
func TestAThousandParkedRunsHoldNothing(t *testing.T) {
	const runs, slack = 1000, 100 // slack: the server in this process has goroutines too
	b := newBench(t, 2*time.Second)
	_, nc := b.open()
	w := b.worker(calls("pick"), tool.Client{ClientTool: event.ClientTool{Name: "pick"}})
	b.park(nc, 0, 20)
	before := b.holds(w, nc)
	b.park(nc, 20, 20+runs)
	after := b.holds(w, nc)
	if after.sessions != 0 || after.tickets != 0 {
		t.Errorf("the worker holds %d sessions, and there are %d tickets", after.sessions, after.tickets)
	}
	if after.goroutines > before.goroutines+slack || after.subscriptions > before.subscriptions+w.opts.Slots {
		t.Errorf("parked runs hold something: %+v, before them %+v", after, before)
	}
	last := sessionNo(20 + runs - 1)
	run := fmt.Sprint("run_", 20+runs-1)
	b.submitTo(last, event.Command{Kind: event.Result, CommandID: "answer", RunID: run, CallID: "call_0", Content: []event.Part{event.TextPart("tomorrow")}})
	b.untilIn(last, "the end of a run that was parked", func(s *event.Session) bool { return s.Run(run).Status == event.Completed })
}
