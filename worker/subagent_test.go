package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/agent"
	"github.com/runlog-dev/runlog/worker/model"
	"github.com/runlog-dev/runlog/worker/tool"
)

// delegates calls the agent "b" so many times at once, then says done.
func delegates(n int) play {
	return func(ctx context.Context, req model.Request, emit func(model.Chunk) error) (model.Result, error) {
		for _, c := range req.Session.ToolCalls {
			if c.RunID == req.RunID {
				return says("done")(ctx, req, emit)
			}
		}
		for i := range n {
			_ = emit(model.Chunk{Kind: model.CallStart, Index: i, CallID: fmt.Sprint(req.RunID, "_ask_", i), Name: "b"})
			_ = emit(model.Chunk{Kind: model.CallArgs, Index: i, Text: fmt.Sprintf(`{"input":"part %d"}`, i)})
		}
		return model.Result{FinishReason: event.FinishToolCalls, Usage: usage}, nil
	}
}

func named1(t *testing.T, name string, m model.Model, tools ...tool.Tool) *agent.Agent {
	t.Helper()
	return newAgent(t, agent.Definition{Name: name}, m, tools...)
}

func subB() tool.Tool { return agent.SubAgent("b", "", 0) }

// child is the nth run under run_1.
func child(s *event.Session, n int) *event.Run {
	for _, r := range s.Runs {
		if r.ParentRunID == "run_1" {
			if n == 0 {
				return r
			}
			n--
		}
	}
	return nil
}

func TestAnAgentCallsAnother(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2*time.Second)
	var requests atomic.Value
	b.ensemble(named1(t, "a", delegates(2), subB()), named1(t, "b", play(func(ctx context.Context, req model.Request, emit func(model.Chunk) error) (model.Result, error) {
		requests.Store(string(req.Session.OpenAIView(event.View{RunID: req.RunID})))
		return loops(1)(ctx, req, emit)
	}), quick("x")))
	b.invoke("run_1", "the whole")
	s, run := b.ended("run_1")
	for i := range 2 {
		call := s.Call(fmt.Sprint("run_1_ask_", i))
		c := child(s, 0)
		if c.ParentCallID != call.CallID {
			c = child(s, 1)
		}
		if c == nil || c.Status != event.Completed || c.TraceID != run.TraceID || c.Usage.Steps != 2 || !c.Book.Internal {
			t.Fatalf("child %d is %+v; the fold is %s", i, c, s.Encode())
		}
		if call.Status != event.Completed || call.Content[0].Text != "done" || c.ParentCallID != call.CallID {
			t.Errorf("call %d is %+v", i, call)
		}
	}
	if saw := requests.Load().(string); !strings.HasPrefix(saw, `[{"role":"user","content":"part `) || strings.Count(saw, "part") != 1 {
		t.Errorf("the last saw %s", saw)
	}
	if run.Status != event.Completed || run.Usage.Steps != 2 || run.Usage.ToolCalls != 2 {
		t.Errorf("run is %+v", run)
	}
	if p := s.Public(); len(p.Runs) != 1 || len(p.Messages) != 3 {
		t.Errorf("clients see %s", s.EncodePublic())
	}
	for _, e := range b.events() {
		if e.RunID != "run_1" && e.RunID != "" && !e.Internal {
			t.Errorf("%s of a sub-agent shows", e.Type)
		}
	}
}

func TestASubAgentShowsIfItIsToldTo(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2*time.Second)
	yes := true
	b.ensemble(newAgent(t, agent.Definition{Name: "a", Emit: event.Emit{Subagents: &yes}}, delegates(1), subB()), named1(t, "b", says("inner")))
	b.invoke("run_1", "hi")
	s, _ := b.ended("run_1")
	if p := s.Public(); len(p.Runs) != 2 || len(p.Messages) != 5 {
		t.Errorf("clients see %s", s.EncodePublic())
	}
}

// The worker is lost while a sub-agent speaks, and while its tool runs.
func TestASubAgentGoesOnAfterATakeover(t *testing.T) {
	for _, where := range []string{"model", "tool"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, time.Second)
			var started, ran atomic.Int32
			var lost atomic.Bool
			inner := play(func(ctx context.Context, req model.Request, emit func(model.Chunk) error) (model.Result, error) {
				if where == "model" && !lost.Load() && len(req.Session.ToolCalls) > 1 { // its tool has answered
					_ = emit(model.Chunk{Kind: model.Reasoning, Text: "hm"})
					return hangs(&started, nil)(ctx, req, emit)
				}
				return loops(1)(ctx, req, emit)
			})
			x := made{tool.Spec{Name: "x", OnCrash: tool.Retry}, func(ctx context.Context, c tool.Call) (tool.Result, error) {
				ran.Add(1)
				if where == "tool" && !lost.Load() {
					started.Add(1)
					<-ctx.Done()
					return tool.Result{}, ctx.Err()
				}
				return tool.Result{}, nil
			}}
			ensemble := func() *running {
				return b.ensemble(named1(t, "a", delegates(1), subB()), named1(t, "b", inner, x))
			}
			a := ensemble()
			b.invoke("run_1", "hi")
			b.until("the sub-agent", func(*event.Session) bool { return started.Load() == 1 })
			lost.Store(true)
			a.cut()
			ensemble()
			s, run := b.ended("run_1")
			want := map[string]int32{"model": 1, "tool": 2}[where]
			if c := child(s, 0); run.Status != event.Completed || child(s, 1) != nil || c.Status != event.Completed || c.Usage.Steps != 2 || ran.Load() != want {
				t.Errorf("the tool ran %d times; the fold is %s", ran.Load(), s.Encode())
			}
		})
	}
}

func TestASubAgentIsCancelledWithItsParent(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2*time.Second)
	var started atomic.Int32
	stopped := make(chan struct{}, 2)
	var asked sync.WaitGroup
	asked.Add(2)
	together := func(ctx context.Context, req model.Request, emit func(model.Chunk) error) (model.Result, error) {
		asked.Done()
		asked.Wait() // while one speaks the other cannot begin
		return hangs(&started, stopped)(ctx, req, emit)
	}
	b.ensemble(named1(t, "a", delegates(2), subB()), named1(t, "b", play(together)))
	b.invoke("run_1", "hi")
	b.until("the sub-agents", func(*event.Session) bool { return started.Load() == 2 })
	b.cancelRun("run_1")
	<-stopped
	<-stopped
	s, run := b.ended("run_1")
	if run.Status != event.Cancelled || child(s, 0).Status != event.Cancelled || child(s, 1).Status != event.Cancelled {
		t.Errorf("the fold is %s", s.Encode())
	}
	for _, c := range s.ToolCalls {
		if c.Outcome != event.OutcomeCancelled {
			t.Errorf("call is %+v", c)
		}
	}
}

// A sub-agent's approval parks the whole; a worker that is gone does not matter,
// nor whether the decision names the parent's run or the sub-agent's.
func TestASubAgentWaitsForAnApproval(t *testing.T) {
	for _, end := range []string{"approve", "cancel", "expire"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, time.Second)
			var ran atomic.Int32
			wait := time.Duration(0)
			if end == "expire" {
				wait = 300 * time.Millisecond
			}
			ensemble := func() *running {
				return b.ensemble(named1(t, "a", delegates(2), subB()), named1(t, "b", loops(1), asking("x", &ran, wait)))
			}
			a := ensemble()
			b.invoke("run_1", "hi")
			if end != "expire" {
				s := b.parked()
				if r := s.Run("run_1"); r.Status != event.WaitingApproval || len(s.Approvals) != 2 || ran.Load() != 0 {
					t.Fatalf("the fold is %s", s.Encode())
				}
				a.cut()
				ensemble()
				if end == "cancel" {
					b.cancelRun("run_1")
				} else {
					b.decide(event.Approve, child(s, 0).RunID+"_0", "")
					b.decide(event.Deny, child(s, 1).RunID+"_0", "")
				}
			}
			s, run := b.ended("run_1")
			want := map[string]event.Status{"approve": event.Completed, "cancel": event.Cancelled, "expire": event.Completed}[end]
			if run.Status != want || child(s, 0).Status != want || child(s, 1).Status != want || end == "approve" && ran.Load() != 1 {
				t.Errorf("%d tools ran; the fold is %s", ran.Load(), s.Encode())
			}
		})
	}
}

func TestBudgetsOfSubAgents(t *testing.T) {
	for name, c := range map[string]struct {
		outer, inner agent.Limits
		want, below  event.Status
	}{
		"its own":           {agent.Limits{}, agent.Limits{Steps: 2}, event.Completed, event.Failed},
		"its parent's":      {agent.Limits{Tokens: 350}, agent.Limits{}, event.Failed, event.Failed},
		"the session's":     {agent.Limits{Session: agent.Budget{Steps: 4}}, agent.Limits{}, event.Failed, event.Failed},
		"its own, raised":   {agent.Limits{}, agent.Limits{Steps: 3, Pause: true}, event.Completed, event.Completed},
		"parent's, raised":  {agent.Limits{Tokens: 350, Pause: true}, agent.Limits{}, event.Completed, event.Completed},
		"session's, raised": {agent.Limits{Session: agent.Budget{Steps: 4}, Pause: true}, agent.Limits{}, event.Completed, event.Completed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, time.Second)
			ensemble := func() *running {
				return b.ensemble(newAgent(t, agent.Definition{Name: "a", Limits: c.outer}, delegates(1), subB()),
					newAgent(t, agent.Definition{Name: "b", Limits: c.inner}, loops(5), quick("x")))
			}
			a := ensemble()
			b.invoke("run_1", "hi")
			if c.outer.Pause || c.inner.Pause {
				s := b.parked()
				if c.outer.Pause != s.Run("run_1").Paused() || c.inner.Pause != child(s, 0).Paused() {
					t.Fatalf("the fold is %s", s.Encode())
				}
				a.cut()
				ensemble()
				b.resume("r1", &event.Limits{Steps: 100, Tokens: 100000})
			}
			s, run := b.ended("run_1")
			if run.Status != c.want || child(s, 0).Status != c.below {
				t.Errorf("the fold is %s", s.Encode())
			}
		})
	}
}

func TestAgentsCallOneAnotherOnlySoDeep(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2*time.Second)
	b.ensemble(named1(t, "a", delegates(1), subB()), named1(t, "b", delegates(1), subB()))
	b.invoke("run_1", "hi")
	s, run := b.ended("run_1")
	if run.Status != event.Completed || len(s.Runs) != agent.MaxDepth {
		t.Errorf("%d runs; the fold is %s", len(s.Runs), s.Encode())
	}
}

func TestAnAgentThatIsNotThere(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2*time.Second)
	b.ensemble(named1(t, "a", delegates(1), subB()))
	b.invoke("run_1", "hi")
	if s, run := b.ended("run_1"); run.Status != event.Completed || s.ToolCalls[0].Status != event.Failed {
		t.Errorf("the fold is %s", s.Encode())
	}
}

// A tool that ends while the run that it asked for waits takes that run along.
func TestAToolThatGivesUpOnAnAgent(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2*time.Second)
	var ran atomic.Int32
	impatient := made{tool.Spec{Name: "b", OnCrash: tool.Retry}, func(ctx context.Context, c tool.Call) (tool.Result, error) {
		_, err := c.Agent(ctx, "b", "hi")
		return tool.Failed("gave up"), errors.Join(nil, nil, ignore(err))
	}}
	b.ensemble(named1(t, "a", delegates(1), impatient), named1(t, "b", loops(1), asking("x", &ran, 0)))
	b.invoke("run_1", "hi")
	if s, run := b.ended("run_1"); run.Status != event.Completed || child(s, 0).Status != event.Failed {
		t.Errorf("the fold is %s", s.Encode())
	}
}

// The worker is lost between the end of a sub-agent's run and the result of the
// call: the answer is taken from the log, nothing is asked again.
func TestAnAnswerOfASubAgentIsNotLost(t *testing.T) {
	t.Parallel()
	b := newBench(t, time.Second)
	var asked atomic.Int32
	answered := make(chan struct{})
	late := made{subB().Spec(), func(ctx context.Context, c tool.Call) (tool.Result, error) {
		if _, err := c.Agent(ctx, "b", "hi"); err != nil {
			return tool.Result{}, err
		}
		close(answered)
		<-ctx.Done()
		return tool.Result{}, ctx.Err()
	}}
	inner := play(func(ctx context.Context, req model.Request, emit func(model.Chunk) error) (model.Result, error) {
		return says(fmt.Sprint("answer ", asked.Add(1)))(ctx, req, emit)
	})
	a := b.ensemble(named1(t, "a", delegates(1), late), named1(t, "b", inner))
	b.invoke("run_1", "hi")
	<-answered
	a.cut()
	b.ensemble(named1(t, "a", delegates(1), subB()), named1(t, "b", inner))
	s, run := b.ended("run_1")
	if c := s.ToolCalls[0]; run.Status != event.Completed || c.Content[0].Text != "answer 1" || c.Attempt != 2 || child(s, 1) != nil {
		t.Errorf("the fold is %s", s.Encode())
	}
}

func ignore(error) error { return nil }

func TestASubAgentIsHandedOver(t *testing.T) {
	t.Parallel()
	b := newBench(t, 20*time.Second) // nothing here may wait for the lease
	var started atomic.Int32
	var first atomic.Bool
	inner := play(func(ctx context.Context, req model.Request, emit func(model.Chunk) error) (model.Result, error) {
		if first.CompareAndSwap(false, true) {
			return hangs(&started, nil)(ctx, req, emit)
		}
		return says("elsewhere")(ctx, req, emit)
	})
	ensemble := func() *running { return b.ensemble(named1(t, "a", delegates(1), subB()), named1(t, "b", inner)) }
	a := ensemble()
	b.invoke("run_1", "hi")
	b.until("the sub-agent", func(*event.Session) bool { return started.Load() == 1 })
	ensemble()
	a.drain()
	s, run := b.ended("run_1")
	if run.Status != event.Completed || s.ToolCalls[0].Content[0].Text != "elsewhere" || child(s, 1) != nil {
		t.Errorf("the fold is %s", s.Encode())
	}
}
