package worker

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/tool"
)

// doubtful is a tool whose first call never ends, and of which somebody is asked
// after a crash. It may need approval before it runs, too.
func doubtful(gated bool, wait time.Duration, ran *atomic.Int32) tool.Tool {
	spec := tool.Spec{Name: "x", OnCrash: tool.Ask, Wait: wait}
	if gated {
		spec.NeedsApproval = func(string) bool { return true }
	}
	return made{spec, func(ctx context.Context, c tool.Call) (tool.Result, error) {
		if ran.Add(1) == 1 {
			<-ctx.Done()
			return tool.Result{}, ctx.Err()
		}
		return tool.Text(fmt.Sprint(c.Attempt, " ", c.IdempotencyKey)), nil
	}}
}

// After a crash somebody is asked what is to become of the call. The question
// survives restarts, and no answer is one too.
func TestACallInDoubtIsAskedAbout(t *testing.T) {
	for _, c := range []struct {
		name     string
		gated    bool
		settle   func(*bench)
		ran      int32
		status   event.Status
		outcome  event.Outcome
		contains string
	}{
		{"again", false, func(b *bench) { b.decide(event.Approve, "call_0", "") }, 2, event.Completed, "", "2 run_1/call_0"},
		{"approved once more", true, func(b *bench) { b.answer(event.Approve, "again") }, 2, event.Completed, "", "2 run_1/call_0"},
		{"not again", false, func(b *bench) { b.decide(event.Deny, "call_0", "") }, 1, event.Failed, event.OutcomeUnknown, "boss said not to run it again"},
		{"found out", false, func(b *bench) { b.found(false) }, 1, event.Completed, "", "it did happen"},
		{"found out that it failed", false, func(b *bench) { b.found(true) }, 1, event.Failed, event.OutcomeFailed, "it did happen"},
		{"nobody answers", false, func(*bench) {}, 1, event.Failed, event.OutcomeUnknown, "nobody said in time"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			wait := time.Hour
			if c.name == "nobody answers" {
				wait = 500 * time.Millisecond
			}
			b := newBench(t, time.Second)
			var ran atomic.Int32
			a := b.worker(calls("x"), doubtful(c.gated, wait, &ran))
			b.invoke("run_1", "hi")
			if c.gated {
				b.parked()
				b.decide(event.Approve, "call_0", "")
			}
			b.until("the tool to run", func(*event.Session) bool { return ran.Load() == 1 })
			a.cut()
			second := b.worker(calls("x"), doubtful(c.gated, wait, &ran))
			if wait == time.Hour {
				if s := b.parked(); !s.Call("call_0").InDoubt() || s.Approvals[0].Reason != event.CodeInterrupted {
					t.Fatalf("nobody was asked: %s", s.Encode())
				}
				second.drain()
				b.worker(calls("x"), doubtful(c.gated, wait, &ran))
			}
			c.settle(b)
			s, run := b.ended("run_1")
			call := s.Call("call_0")
			said := call.Message + " " + string(event.Encode(call.Content))
			if run.Status != event.Completed || call.Status != c.status || call.Outcome != c.outcome || !strings.Contains(said, c.contains) {
				t.Errorf("run %s; the call is %+v", run.Status, call)
			}
			if ran.Load() != c.ran || len(s.Approvals) != 0 {
				t.Errorf("the tool ran %d times, not %d; open questions: %+v", ran.Load(), c.ran, s.Approvals)
			}
		})
	}
}

// A run that ends while a call is in doubt does not say that it was never run.
func TestACancelledCallInDoubtHasRun(t *testing.T) {
	b := newBench(t, time.Second)
	var ran atomic.Int32
	a := b.worker(calls("x"), doubtful(false, time.Hour, &ran))
	b.invoke("run_1", "hi")
	b.until("the tool to run", func(*event.Session) bool { return ran.Load() == 1 })
	a.cut()
	b.worker(calls("x"), doubtful(false, time.Hour, &ran))
	b.parked()
	b.submit(event.Command{Kind: event.Stop, RunID: "run_1", By: "tester"})
	s, _ := b.ended("run_1")
	if c := s.Call("call_0"); c.Outcome != event.OutcomeUnknown || ran.Load() != 1 {
		t.Errorf("the call is %+v", c)
	}
}

// answer settles the call under a name of its own.
func (b *bench) answer(kind event.Kind, id string) {
	b.t.Helper()
	b.submit(event.Command{Kind: kind, CommandID: id, RunID: "run_1", CallID: "call_0", By: "boss"})
}

// found gives the call the result that somebody has found out.
func (b *bench) found(failed bool) {
	b.t.Helper()
	b.submit(event.Command{Kind: event.Result, RunID: "run_1", CallID: "call_0", By: "boss", Failed: failed,
		Content: []event.Part{event.TextPart("it did happen")}})
}
