package worker

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/tool"
)

func TestCancelInTheModelStream(t *testing.T) {
	b := newBench(t, 2*time.Second)
	var started atomic.Int32
	stopped := make(chan struct{}, 1)
	b.worker(hangs(&started, stopped))
	b.invoke("run_1", "hi")
	b.until("the first word", func(*event.Session) bool { return started.Load() == 1 })
	b.cancelRun("run_1")
	select {
	case <-stopped:
	case <-time.After(10 * time.Second):
		t.Fatal("the model's context did not end")
	}
	s, run := b.ended("run_1")
	if run.Status != event.Cancelled || run.By != "tester" || run.Reason != "enough" {
		t.Errorf("run is %+v", run)
	}
	if m := s.Messages[1]; m.Status != event.Completed || m.Parts[0].Text != "thinking " {
		t.Errorf("what was said is %+v", m)
	}
	b.cancelRun("run_1") // again: a no-op
	b.until("an empty inbox", func(*event.Session) bool {
		waiting, err := b.log.Inbox(context.Background(), key)
		return err == nil && len(waiting) == 0
	})
	b.events()
}

func TestCancelInATool(t *testing.T) {
	b := newBench(t, 2*time.Second)
	quick := func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{}, nil }
	slow := func(ctx context.Context, _ tool.Call) (tool.Result, error) {
		<-ctx.Done()
		return tool.Result{}, ctx.Err()
	}
	b.worker(calls("quick", "slow", "slow"), made{tool.Spec{Name: "quick"}, quick}, made{tool.Spec{Name: "slow"}, slow})
	b.invoke("run_1", "hi")
	b.until("one finished, two running", func(s *event.Session) bool {
		return s.Call("call_0") != nil && s.Call("call_0").Done() && s.Call("call_2").Status == event.Running
	})
	b.cancelRun("run_1")
	s, run := b.ended("run_1")
	if run.Status != event.Cancelled {
		t.Errorf("run is %+v", run)
	}
	for _, id := range []string{"call_1", "call_2"} {
		if c := s.Call(id); c.Status != event.Failed || c.Outcome != event.OutcomeCancelled {
			t.Errorf("%s is %+v", id, c)
		}
	}
	b.invoke("run_2", "go on") // the request is valid although calls were cut
	if _, run := b.ended("run_2"); run.Status != event.Completed {
		t.Errorf("the next run is %s", run.Status)
	}
}

func TestCancelOfARunThatWaits(t *testing.T) {
	b := newBench(t, 2*time.Second)
	var started atomic.Int32
	b.invoke("run_1", "never")
	b.cancelRun("run_1") // before any worker is there
	b.worker(hangs(&started, nil))
	if _, run := b.ended("run_1"); run.Status != event.Cancelled || run.StartedAt != nil {
		t.Errorf("run 1 is %+v", run)
	}
	b.invoke("run_2", "hi")
	b.until("the second to run", func(*event.Session) bool { return started.Load() == 1 })
	b.invoke("run_3", "hi")
	b.until("the third to be queued", func(s *event.Session) bool { return s.Run("run_3") != nil })
	b.cancelRun("run_3")
	if _, run := b.ended("run_3"); run.Status != event.Cancelled {
		t.Errorf("run 3 is %+v", run)
	}
	b.cancelRun("run_2")
	b.ended("run_2")
	b.events()
}
