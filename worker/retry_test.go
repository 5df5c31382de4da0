package worker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/tool"
)

// A call that was not answered is made again if that cannot harm: each attempt is
// in the log, with the same key, and the call has one result.
func TestACallThatWasNotAnsweredIsMadeAgain(t *testing.T) {
	unreached := fmt.Errorf("connection refused: %w", tool.ErrUnavailable)
	unanswered := fmt.Errorf("connection reset: %w: %w", tool.ErrUnavailable, tool.ErrEffectUnknown)
	for name, c := range map[string]struct {
		spec     tool.Spec
		faults   int // attempts that fail
		fault    error
		attempts int
		status   event.Status
		outcome  event.Outcome
	}{
		"never reached":              {tool.Spec{OnCrash: tool.Fail}, 2, unreached, 3, event.Completed, ""},
		"never reached, for good":    {tool.Spec{OnCrash: tool.Fail}, 9, unreached, 3, event.Failed, event.OutcomeFailed},
		"unanswered, may be again":   {tool.Spec{OnCrash: tool.Retry}, 2, unanswered, 3, event.Completed, ""},
		"unanswered, must not again": {tool.Spec{OnCrash: tool.Fail}, 1, unanswered, 1, event.Failed, event.OutcomeUnknown},
		"out of time, may be again":  {tool.Spec{OnCrash: tool.Retry, Timeout: 20 * time.Millisecond}, 1, context.DeadlineExceeded, 2, event.Completed, ""},
		"out of time, must not":      {tool.Spec{OnCrash: tool.Fail, Timeout: 20 * time.Millisecond}, 1, context.DeadlineExceeded, 1, event.Failed, event.OutcomeFailed},
		"an error is an answer":      {tool.Spec{OnCrash: tool.Retry}, 1, errors.New("no such file"), 1, event.Failed, event.OutcomeFailed},
		"never again":                {tool.Spec{OnCrash: tool.Retry, Retries: tool.NoRetries}, 1, unreached, 1, event.Failed, event.OutcomeFailed},
		"five times":                 {tool.Spec{OnCrash: tool.Retry, Retries: 5}, 5, unreached, 6, event.Completed, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 20*time.Second)
			var mu sync.Mutex
			var seen []tool.Call
			c.spec.Name = "t"
			b.worker(calls("t"), made{c.spec, func(ctx context.Context, call tool.Call) (tool.Result, error) {
				mu.Lock()
				seen = append(seen, call)
				n := len(seen)
				mu.Unlock()
				if n > c.faults {
					return tool.Result{Content: []event.Part{event.TextPart("at last")}}, nil
				}
				if errors.Is(c.fault, context.DeadlineExceeded) {
					<-ctx.Done()
					return tool.Result{}, ctx.Err()
				}
				return tool.Result{}, c.fault
			}})
			b.invoke("run_1", "hi")
			s, run := b.ended("run_1")
			call := s.Call("call_0")
			if run.Status != event.Completed || call.Status != c.status || call.Outcome != c.outcome || call.Attempt != c.attempts {
				t.Errorf("the run is %s, the call %s (%q) after %d attempts", run.Status, call.Status, call.Outcome, call.Attempt)
			}
			running := b.running(t)
			if len(running) != c.attempts || len(seen) != c.attempts {
				t.Fatalf("%d attempts in the log, %d were made, want %d", len(running), len(seen), c.attempts)
			}
			for i, d := range running {
				if d.Attempt != i+1 || d.IdempotencyKey != running[0].IdempotencyKey || (d.Reason != "") != (i > 0) ||
					seen[i].Attempt != d.Attempt || seen[i].IdempotencyKey != d.IdempotencyKey {
					t.Errorf("attempt %d is %+v, the tool saw attempt %d, key %s", i+1, d, seen[i].Attempt, seen[i].IdempotencyKey)
				}
			}
		})
	}
}

func (b *bench) running(t *testing.T) (all []event.ToolRunningData) {
	t.Helper()
	for _, e := range b.events() {
		var d event.ToolRunningData
		if e.Type != event.ToolRunning {
			continue
		}
		if err := e.Into(&d); err != nil {
			t.Fatal(err)
		}
		all = append(all, d)
	}
	return all
}

// What an attempt has written before it broke off is not written a second time.
func TestAnotherAttemptFindsWhatTheLastOneWrote(t *testing.T) {
	b := newBench(t, 20*time.Second)
	b.worker(calls("t"), made{tool.Spec{Name: "t", OnCrash: tool.Retry}, func(ctx context.Context, call tool.Call) (tool.Result, error) {
		part, err := store(ctx, call, "hello")
		if err != nil || call.Attempt == 1 {
			return tool.Result{}, errors.Join(err, tool.ErrUnavailable)
		}
		return tool.Result{Content: []event.Part{part}}, nil
	}})
	b.invoke("run_1", "hi")
	if s, run := b.ended("run_1"); run.Status != event.Completed || len(s.Artifacts) != 1 {
		t.Errorf("the run is %s with %d artifacts", run.Status, len(s.Artifacts))
	}
}

func TestCancelBetweenTwoAttempts(t *testing.T) {
	b := newBench(t, 20*time.Second)
	b.worker(calls("t"), made{tool.Spec{Name: "t", Retries: 20}, func(context.Context, tool.Call) (tool.Result, error) {
		return tool.Result{}, tool.ErrUnavailable
	}})
	b.invoke("run_1", "hi")
	b.until("the third attempt", func(s *event.Session) bool {
		c := s.Call("call_0")
		return c != nil && c.Attempt >= 3
	})
	b.cancelRun("run_1")
	s, run := b.ended("run_1")
	if c := s.Call("call_0"); run.Status != event.Cancelled || c.Status != event.Failed || c.Outcome != event.OutcomeCancelled {
		t.Errorf("the run is %s, its call %s (%s)", run.Status, c.Status, c.Outcome)
	}
}
