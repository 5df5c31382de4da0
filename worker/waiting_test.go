package worker

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/model"
	"github.com/runlog-dev/runlog/worker/tool"
)

// asking is a tool that counts its calls and needs approval.
func asking(name string, ran *atomic.Int32, wait time.Duration) tool.Tool {
	return made{tool.Spec{Name: name, NeedsApproval: func(string) bool { return true }, Wait: wait},
		func(_ context.Context, c tool.Call) (tool.Result, error) {
			ran.Add(1)
			return tool.Result{Content: []event.Part{event.TextPart(c.CallID)}}, nil
		}}
}

func (b *bench) parked() *event.Session {
	b.t.Helper()
	return b.until("the run to park", func(s *event.Session) bool {
		return s.Parked() != nil && s.Book.Claim.Released && s.Parked().ExpiresAt != nil
	})
}

func (b *bench) decide(kind event.Kind, callID, hash string) {
	b.t.Helper()
	b.submit(event.Command{Kind: kind, CommandID: fmt.Sprint(kind, callID, hash), RunID: "run_1", CallID: callID, ArgsSHA256: hash, By: "boss"})
}

func TestThreeApprovalsInReverse(t *testing.T) {
	b := newBench(t, 2*time.Second)
	var ran atomic.Int32
	b.worker(calls("x", "x", "x"), asking("x", &ran, 0))
	b.invoke("run_1", "hi")
	s := b.parked()
	if s.Run("run_1").Status != event.WaitingApproval || len(s.Approvals) != 3 || ran.Load() != 0 {
		t.Fatalf("%d tools ran; the fold is %s", ran.Load(), s.Encode())
	}
	if err := b.log.Ticket(t.Context(), key); err != nil {
		t.Errorf("a parked run holds a ticket: %v", err)
	}
	b.decide(event.Approve, "call_2", "")
	b.until("the last to run", func(s *event.Session) bool { return s.Call("call_2").Done() })
	b.decide(event.Deny, "call_1", "")
	b.decide(event.Approve, "call_1", "") // too late: the first decision stands
	b.decide(event.Approve, "call_0", "another hash")
	s = b.until("the denial", func(s *event.Session) bool { return s.Call("call_1").Done() })
	if c := s.Call("call_1"); c.Outcome != event.OutcomeDenied || c.Decision.By != "boss" {
		t.Errorf("the denied call is %+v", c)
	}
	b.decide(event.Approve, "call_0", event.ArgsHash(`{"n":9007199254740993}`))
	s, run := b.ended("run_1")
	if run.Status != event.Completed || ran.Load() != 2 || s.Call("call_1").Decision.Decision != event.Denied {
		t.Errorf("%d tools ran; the fold is %s", ran.Load(), s.Encode())
	}
	b.events()
}

func TestAnApprovalOutlivesItsWorker(t *testing.T) {
	b := newBench(t, time.Second)
	var ran atomic.Int32
	a := b.worker(calls("x"), asking("x", &ran, 0))
	b.invoke("run_1", "hi")
	b.parked()
	a.cut()
	b.decide(event.Approve, "call_0", "")
	b.worker(calls("x"), asking("x", &ran, 0))
	if _, run := b.ended("run_1"); run.Status != event.Completed || ran.Load() != 1 {
		t.Errorf("run is %+v, the tool ran %d times", run, ran.Load())
	}
}

func TestAnApprovalExpires(t *testing.T) {
	b := newBench(t, 2*time.Second)
	var ran atomic.Int32
	b.worker(calls("x"), asking("x", &ran, 300*time.Millisecond))
	b.invoke("run_1", "hi")
	s, run := b.ended("run_1")
	if c := s.Call("call_0"); run.Status != event.Completed || c.Code != event.CodeExpired || c.Outcome != event.OutcomeDenied || ran.Load() != 0 {
		t.Errorf("the call is %+v", c)
	}
}

// Whoever parks a run may be lost between the log and the timer. The ticket comes
// back, there is nothing to do, and the timer is set all the same.
func TestAWaitEndsThoughItsTimerWasNeverSet(t *testing.T) {
	b := newBench(t, 2*time.Second)
	var ran atomic.Int32
	first := b.worker(calls("x"), asking("x", &ran, 2*time.Second))
	b.invoke("run_1", "hi")
	b.parked()
	first.drain()
	if err := b.log.StopTimer(t.Context(), key, "run_1.call_0.expire"); err != nil {
		t.Fatal(err)
	}
	if timed, err := b.log.Timed(t.Context(), key); err != nil || timed {
		t.Fatalf("the timer is still there: %v, %v", timed, err)
	}
	if err := b.log.Ticket(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	b.worker(calls("x"), asking("x", &ran, 0))
	if _, run := b.ended("run_1"); run.Status != event.Completed || ran.Load() != 0 {
		t.Errorf("run is %+v, the tool ran %d times", run, ran.Load())
	}
}

func TestAToolOfTheClient(t *testing.T) {
	b := newBench(t, 2*time.Second)
	client := tool.Client{ClientTool: event.ClientTool{Name: "pick"}}
	quick := made{tool.Spec{Name: "quick"}, func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{}, nil }}
	b.worker(calls("pick", "quick"), client, quick)
	b.invoke("run_1", "hi")
	s := b.parked()
	if s.Run("run_1").Status != event.WaitingTool || s.Call("call_0").Executor != event.ByClient || !s.Call("call_1").Done() {
		t.Fatalf("the fold is %s", s.Encode())
	}
	for range 2 { // the client sends it twice
		b.submit(event.Command{Kind: event.Result, RunID: "run_1", CallID: "call_0", CommandID: "r", Content: []event.Part{event.TextPart("tomorrow")}})
	}
	s, run := b.ended("run_1")
	if run.Status != event.Completed || s.Call("call_0").Content[0].Text != "tomorrow" {
		t.Errorf("the fold is %s", s.Encode())
	}
}

func TestAToolThatTheRequestBrings(t *testing.T) {
	b := newBench(t, 2*time.Second)
	b.worker(calls("mine"))
	b.submit(event.Command{Kind: event.Invoke, RunID: "run_1", Agent: "a", Config: &event.RunConfig{ClientTools: []event.ClientTool{{Name: "mine"}}},
		Messages: []event.InputMessage{{MessageID: "m", Role: event.RoleUser, Parts: []event.Part{event.TextPart("hi")}}}})
	b.parked()
	b.submit(event.Command{Kind: event.Result, RunID: "run_1", CallID: "call_0", Failed: true, Content: []event.Part{event.TextPart("no")}})
	if s, run := b.ended("run_1"); run.Status != event.Completed || s.Call("call_0").Message != "no" {
		t.Errorf("the fold is %s", s.Encode())
	}
}

func TestCancelAndStopOfAParkedRun(t *testing.T) {
	for kind, want := range map[event.Kind]event.Status{event.Cancel: event.Cancelled, event.Stop: event.Completed} {
		t.Run(string(kind), func(t *testing.T) {
			b := newBench(t, 2*time.Second)
			var ran atomic.Int32
			b.worker(calls("x"), asking("x", &ran, 0))
			b.invoke("run_1", "hi")
			b.parked()
			b.invoke("run_2", "next") // waits behind the parked one
			b.until("the queue", func(s *event.Session) bool { return s.Run("run_2") != nil })
			b.submit(event.Command{Kind: kind, RunID: "run_1", By: "boss"})
			s, run := b.ended("run_1")
			if run.Status != want || s.Call("call_0").Done() == false || ran.Load() != 0 {
				t.Errorf("the fold is %s", s.Encode())
			}
			b.ended("run_2")
			b.events()
		})
	}
}

func TestStopEndsAfterTheStep(t *testing.T) {
	b := newBench(t, 2*time.Second)
	inTool, goOn := make(chan struct{}), make(chan struct{})
	b.worker(calls("x"), made{tool.Spec{Name: "x"}, func(context.Context, tool.Call) (tool.Result, error) {
		close(inTool)
		<-goOn
		return tool.Result{}, nil
	}})
	b.invoke("run_1", "hi")
	<-inTool
	b.submit(event.Command{Kind: event.Stop, RunID: "run_1", By: "boss"})
	b.looksAtAll("run_1")
	close(goOn)
	s, run := b.ended("run_1")
	if run.FinishReason != event.FinishStopped || !s.Call("call_0").Done() || s.Call("call_0").Status != event.Completed || run.Usage.Steps != 1 {
		t.Errorf("the fold is %s", s.Encode())
	}
}

func TestASteeredMessageIsTakenAtTheNextStep(t *testing.T) {
	b := newBench(t, 2*time.Second)
	began, goOn := make(chan struct{}, 1), make(chan struct{})
	b.worker(play(func(ctx context.Context, req model.Request, emit func(model.Chunk) error) (model.Result, error) {
		last := req.Session.Messages[len(req.Session.Messages)-1].Parts[0].Text
		if last == "hi" {
			began <- struct{}{}
			<-goOn
		}
		return says("heard "+last)(ctx, req, emit)
	}))
	b.invoke("run_1", "hi")
	<-began
	b.submit(event.Command{Kind: event.Steer, RunID: "run_1", Messages: []event.InputMessage{{MessageID: "m2", Role: event.RoleUser, Parts: []event.Part{event.TextPart("wait")}}}})
	b.submit(event.Command{Kind: event.Invoke, RunID: "run_2", Agent: "a", Queue: event.SteerInto,
		Messages: []event.InputMessage{{MessageID: "m3", Role: event.RoleUser, Parts: []event.Part{event.TextPart("and more")}}}})
	b.looksAtAll("run_1")
	close(goOn)
	if _, run := b.ended("run_2"); run.Status != event.Completed || run.Usage.Steps != 0 {
		t.Errorf("the steering run is %+v", run)
	}
	s, run := b.ended("run_1")
	if run.Usage.Steps != 2 || s.MessageByID(run.Output.MessageID).Parts[0].Text != "heard and more" {
		t.Errorf("the fold is %s", s.Encode())
	}
}

func TestQueuePolicies(t *testing.T) {
	b := newBench(t, 2*time.Second)
	var started atomic.Int32
	b.worker(play(func(ctx context.Context, req model.Request, emit func(model.Chunk) error) (model.Result, error) {
		if req.RunID == "run_1" {
			return hangs(&started, nil)(ctx, req, emit)
		}
		return says("ok")(ctx, req, emit)
	}))
	b.invoke("run_1", "hi")
	b.until("the first word", func(*event.Session) bool { return started.Load() == 1 })
	b.submit(event.Command{Kind: event.Invoke, RunID: "run_2", Agent: "a", Queue: event.Reject})
	if _, run := b.ended("run_2"); run.Status != event.Failed || run.Error.Code != event.CodeConflict {
		t.Errorf("the rejected run is %+v", run)
	}
	b.submit(event.Command{Kind: event.Invoke, RunID: "run_3", Agent: "a", Queue: event.Interrupt, By: "boss"})
	if _, run := b.ended("run_3"); run.Status != event.Completed {
		t.Errorf("the interrupting run is %+v", run)
	}
	if _, run := b.ended("run_1"); run.Status != event.Cancelled || run.Reason != "interrupted by run run_3" {
		t.Errorf("the interrupted run is %+v", run)
	}
	b.events()
}

// Pending work ends by itself: a client that does not answer fails its call, and
// what has queued up behind the run begins, though the worker that parked it is gone.
func TestAClientThatDoesNotAnswerHoldsNobodyUp(t *testing.T) {
	b := newBench(t, time.Second)
	client := tool.Client{ClientTool: event.ClientTool{Name: "pick"}, Wait: 1500 * time.Millisecond}
	first := b.worker(calls("pick"), client)
	b.invoke("run_1", "hi")
	b.parked()
	b.invoke("run_2", "and then")
	b.until("the queue", func(s *event.Session) bool { return s.Run("run_2") != nil })
	first.cut()
	b.worker(calls("pick"), client)
	s, run := b.ended("run_1")
	if c := s.Call("call_0"); run.Status != event.Completed || c.Code != event.CodeExpired || c.Outcome != event.OutcomeUnknown {
		t.Errorf("run is %s; the call is %+v", run.Status, c)
	}
	if _, run := b.ended("run_2"); run.Status != event.Completed {
		t.Errorf("the run behind it is %+v", run)
	}
}
