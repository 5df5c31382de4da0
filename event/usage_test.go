package event

import (
	"math"
	"testing"
)

// Whatever is added to a usage, it can be logged, and limits hold of it.
func TestUsageNeitherWrapsNorIsEndless(t *testing.T) {
	odd := []Usage{
		{InputTokens: -1, OutputTokens: math.MinInt64, Steps: -1},
		{InputTokens: math.MaxInt64, OutputTokens: math.MaxInt64, ReasoningTokens: math.MaxInt64, CachedInputTokens: math.MaxInt64, Steps: math.MaxInt, ToolCalls: math.MaxInt},
		{CostUSD: 1e308}, {CostUSD: -1}, {CostUSD: math.NaN()}, {CostUSD: math.Inf(1)}, {CostUSD: math.Inf(-1)},
	}
	var sum Usage
	for range 3 {
		for _, u := range odd {
			if u.Check() == nil || u.Bounded().Check() != nil {
				t.Errorf("%+v: checked %v, bounded %+v", u, u.Check(), u.Bounded())
			}
			sum.Add(u)
			if err := sum.Check(); err != nil {
				t.Fatalf("with %+v the sum is %+v: %v", u, sum, err)
			}
		}
	}
	if sum.InputTokens != MaxTokens || sum.CostUSD != MaxCostUSD {
		t.Errorf("the sum is %+v", sum)
	}
	Encode(sum)
}

func TestRaisedLimitsNeitherWrapNorAreEndless(t *testing.T) {
	most := Limits{Steps: int(MaxTokens), ToolCalls: int(MaxTokens), Tokens: MaxTokens, CostUSD: MaxCostUSD, WallMS: maxWallMS}
	var sum Limits
	for range 3 {
		sum.add(most)
		sum.add(Limits{Tokens: math.MaxInt64, CostUSD: math.Inf(1), WallMS: math.MaxInt64})
	}
	if sum != most || sum.Check() != nil {
		t.Errorf("the sum is %+v: %v", sum, sum.Check())
	}
	for _, l := range []Limits{{Steps: -1}, {Tokens: math.MaxInt64}, {CostUSD: math.Inf(1)}, {WallMS: math.MaxInt64}} {
		if l.Check() == nil {
			t.Errorf("%+v is taken", l)
		}
	}
}
