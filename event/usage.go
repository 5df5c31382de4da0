package event

import (
	"fmt"
	"math"
)

// The most that a Usage counts. Models and agents elsewhere say what they like;
// sums within these neither wrap nor become infinite, which JSON does not have.
const (
	MaxTokens  int64   = 1e12 // of each kind
	MaxCostUSD float64 = 1e12
)

// Usage counts tokens of a step; steps, tool calls and cost of a run besides.
type Usage struct {
	InputTokens       int64   `json:"input_tokens"`
	OutputTokens      int64   `json:"output_tokens"`
	ReasoningTokens   int64   `json:"reasoning_tokens"`
	CachedInputTokens int64   `json:"cached_input_tokens"`
	Steps             int     `json:"steps,omitempty"`
	ToolCalls         int     `json:"tool_calls,omitempty"`
	CostUSD           float64 `json:"cost_usd,omitempty"`
}

// Check says what of u cannot be: less than nothing, or more than is counted.
func (u Usage) Check() error {
	for _, n := range []struct {
		name  string
		count int64
	}{
		{"input_tokens", u.InputTokens}, {"output_tokens", u.OutputTokens}, {"reasoning_tokens", u.ReasoningTokens},
		{"cached_input_tokens", u.CachedInputTokens}, {"steps", int64(u.Steps)}, {"tool_calls", int64(u.ToolCalls)},
	} {
		if n.count < 0 || n.count > MaxTokens {
			return fmt.Errorf("%s is %d: it must be from 0 to %d", n.name, n.count, MaxTokens)
		}
	}
	if !(u.CostUSD >= 0 && u.CostUSD <= MaxCostUSD) {
		return fmt.Errorf("cost_usd is %g: it must be from 0 to %g", u.CostUSD, MaxCostUSD)
	}
	return nil
}

// Bounded is u with what is less than nothing left out, and what is more than is
// counted cut to that.
func (u Usage) Bounded() Usage {
	return Usage{InputTokens: tokens(u.InputTokens), OutputTokens: tokens(u.OutputTokens), ReasoningTokens: tokens(u.ReasoningTokens),
		CachedInputTokens: tokens(u.CachedInputTokens), Steps: int(tokens(int64(u.Steps))), ToolCalls: int(tokens(int64(u.ToolCalls))), CostUSD: cost(u.CostUSD)}
}

func tokens(n int64) int64 { return min(max(n, 0), MaxTokens) }

func cost(usd float64) float64 {
	if math.IsNaN(usd) {
		return 0
	}
	return min(max(usd, 0), MaxCostUSD)
}

// Add adds the counts of o, each up to the most that is counted.
func (u *Usage) Add(o Usage) {
	a, b := u.Bounded(), o.Bounded()
	*u = Usage{InputTokens: a.InputTokens + b.InputTokens, OutputTokens: a.OutputTokens + b.OutputTokens,
		ReasoningTokens: a.ReasoningTokens + b.ReasoningTokens, CachedInputTokens: a.CachedInputTokens + b.CachedInputTokens,
		Steps: a.Steps + b.Steps, ToolCalls: a.ToolCalls + b.ToolCalls, CostUSD: a.CostUSD + b.CostUSD}.Bounded()
}
