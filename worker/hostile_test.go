package worker

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/agent"
	"github.com/runlog-dev/runlog/worker/model"
	"github.com/runlog-dev/runlog/worker/remote"
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
