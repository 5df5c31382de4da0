package worker

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/agent"
	"github.com/runlog-dev/runlog/worker/model"
	"github.com/runlog-dev/runlog/worker/tool"
)

func limited(t *testing.T, l agent.Limits, m model.Model, tools ...tool.Tool) *agent.Agent {
	t.Helper()
	return newAgent(t, agent.Definition{Name: "a", Limits: l, Model: agent.ModelConfig{Endpoint: model.Endpoint{Name: "m"}, Price: agent.Price{Input: 1e5, Output: 1e5}}}, m, tools...)
}

// loops calls the tool x in each step, up to n, then says done.
func loops(n int) play {
	return func(ctx context.Context, req model.Request, emit func(model.Chunk) error) (model.Result, error) {
		done := 0
		for _, c := range req.Session.ToolCalls {
			if c.RunID == req.RunID {
				done++
			}
		}
		if done >= n {
			return says("done")(ctx, req, emit)
		}
		_ = emit(model.Chunk{Kind: model.CallStart, CallID: fmt.Sprint(req.RunID, "_", done), Name: "x"})
		_ = emit(model.Chunk{Kind: model.CallArgs, Text: `{}`})
		return model.Result{FinishReason: event.FinishToolCalls, Usage: usage}, nil
	}
}

func quick(name string) tool.Tool {
	return made{tool.Spec{Name: name}, func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{}, nil }}
}

func exceeded(t *testing.T, events []event.Event) (list []event.BudgetExceededData) {
	t.Helper()
	for _, e := range events {
		if e.Type == event.BudgetExceeded {
			var d event.BudgetExceededData
			if err := e.Into(&d); err != nil {
				t.Fatal(err)
			}
			list = append(list, d)
		}
	}
	return list
}

func TestEveryBudgetEndsTheRun(t *testing.T) {
	slow := play(func(ctx context.Context, _ model.Request, emit func(model.Chunk) error) (model.Result, error) {
		_ = emit(model.Chunk{Kind: model.Text, Text: "a "})
		<-ctx.Done()
		return model.Result{}, ctx.Err()
	})
	for _, c := range []struct {
		kind   string
		limits agent.Limits
		model  model.Model
	}{
		{"steps", agent.Limits{Steps: 3}, loops(9)},
		{"tool_calls", agent.Limits{ToolCalls: 3}, loops(9)},
		{"tokens", agent.Limits{Tokens: 800}, loops(99)},
		{"cost_usd", agent.Limits{CostUSD: 60}, loops(99)}, // 1.5 USD a step, and what the request grows to
		{"wall", agent.Limits{Wall: 200 * time.Millisecond}, slow},
	} {
		t.Run(c.kind, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 2*time.Second)
			b.ensemble(limited(t, c.limits, c.model, quick("x")))
			b.invoke("run_1", "hi")
			_, run := b.ended("run_1")
			over := exceeded(t, b.events())
			if run.Status != event.Failed || run.Error.Code != event.CodeBudget || len(over) != 1 || over[0].Kind != c.kind {
				t.Fatalf("run is %+v, exceeded %+v", run, over)
			}
			if u := run.Usage; over[0].Limit == 0 || c.limits.Tokens > 0 && u.InputTokens+u.OutputTokens > c.limits.Tokens || c.limits.CostUSD > 0 && (u.CostUSD > c.limits.CostUSD || u.CostUSD == 0) {
				t.Errorf("used %+v of %+v", u, over[0])
			}
		})
	}
}

// The answer may be as long as the budget allows, and an answer that it cuts off
// is no answer.
func TestABudgetBoundsTheAnswer(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2*time.Second)
	var asked atomic.Int64
	b.ensemble(limited(t, agent.Limits{Tokens: 2000}, play(func(_ context.Context, req model.Request, emit func(model.Chunk) error) (model.Result, error) {
		asked.Store(int64(req.MaxTokens))
		_ = emit(model.Chunk{Kind: model.Text, Text: "and so on "})
		return model.Result{FinishReason: event.FinishLength, Usage: event.Usage{InputTokens: 2000 - int64(req.MaxTokens), OutputTokens: int64(req.MaxTokens)}}, nil
	})))
	b.invoke("run_1", "hi")
	s, run := b.ended("run_1")
	if n := asked.Load(); n < 1000 || n >= 2000 {
		t.Errorf("the answer was bounded by %d tokens", n)
	}
	if run.Status != event.Failed || run.Error.Code != event.CodeBudget || len(s.Messages) != 2 {
		t.Errorf("the fold is %s", s.Encode())
	}
}

func TestTheSessionHasABudgetOfItsOwn(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2*time.Second)
	b.ensemble(limited(t, agent.Limits{Session: agent.Budget{Steps: 3}}, says("ok")))
	for i := range 3 {
		b.invoke(fmt.Sprint("run_", i), "hi")
		if _, run := b.ended(fmt.Sprint("run_", i)); run.Status != event.Completed {
			t.Fatalf("run %d is %+v", i, run)
		}
	}
	b.invoke("run_3", "hi")
	_, run := b.ended("run_3")
	if run.Status != event.Failed || !strings.Contains(run.Error.Message, "session") {
		t.Errorf("the fourth is %+v", run)
	}
	if over := exceeded(t, b.events()); len(over) != 1 || over[0].Scope != event.ScopeSession {
		t.Errorf("exceeded %+v", over)
	}
}

func (b *bench) paused(times int) *event.Session {
	b.t.Helper()
	return b.until("the pause", func(s *event.Session) bool {
		r := s.Run("run_1")
		return r != nil && r.Paused() && s.Book.Claim.Released && len(exceeded(b.t, b.events())) == times
	})
}

func (b *bench) resume(id string, by *event.Limits) {
	b.t.Helper()
	b.submit(event.Command{Kind: event.Resume, CommandID: id, RunID: "run_1", By: "boss", Config: &event.RunConfig{Limits: by}})
}

func TestAPausedRunGoesOnWithALargerBudget(t *testing.T) {
	for _, c := range []struct {
		name   string
		limits agent.Limits
		first  *event.Limits // the second resume gives the limit once more
		pauses int
	}{
		{"steps", agent.Limits{Steps: 2}, &event.Limits{Steps: 3}, 2},
		{"tool calls", agent.Limits{ToolCalls: 2}, &event.Limits{ToolCalls: 2}, 2},
		{"session", agent.Limits{Session: agent.Budget{Steps: 2}}, &event.Limits{Steps: 3}, 2},
		{"none said", agent.Limits{ToolCalls: 3}, nil, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, time.Second)
			c.limits.Pause = true
			ag := func() *agent.Agent { return limited(t, c.limits, loops(5), quick("x")) }
			a := b.ensemble(ag())
			b.invoke("run_1", "hi")
			s := b.paused(1)
			if run := s.Run("run_1"); run.ExpiresAt == nil || s.Parked() == nil {
				t.Fatalf("run is %+v", run)
			}
			if err := b.log.Ticket(t.Context(), key); err != nil {
				t.Errorf("a paused run holds a ticket: %v", err)
			}
			a.cut() // the pause outlives its worker
			b.ensemble(ag())
			b.resume("r1", c.first)
			b.resume("r1", c.first) // twice is once
			if c.pauses == 2 {
				b.paused(2)
				b.resume("r2", nil)
			}
			s, run := b.ended("run_1")
			if run.Status != event.Completed || run.Usage.ToolCalls != 5 || run.Usage.Steps != 6 {
				t.Errorf("the fold is %s", s.Encode())
			}
		})
	}
}

func TestAPausedRunEndsByItsExpiryByCancelAndByStop(t *testing.T) {
	for name, want := range map[string]event.Status{"expiry": event.Failed, "cancel": event.Cancelled, "stop": event.Completed} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, time.Second)
			l := agent.Limits{ToolCalls: 1, Pause: true}
			if name == "expiry" {
				l.ResumeWithin = 300 * time.Millisecond
			}
			b.ensemble(limited(t, l, loops(5), quick("x")))
			b.invoke("run_1", "hi")
			b.until("the pause", func(s *event.Session) bool { return s.Run("run_1") != nil && s.Run("run_1").Book.Exceeded != nil })
			switch name {
			case "cancel":
				b.cancelRun("run_1")
			case "stop":
				b.submit(event.Command{Kind: event.Stop, RunID: "run_1"})
			}
			s, run := b.ended("run_1")
			if run.Status != want || run.Usage.ToolCalls != 1 { // the second was never run
				t.Errorf("the fold is %s", s.Encode())
			}
		})
	}
}

func TestTimeIsCountedWithoutTheWaits(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2*time.Second)
	b.ensemble(limited(t, agent.Limits{Wall: 400 * time.Millisecond, Pause: true},
		play(func(ctx context.Context, req model.Request, emit func(model.Chunk) error) (model.Result, error) {
			if req.Session.Run("run_1").Book.WaitedMS == 0 { // it has not been paused
				return hangs(new(atomic.Int32), nil)(ctx, req, emit)
			}
			return says("quick")(ctx, req, emit)
		})))
	b.invoke("run_1", "hi")
	s := b.paused(1)
	if len(s.Messages) != 1 || s.Run("run_1").Book.InStep {
		t.Errorf("what was being said stays: %s", s.Encode())
	}
	time.Sleep(500 * time.Millisecond) // longer than the limit: it must not count
	b.resume("r1", &event.Limits{WallMS: 20_000})
	if s, run := b.ended("run_1"); run.Status != event.Completed || run.Book.WaitedMS < 500 {
		t.Errorf("the fold is %s", s.Encode())
	}
}

// A worker that dies between its request and the answer has spent something.
func TestWhatALostAttemptCostIsCounted(t *testing.T) {
	t.Parallel()
	b := newBench(t, time.Second)
	var started atomic.Int32
	ag := func() *agent.Agent { return limited(t, agent.Limits{Tokens: 100000}, hangs(&started, nil)) }
	a := b.ensemble(ag())
	b.invoke("run_1", strings.Repeat("long ", 1000))
	b.until("the first word", func(*event.Session) bool { return started.Load() == 1 })
	a.cut()
	b.ensemble(ag())
	s := b.until("the takeover", func(s *event.Session) bool { return started.Load() == 2 && s.Run("run_1").Book.Attempt == 2 })
	if lost := s.Run("run_1").Book.Lost.Tokens; lost < 1000 || lost > 3000 {
		t.Errorf("%d tokens are counted as lost", lost)
	}
	b.cancelRun("run_1")
	b.ended("run_1")
}
