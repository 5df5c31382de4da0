package worker

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/agent"
	"github.com/runlog-dev/runlog/worker/model"
	"github.com/runlog-dev/runlog/worker/remote"
	"github.com/runlog-dev/runlog/worker/tool"
)

// counts answers, and says that it has used so much.
type counts event.Usage

func (u counts) Stream(_ context.Context, _ model.Request, emit func(model.Chunk) error) (model.Result, error) {
	return model.Result{FinishReason: event.FinishStop, Usage: event.Usage(u)}, emit(model.Chunk{Kind: model.Text, Text: "hi"})
}

// A model that says nonsense about what it has used has answered all the same.
func TestUsageThatCannotBe(t *testing.T) {
	for name, c := range map[string]struct{ says, logged event.Usage }{
		"negative": {event.Usage{InputTokens: -5, OutputTokens: -1, ReasoningTokens: -7, CachedInputTokens: -3}, event.Usage{Steps: 1}},
		"huge": {event.Usage{InputTokens: math.MaxInt64, OutputTokens: math.MaxInt64},
			event.Usage{InputTokens: event.MaxTokens, OutputTokens: event.MaxTokens, Steps: 1, CostUSD: event.MaxCostUSD}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 20*time.Second)
			d := agent.Definition{Name: "a", Model: agent.ModelConfig{Price: agent.Price{Input: 1e9, Output: 1e9}}}
			b.defined(d, counts(c.says), Options{Observe: Metrics(prometheus.NewRegistry())})
			b.invoke("run_1", "hi")
			_, run := b.ended("run_1")
			if run.Status != event.Completed || run.Usage != c.logged {
				t.Errorf("%s with %+v; want %+v", run.Status, run.Usage, c.logged)
			}
			b.audit()
		})
	}
}

// Metrics are told what is in the log, and old logs may hold anything.
func TestMetricsTakeAnyUsage(t *testing.T) {
	Metrics(prometheus.NewRegistry()).Ended(event.Completed, time.Second, event.Usage{InputTokens: -1, OutputTokens: math.MinInt64})
}

// An agent elsewhere that counts wrongly does not keep to its protocol: its run
// fails, and the worker goes on.
func TestAnAgentElsewhereThatCountsWrongly(t *testing.T) {
	for name, usage := range map[string]event.Usage{
		"money":     {CostUSD: 1e308},
		"tokens":    {InputTokens: math.MaxInt64},
		"reasoning": {ReasoningTokens: -1},
		"cached":    {CachedInputTokens: -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 20*time.Second)
			b.remote(agent.Definition{}, tells(remote.Usage{Usage: usage}, remote.Usage{Usage: usage}))
			b.invoke("run_1", "hi")
			_, run := b.ended("run_1")
			if run.Status != event.Failed || run.Error.Code != event.CodeModelError || !strings.Contains(run.Error.Message, "must be from 0") {
				t.Errorf("%s: %+v", run.Status, run.Error)
			}
			b.audit()
		})
	}
}

// Many that are the most there is come to no more than that.
func TestAnAgentElsewhereThatCountsTheMost(t *testing.T) {
	b := newBench(t, 20*time.Second)
	most := remote.Usage{Usage: event.Usage{InputTokens: event.MaxTokens, OutputTokens: event.MaxTokens, CostUSD: event.MaxCostUSD}}
	b.remote(agent.Definition{}, tells(most, most, most, remote.Text{Delta: "done"}))
	b.invoke("run_1", "hi")
	_, run := b.ended("run_1")
	if run.Status != event.Completed || run.Usage.CostUSD != event.MaxCostUSD || run.Usage.InputTokens != event.MaxTokens {
		t.Errorf("%s with %+v", run.Status, run.Usage)
	}
	b.audit()
}

func deep(n int) json.RawMessage {
	return json.RawMessage(strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n))
}

// tellsAsProgramsDo blames the agent for what does not fit.
func tellsAsProgramsDo(list ...remote.Saying) elsewhere {
	return func(ctx context.Context, task remote.Task, say func(remote.Saying) error) error {
		err := tells(list...)(ctx, task, say)
		if errors.Is(err, remote.ErrMisfit) {
			return &model.Error{Code: event.CodeModelError, Message: err.Error()}
		}
		return err
	}
}

// What an agent elsewhere says nests so deep and no deeper, also when it gets
// there step by step: a session that cannot be encoded brings down whoever has it.
func TestAnAgentElsewhereThatNestsWithoutEnd(t *testing.T) {
	most, over := deep(event.MaxDepth), deep(event.MaxDepth+1)
	further := json.RawMessage(`[{"op":"add","path":"` + strings.Repeat("/a", event.MaxDepth) + `","value":{}}]`)
	for name, says := range map[string][]remote.Saying{
		"state":          {remote.State{State: over}},
		"state patch":    {remote.State{State: most}, remote.StatePatch{Patch: further}},
		"activity":       {remote.Activity{ID: "x", Kind: "k", Content: over}},
		"activity patch": {remote.Activity{ID: "x", Kind: "k", Content: most}, remote.ActivityPatch{ID: "x", Patch: further}},
		"custom":         {remote.Custom{Name: "mine", Value: over}},
		"raw":            {remote.Raw{Source: "x", Event: over}},
		"checkpoint":     {remote.Checkpoint{Value: over}},
		"no JSON":        {remote.State{State: json.RawMessage(`{`)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 20*time.Second)
			b.remote(agent.Definition{}, tellsAsProgramsDo(says...))
			b.invoke("run_1", "hi")
			s, run := b.ended("run_1")
			if run.Status != event.Failed || run.Error.Code != event.CodeModelError {
				t.Errorf("%s: %+v", run.Status, run.Error)
			}
			s.Encode()
			b.audit()
		})
	}
}

// A result that cannot be logged fails its call, and the agent goes on.
func TestResultsThatNestWithoutEnd(t *testing.T) {
	for name, r := range map[string]tool.Result{
		"structured": {Structured: deep(9998)},
		"a part":     {Content: []event.Part{{Type: event.PartJSON, Value: deep(event.MaxDepth + 1)}}},
		"of a fault": {Failed: true, Content: []event.Part{event.TextPart("x"), {Type: event.PartJSON, Value: deep(9998)}}},
		"no JSON":    {Structured: json.RawMessage(`{`)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 20*time.Second)
			b.worker(loops(1), made{tool.Spec{Name: "x"}, func(context.Context, tool.Call) (tool.Result, error) { return r, nil }})
			b.invoke("run_1", "hi")
			s, run := b.ended("run_1")
			if c := s.ToolCalls[0]; run.Status != event.Completed || c.Status != event.Failed {
				t.Errorf("run %s, call %s", run.Status, c.Status)
			}
			s.Encode()
			b.audit()
		})
	}
}

// Arguments are the model's text. Nested too deep they are no JSON to anybody:
// the tool is not called, and the model is asked without them.
func TestArgumentsThatNestWithoutEnd(t *testing.T) {
	b := newBench(t, 20*time.Second)
	b.worker(play(func(ctx context.Context, req model.Request, emit func(model.Chunk) error) (model.Result, error) {
		if len(req.Session.ToolCalls) > 0 {
			_, theirs := req.Session.AnthropicView(event.View{RunID: req.RunID})
			if !event.Valid(theirs) || !event.Valid(req.Session.OpenAIView(event.View{RunID: req.RunID})) {
				t.Error("what the model is asked is no JSON")
			}
			return says("done")(ctx, req, emit)
		}
		_ = emit(model.Chunk{Kind: model.CallStart, CallID: "c", Name: "x"})
		_ = emit(model.Chunk{Kind: model.CallArgs, Text: string(deep(9998))})
		return model.Result{FinishReason: event.FinishToolCalls}, nil
	}), quick("x"))
	b.invoke("run_1", "hi")
	s, run := b.ended("run_1")
	if c := s.ToolCalls[0]; run.Status != event.Completed || c.Status != event.Failed {
		t.Errorf("run %s, call %s", run.Status, c.Status)
	}
	b.audit()
}
