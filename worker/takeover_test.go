package worker

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/agent"
	"github.com/runlog-dev/runlog/worker/model"
	"github.com/runlog-dev/runlog/worker/tool"
)

func TestARunGoesOnWhereItsWorkerWasCutOff(t *testing.T) {
	b := newBench(t, time.Second)
	var first atomic.Bool
	var started atomic.Int32
	m := play(func(ctx context.Context, req model.Request, emit func(model.Chunk) error) (model.Result, error) {
		if first.CompareAndSwap(false, true) {
			return hangs(&started, nil)(ctx, req, emit)
		}
		return says("second ", "try")(ctx, req, emit)
	})
	a := b.worker(m)
	b.invoke("run_1", "hi")
	b.until("the first word", func(s *event.Session) bool { return started.Load() == 1 && len(s.Messages) == 2 })
	a.cut()
	began := time.Now()
	b.worker(m)
	s, run := b.ended("run_1")
	if took := time.Since(began); took > 2*b.lease {
		t.Errorf("the takeover took %s, more than two leases", took)
	}
	if run.Status != event.Completed || len(s.Messages) != 2 || s.Messages[1].Parts[0].Text != "second try" {
		t.Errorf("the fold shows %s", s.Encode())
	}
	events := b.events()
	if countType(events, event.RunRecovered) != 1 || countType(events, event.MessageDiscarded) != 1 {
		t.Errorf("events are %s", types(events))
	}
}

func TestToolsOfALostWorkerFollowTheirPolicy(t *testing.T) {
	b := newBench(t, time.Second)
	var runs [2]atomic.Int32
	var lost atomic.Bool
	tools := func() []tool.Tool {
		mk := func(i int, policy tool.OnCrash) tool.Tool {
			return made{tool.Spec{Name: fmt.Sprint("t", i), OnCrash: policy}, func(ctx context.Context, c tool.Call) (tool.Result, error) {
				runs[i].Add(1)
				if !lost.Load() {
					<-ctx.Done()
					return tool.Result{}, ctx.Err()
				}
				return tool.Result{Content: []event.Part{event.TextPart(fmt.Sprint(c.Attempt, " ", c.IdempotencyKey))}}, nil
			}}
		}
		return []tool.Tool{mk(0, tool.Retry), mk(1, tool.Fail)}
	}
	a := b.worker(calls("t0", "t1"), tools()...)
	b.invoke("run_1", "hi")
	b.until("both tools to run", func(*event.Session) bool { return runs[0].Load() == 1 && runs[1].Load() == 1 })
	lost.Store(true)
	a.cut()
	b.worker(calls("t0", "t1"), tools()...)
	s, run := b.ended("run_1")
	if run.Status != event.Completed {
		t.Errorf("run is %+v", run)
	}
	if c := s.Call("call_0"); c.Status != event.Completed || c.Content[0].Text != "2 run_1/call_0" {
		t.Errorf("the retried call is %+v", c)
	}
	if c := s.Call("call_1"); c.Outcome != event.OutcomeUnknown || c.Code != event.CodeInterrupted {
		t.Errorf("the other call is %+v", c)
	}
	if runs[0].Load() != 2 || runs[1].Load() != 1 {
		t.Errorf("the tools ran %d and %d times", runs[0].Load(), runs[1].Load())
	}
}

func TestAStoppingWorkerHandsItsRunOver(t *testing.T) {
	b := newBench(t, 20*time.Second) // nothing here may wait for the lease
	var started atomic.Int32
	var first atomic.Bool
	m := play(func(ctx context.Context, req model.Request, emit func(model.Chunk) error) (model.Result, error) {
		if first.CompareAndSwap(false, true) {
			return hangs(&started, nil)(ctx, req, emit)
		}
		return says("elsewhere")(ctx, req, emit)
	})
	a := b.worker(m)
	b.invoke("run_1", "hi")
	b.until("the first word", func(*event.Session) bool { return started.Load() == 1 })
	b.worker(m)
	a.drain()
	s, run := b.ended("run_1")
	if run.Status != event.Completed || s.Messages[1].Parts[0].Text != "elsewhere" {
		t.Errorf("the fold shows %s", s.Encode())
	}
	if took := run.EndedAt.Sub(run.StartedAt.Time); took > 10*time.Second {
		t.Errorf("the hand-over took %s", took)
	}
}

// absent is a tool server that has not come up yet.
type absent struct {
	source
	asked chan struct{}
}

func (a absent) Tools(ctx context.Context) ([]tool.Tool, error) {
	close(a.asked)
	<-ctx.Done()
	return nil, fmt.Errorf("no connection: %w", ctx.Err())
}

// A run whose worker stops while it still waits for a tool server goes on elsewhere:
// it is the worker that has gone, and nothing was lost.
func TestAStoppingWorkerFailsNoRunForWantOfTools(t *testing.T) {
	b := newBench(t, 20*time.Second)
	server := absent{asked: make(chan struct{})}
	a, err := agent.New(agent.Definition{Name: "a"}, says("never said"), []tool.Source{server})
	if err != nil {
		t.Fatal(err)
	}
	first := b.employed(Options{Grace: time.Minute}, a)
	b.invoke("run_1", "hi")
	<-server.asked
	began := time.Now()
	first.drain()
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the worker waited %s for the tool server", took)
	}
	b.worker(says("elsewhere"))
	if s, run := b.ended("run_1"); run.Status != event.Completed || s.Messages[1].Parts[0].Text != "elsewhere" {
		t.Errorf("the fold shows %s", s.Encode())
	}
}

func TestARunThatKillsItsWorkersIsFailed(t *testing.T) {
	b := newBench(t, 400*time.Millisecond)
	var started atomic.Int32
	m := hangs(&started, nil)
	b.invoke("run_1", "hi")
	for i := range poisoned {
		w := b.worker(m)
		b.until("another try", func(*event.Session) bool { return started.Load() > int32(i) || i == poisoned-1 })
		if i < poisoned-1 {
			w.cut()
		}
	}
	if _, run := b.ended("run_1"); run.Status != event.Failed || run.Error.Code != event.CodePoisoned {
		t.Errorf("run is %+v", run)
	}
	list, err := b.log.DeadLetters(t.Context(), key.Tenant)
	if err != nil || len(list) != 1 || list[0].RunID != "run_1" || list[0].Claims != poisoned-1 {
		t.Errorf("dead letters are %+v, %v", list, err)
	}
}

// What a model said last is gathered for a moment: it must not come after the release.
func TestNothingIsAppendedAfterTheRelease(t *testing.T) {
	b := newBench(t, 20*time.Second)
	var words atomic.Int32
	chatter := play(func(ctx context.Context, _ model.Request, emit func(model.Chunk) error) (model.Result, error) {
		for ctx.Err() == nil {
			if err := emit(model.Chunk{Kind: model.Text, Text: "word "}); err != nil {
				return model.Result{}, err
			}
			words.Add(1)
			time.Sleep(100 * time.Microsecond)
		}
		return model.Result{}, ctx.Err()
	})
	b.invoke("run_1", "hi")
	for range 10 {
		before := words.Load()
		w := b.worker(chatter)
		b.until("some words", func(*event.Session) bool { return words.Load() > before+20 })
		w.drain()
	}
	released := false
	for _, e := range b.events() {
		if released && e.Type != event.SessionClaimed {
			t.Errorf("event %d, %s, comes after the release", e.Seq, e.Type)
		}
		released = e.Type == event.SessionReleased
	}
}
