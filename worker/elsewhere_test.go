package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
	"github.com/runlog-dev/runlog/worker/agent"
	"github.com/runlog-dev/runlog/worker/model"
)

// with starts a worker that has one agent of this name. It counts the tickets
// that the worker has passed on.
func (b *bench) with(name string, m model.Model, elsewhere time.Duration) (*running, *atomic.Int32) {
	b.t.Helper()
	passed := new(atomic.Int32)
	return b.defined(agent.Definition{Name: name}, m, Options{Elsewhere: elsewhere, Observe: Observer{Passed: func() { passed.Add(1) }}}), passed
}

func waitFor(t *testing.T, n *atomic.Int32, atLeast int32) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); n.Load() < atLeast; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the ticket was passed on %d times", n.Load())
		}
	}
}

func TestARunFindsAWorkerThatHasItsAgent(t *testing.T) {
	b := newBench(t, 20*time.Second)
	_, first := b.with("other", says("wrong"), 0)
	_, second := b.with("third", says("wrong"), 0)
	b.invoke("run_1", "hi")
	waitFor(t, first, 1)
	waitFor(t, second, 1)
	if events := b.events(); len(events) > 0 {
		t.Errorf("workers without the agent wrote %s", types(events))
	}
	b.with("a", says("right"), 0)
	s, run := b.ended("run_1")
	if run.Status != event.Completed || s.Messages[1].Parts[0].Text != "right" {
		t.Errorf("the fold shows %s", s.Encode())
	}
}

// One session, two agents, and no worker that has both.
func TestASessionGoesFromWorkerToWorker(t *testing.T) {
	b := newBench(t, 20*time.Second)
	b.with("a", says("this is a"), 0)
	b.with("b", says("this is b"), 0)
	for i, name := range []string{"a", "b", "a", "b"} {
		b.invokes(name, fmt.Sprintf("run_%d", i+1), "hi")
	}
	s, _ := b.ended("run_4")
	for _, run := range s.Runs {
		if run.Status != event.Completed {
			t.Errorf("%s of %s is %s: %+v", run.RunID, run.Agent, run.Status, run.Error)
		}
	}
}

// Two workers with few slots, far more sessions, and each ticket has even chances
// to come to the wrong one. The lease is so long that none may get lost.
func TestNoTicketIsLostOnItsWay(t *testing.T) {
	b := newBench(t, time.Minute)
	_, passed := b.with("a", says("this is a"), 0)
	b.with("b", says("this is b"), 0)
	const sessions = 40
	for i := range sessions {
		k := eventlog.Key{Tenant: key.Tenant, Session: fmt.Sprintf("ses_%d", i)}
		cmd := event.Command{CommandID: "cmd_1", Kind: event.Invoke, SessionID: k.Session, RunID: fmt.Sprintf("run_%d", i), TraceID: "t1",
			Agent: []string{"a", "b"}[i%2], Time: event.At(time.Now()), Messages: []event.InputMessage{{MessageID: "msg_1", Role: event.RoleUser, Parts: []event.Part{event.TextPart("hi")}}}}
		if err := errors.Join(b.log.Submit(t.Context(), k, cmd), b.log.Wake(t.Context(), k)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range sessions {
		k := eventlog.Key{Tenant: key.Tenant, Session: fmt.Sprintf("ses_%d", i)}
		b.untilIn(k, "the end of its run", func(s *event.Session) bool {
			r := s.Run(fmt.Sprintf("run_%d", i))
			return r != nil && r.Status == event.Completed
		})
	}
	if passed.Load() == 0 {
		t.Error("no ticket came to the wrong worker")
	}
}

func TestARunThatNobodyCanTakeFails(t *testing.T) {
	b := newBench(t, 20*time.Second)
	b.with("other", says("wrong"), 200*time.Millisecond)
	b.invoke("run_1", "hi")
	_, run := b.ended("run_1")
	if run.Status != event.Failed || run.Error == nil || run.Error.Code != event.CodeNotFound || !strings.Contains(run.Error.Message, `no agent "a"`) {
		t.Errorf("the run is %s: %+v", run.Status, run.Error)
	}
}

func TestCancelOfARunThatNobodyHasTaken(t *testing.T) {
	for _, started := range []bool{false, true} {
		b := newBench(t, 20*time.Second)
		if started {
			hanging := make(chan struct{}, 1)
			first, _ := b.with("a", play(func(ctx context.Context, _ model.Request, _ func(model.Chunk) error) (model.Result, error) {
				hanging <- struct{}{}
				<-ctx.Done()
				return model.Result{}, ctx.Err()
			}), 0)
			b.invoke("run_1", "hi")
			<-hanging
			first.drain()
		} else {
			b.invoke("run_1", "hi")
		}
		_, passed := b.with("other", says("wrong"), 0)
		waitFor(t, passed, 2)
		b.cancelRun("run_1")
		if _, run := b.ended("run_1"); run.Status != event.Cancelled {
			t.Errorf("started %v: the run is %s", started, run.Status)
		}
	}
}
