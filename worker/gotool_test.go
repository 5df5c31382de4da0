package worker

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/agent"
	"github.com/runlog-dev/runlog/worker/tool"
)

// orders is an agent without a model: it calls the tool x, then says its result.
func orders(t *testing.T, tools ...tool.Tool) *agent.Agent {
	t.Helper()
	a, err := agent.Go(agent.Definition{Name: "a"}, func(_ context.Context, s *agent.Step) error {
		r := s.Result("x")
		switch {
		case r == nil:
			return s.Call("x", map[string]string{"item": s.Input})
		case r.Status == event.Failed:
			return s.Say("sorry: %s", r.Message)
		}
		return s.Say("ordered %s", r.Content[0].Text)
	}, tools...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestAnAgentAndAToolInGo(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2*time.Second)
	b.ensemble(orders(t, tool.New(tool.Spec{Name: "x"}, func(_ context.Context, c tool.Call) (tool.Result, error) {
		args, err := tool.Args[struct{ Item string }](c)
		return tool.Text(args.Item), err
	})))
	b.invoke("run_1", "a book")
	s, run := b.ended("run_1")
	if run.Status != event.Completed || s.MessageByID(run.Output.MessageID).Parts[0].Text != "ordered a book" {
		t.Errorf("the fold is %s", s.Encode())
	}
}

func TestAnAgentInGoThatFailsFailsItsRun(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2*time.Second)
	a, err := agent.Go(agent.Definition{Name: "a"}, func(context.Context, *agent.Step) error { return errors.New("no idea") })
	if err != nil {
		t.Fatal(err)
	}
	b.ensemble(a)
	b.invoke("run_1", "hi")
	if _, run := b.ended("run_1"); run.Status != event.Failed || run.Error.Message != "no idea" {
		t.Errorf("run is %+v", run)
	}
}

// A worker is lost in the second of three steps, or in the third. What was done
// is not done again; what had begun is, only if the tool finds out that it may.
func TestStepsThatHappenOnce(t *testing.T) {
	for _, c := range []struct {
		name    string
		cutIn   int // the step that is going on when the worker is lost
		done    [3]int32
		outcome event.Outcome
	}{
		{"between the steps", 0, [3]int32{1, 1, 1}, ""},
		{"within one", 2, [3]int32{1, 1, 0}, event.OutcomeUnknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, time.Second)
			var did [3]atomic.Int32
			var lost atomic.Bool
			reached := make(chan struct{}, 1)
			hang := func(ctx context.Context) error {
				if lost.Load() {
					return nil
				}
				reached <- struct{}{}
				<-ctx.Done()
				return ctx.Err()
			}
			x := tool.New(tool.Spec{Name: "x", OnCrash: tool.Retry}, func(ctx context.Context, call tool.Call) (tool.Result, error) {
				sum := 0
				for i := range did {
					n, err := tool.Once(ctx, call, string(rune('a'+i)), func(ctx context.Context) (int, error) {
						did[i].Add(1)
						if c.cutIn == i+1 {
							return 0, hang(ctx)
						}
						return i + 1, nil
					})
					if err != nil {
						return tool.Result{}, err
					}
					if sum += n; i == 1 && c.cutIn == 0 {
						if err := hang(ctx); err != nil {
							return tool.Result{}, err
						}
					}
				}
				return tool.Text(string(rune('0' + sum))), nil
			})
			a := b.ensemble(orders(t, x))
			b.invoke("run_1", "hi")
			<-reached
			lost.Store(true)
			a.cut()
			b.ensemble(orders(t, x))
			s, run := b.ended("run_1")
			for i, want := range c.done {
				if got := did[i].Load(); got != want {
					t.Errorf("step %d was done %d times, want %d", i, got, want)
				}
			}
			call := s.ToolCalls[0]
			if run.Status != event.Completed || call.Outcome != c.outcome || c.outcome == "" && call.Content[0].Text != "6" {
				t.Errorf("the call is %+v", call)
			}
		})
	}
}

func TestAStepThatFailedMayBeTriedAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2*time.Second)
	var tries atomic.Int32
	b.ensemble(orders(t, tool.New(tool.Spec{Name: "x"}, func(ctx context.Context, c tool.Call) (tool.Result, error) {
		step := func(context.Context) (string, error) {
			if tries.Add(1) == 1 {
				return "", errors.New("refused")
			}
			return "paid", nil
		}
		if _, err := tool.Once(ctx, c, "pay", step); err == nil {
			return tool.Failed("the first did not fail"), nil
		}
		for range 2 {
			if got, err := tool.Once(ctx, c, "pay", step); err != nil || got != "paid" {
				return tool.Result{}, errors.Join(errors.New(got), err)
			}
		}
		return tool.Text("paid"), nil
	})))
	b.invoke("run_1", "hi")
	if s, run := b.ended("run_1"); run.Status != event.Completed || s.ToolCalls[0].Status != event.Completed || tries.Load() != 2 {
		t.Errorf("%d tries; the fold is %s", tries.Load(), s.Encode())
	}
}
