package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/tool"
)

// A Budget bounds what is spent. Zero fields do not limit.
type Budget struct {
	Steps     int
	ToolCalls int
	Tokens    int64
	CostUSD   float64
	Wall      time.Duration // without the time that runs wait for people
}

// raised is the budget with what was added to it. What has no limit gets none.
func (b Budget) raised(by event.Limits) Budget {
	add := func(limit *int, n int) {
		if *limit > 0 {
			*limit += n
		}
	}
	add(&b.Steps, by.Steps)
	add(&b.ToolCalls, by.ToolCalls)
	if b.Tokens > 0 {
		b.Tokens += by.Tokens
	}
	if b.CostUSD > 0 {
		b.CostUSD += by.CostUSD
	}
	if b.Wall > 0 {
		b.Wall += time.Duration(by.WallMS) * time.Millisecond
	}
	return b
}

// A Price of a model in USD per million tokens.
type Price struct {
	Input       float64
	CachedInput float64 // of input that the provider had
	Output      float64
}

const million = 1e6

// counted is what a model says it has used, with its price. Models say what they
// like: what cannot be is not counted.
func (p Price) counted(u event.Usage) event.Usage {
	u = u.Bounded()
	u.CostUSD = p.of(u)
	return u.Bounded()
}

func (p Price) of(u event.Usage) float64 {
	fresh := max(0, u.InputTokens-u.CachedInputTokens)
	return (float64(fresh)*p.Input + float64(u.CachedInputTokens)*p.CachedInput + float64(u.OutputTokens)*p.Output) / million
}

// overBudget ends the run as failed, or pauses it, after telling which limit was
// reached.
type overBudget struct {
	kind        string
	limit, used float64
	scope       string // event.ScopeSession, or empty: the run's
	runID       string // whose agent sets the limit
	pause       bool
}

func (b *overBudget) Error() string {
	whose := "run"
	if b.scope == event.ScopeSession {
		whose = "session"
	}
	switch b.kind {
	case "wall":
		return fmt.Sprintf("the %s took longer than its limit of %s", whose, time.Duration(b.limit*float64(time.Second)))
	case "cost_usd":
		return fmt.Sprintf("the %s's limit of %.4g USD is reached", whose, b.limit)
	}
	return fmt.Sprintf("the %s's limit of %.0f %s is reached", whose, b.limit, b.kind)
}

func (b *overBudget) event(r *Run) event.Event {
	return r.event(event.BudgetExceeded, event.BudgetExceededData{Kind: b.kind, Limit: b.limit, Used: b.used, Scope: b.scope})
}

// An account is a budget and what was spent of it.
type account struct {
	overBudget // kind, limit and used are filled in when it is overdrawn
	Budget
	spent Budget
}

// accounts are the budgets that the run spends from: its own, the tokens and the
// money of those that it works for, and the session's.
func (r *Run) accounts(view *event.Session) []account {
	run := view.Run(r.id)
	own := account{overBudget{runID: r.id, pause: r.limits.Pause}, r.limits.budget().raised(run.Book.Raised), spentBy(view, run)}
	if r.parent == nil {
		whole := account{overBudget{runID: r.id, pause: r.limits.Pause, scope: event.ScopeSession},
			r.limits.Session.raised(view.Book.Raised), spentIn(view)}
		return []account{own, whole}
	}
	list := []account{own}
	for i, a := range r.parent.accounts(view) {
		if i == 0 {
			a.Steps, a.ToolCalls, a.Wall = 0, 0, 0 // these count its own
		}
		list = append(list, a)
	}
	return list
}

// spentBy is what a run has spent; its tokens and money include those of its
// sub-agents.
func spentBy(view *event.Session, run *event.Run) Budget {
	s := Budget{Steps: run.Book.Step, ToolCalls: run.Usage.ToolCalls, Wall: worked(run)}
	s.Tokens, s.CostUSD = consumed(run)
	for _, child := range view.Runs {
		if child.ParentRunID == run.RunID {
			below := spentBy(view, child)
			s.Tokens += below.Tokens
			s.CostUSD += below.CostUSD
		}
	}
	return s
}

func spentIn(view *event.Session) (s Budget) {
	for _, run := range view.Runs {
		tokens, cost := consumed(run)
		s.Steps += run.Book.Step
		s.ToolCalls += run.Usage.ToolCalls
		s.Tokens += tokens
		s.CostUSD += cost
		if run.ParentRunID == "" {
			s.Wall += worked(run)
		}
	}
	return s
}

// consumed is what a run has used, and what is reserved for the step that it is
// in.
func consumed(run *event.Run) (tokens int64, cost float64) {
	if r := run.Book.Reserved; r != nil && run.Book.InStep {
		tokens, cost = r.Tokens, r.CostUSD
	}
	return tokens + run.Usage.InputTokens + run.Usage.OutputTokens + run.Book.Lost.Tokens, cost + run.Usage.CostUSD + run.Book.Lost.CostUSD
}

// worked is how long a run took, without its waits for people.
func worked(run *event.Run) time.Duration {
	if run.StartedAt == nil {
		return 0
	}
	end := time.Now()
	switch {
	case run.EndedAt != nil:
		end = run.EndedAt.Time
	case run.Book.Parked != nil:
		end = run.Book.Parked.Time
	}
	return end.Sub(run.StartedAt.Time) - time.Duration(run.Book.WaitedMS)*time.Millisecond
}

func (a account) over(kind string, limit, used float64) error {
	b := a.overBudget
	b.kind, b.limit, b.used = kind, limit, used
	return &b
}

// forStep reserves what a model step takes: the step, and its request of about
// so many tokens. It returns how long the answer may be, 0 if nothing limits it.
func (a account) forStep(tokens int64, p Price) (answer int64, err error) {
	cost := p.of(event.Usage{InputTokens: tokens})
	switch {
	case a.Steps > 0 && a.spent.Steps >= a.Steps:
		return 0, a.over("steps", float64(a.Steps), float64(a.spent.Steps))
	case a.Tokens > 0 && a.spent.Tokens+tokens >= a.Tokens:
		return 0, a.over("tokens", float64(a.Tokens), float64(a.spent.Tokens))
	case a.CostUSD > 0 && a.spent.CostUSD+cost >= a.CostUSD:
		return 0, a.over("cost_usd", a.CostUSD, a.spent.CostUSD)
	}
	if a.Tokens > 0 {
		answer = a.Tokens - a.spent.Tokens - tokens
	}
	if a.CostUSD > 0 && p.Output > 0 {
		answer = lower(answer, max(1, int64((a.CostUSD-a.spent.CostUSD-cost)/p.Output*million)))
	}
	return answer, nil
}

func (a account) forCalls(n int) error {
	if used := a.spent.ToolCalls + n; a.ToolCalls > 0 && used > a.ToolCalls {
		return a.over("tool_calls", float64(a.ToolCalls), float64(used))
	}
	return nil
}

// reserve checks every budget before a model step.
func (r *Run) reserve(view *event.Session, tokens int64) (answer int64, err error) {
	for _, a := range r.accounts(view) {
		n, err := a.forStep(tokens, r.model().price)
		if err != nil {
			return 0, err
		}
		answer = lower(answer, n)
	}
	return answer, nil
}

func (r *Run) reserveCalls(view *event.Session, n int) error {
	for _, a := range r.accounts(view) {
		if err := a.forCalls(n); err != nil {
			return err
		}
	}
	return nil
}

// counts reports whether anything that the run does is limited in tokens or money.
func (r *Run) counts(view *event.Session) bool {
	for _, a := range r.accounts(view) {
		if a.Tokens > 0 || a.CostUSD > 0 {
			return true
		}
	}
	return false
}

// bounded ends the context when the time of the run, or of its session, is over.
func (r *Run) bounded(ctx context.Context, view *event.Session) (context.Context, context.CancelFunc) {
	var first *overBudget
	var at time.Time
	for _, a := range r.accounts(view) {
		if a.Wall == 0 || a.runID != r.id {
			continue // a parent's time is in ctx already
		}
		end := time.Now().Add(a.Wall - a.spent.Wall)
		if first == nil || end.Before(at) {
			b := a.overBudget
			b.kind, b.limit, b.used = "wall", a.Wall.Seconds(), max(a.Wall, a.spent.Wall).Seconds()
			first, at = &b, end
		}
	}
	if first == nil {
		return context.WithCancel(ctx)
	}
	return context.WithDeadlineCause(ctx, at, first)
}

// exceeded ends the run, or pauses it. Where the budget is that of another run,
// for which this one works, that one pauses: this one stays as it is.
func (r *Run) exceeded(ctx context.Context, b *overBudget) error {
	switch {
	case b.runID != r.id && b.pause:
		if err := r.Journal.Append(r.breakOff()...); err != nil {
			return err
		}
		return b
	case b.runID != r.id:
		if err := r.end(ctx, string(event.CodeBudget), r.failed(&Failure{Code: event.CodeBudget, Message: b.Error()})); err != nil {
			return err
		}
		return b
	case b.pause:
		return r.pauseFor(ctx, b)
	}
	return r.end(ctx, string(event.CodeBudget), b.event(r), r.failed(&Failure{Code: event.CodeBudget, Message: b.Error()}))
}

// pauseFor parks the run until somebody raises its budget.
func (r *Run) pauseFor(ctx context.Context, b *overBudget) error {
	events := r.breakOff()
	until := event.At(time.Now().Add(first(r.limits.ResumeWithin, tool.DefaultWait)))
	run := r.Journal.View().Run(r.id)
	events = append(events, b.event(r),
		r.event(event.RunStatus, event.RunStatusData{Status: event.WaitingApproval, Previous: run.Status, Reason: "budget", ExpiresAt: &until}))
	if err := r.Journal.Append(events...); err != nil {
		return err
	}
	if err := r.Journal.Sync(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	return ErrParked
}

// breakOff takes back what the model is saying and closes its step.
func (r *Run) breakOff() []event.Event {
	view := r.Journal.View()
	run := view.Run(r.id)
	if !run.Book.InStep {
		return nil
	}
	out := r.takenBack(view, "budget", 0)
	return append(out, r.event(event.StepCompleted, event.StepCompletedData{Step: run.Book.Step, FinishReason: event.FinishBudget}))
}

// Raised are the events by which a paused run gets more budget and goes on: by
// what is asked for, or else by its limit once more.
func Raised(view *event.Session, run *event.Run, by *event.Limits) []event.Event {
	r := about(run)
	if by == nil || *by == (event.Limits{}) {
		by = again(view, run)
	}
	return []event.Event{r.event(event.RunStatus, event.RunStatusData{Status: event.Running, Previous: run.Status, Reason: "resumed", Raised: by})}
}

// again is the limit as it was before it was ever raised.
func again(view *event.Session, run *event.Run) *event.Limits {
	b, had := run.Book.Exceeded, run.Book.Raised
	if b.Scope == event.ScopeSession {
		had = view.Book.Raised
	}
	switch b.Kind {
	case "steps":
		return &event.Limits{Steps: int(b.Limit) - had.Steps}
	case "tool_calls":
		return &event.Limits{ToolCalls: int(b.Limit) - had.ToolCalls}
	case "tokens":
		return &event.Limits{Tokens: int64(b.Limit) - had.Tokens}
	case "cost_usd":
		return &event.Limits{CostUSD: b.Limit - had.CostUSD}
	}
	return &event.Limits{WallMS: int64(b.Limit*1000) - had.WallMS}
}

// NotRaised are the events that end a paused run whose budget nobody raised.
func NotRaised(view *event.Session, run *event.Run) []event.Event {
	r := about(run)
	b := run.Book.Exceeded
	over := overBudget{kind: b.Kind, limit: b.Limit, used: b.Used, scope: b.Scope}
	usage := run.Usage
	return append(r.closers(view, string(event.CodeBudget)), r.event(event.RunFailed, event.RunFailedData{
		Code: event.CodeBudget, Message: over.Error() + ", and nobody raised it in time", Usage: &usage}))
}
