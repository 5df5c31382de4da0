package agent

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/model"
	"github.com/runlog-dev/runlog/worker/tool"
)

// maxRetryAfter bounds how long a server can make a run wait for it.
const maxRetryAfter = 2 * time.Minute

// modelStep asks the model once, with retries, and logs its answer. A step that
// a worker left unanswered goes on under its old number.
func (r *Run) modelStep(ctx context.Context, view *event.Session, run *event.Run) error {
	r.fallback = min(run.Book.Fallback, len(r.agent.Fallback))
	if err := r.listTools(ctx); err != nil {
		return err
	}
	req, step, err := r.beginStep(view, run)
	if err != nil {
		return err
	}
	// The claim must be in the log before the model costs anything.
	if err := r.Journal.Sync(ctx); err != nil {
		return err
	}
	return r.ask(ctx, req, step)
}

// beginStep reserves what the step takes, and says so in the log before another
// run under the same one looks at the budgets.
func (r *Run) beginStep(view *event.Session, run *event.Run) (req request, step int, err error) {
	r.floor.spending.Lock()
	defer r.floor.spending.Unlock()
	if r.parent != nil {
		view = r.Journal.View()
	}
	if req, err = r.request(view, run); err != nil || run.Book.InStep {
		return req, run.Book.Step, err
	}
	step = run.Book.Step + 1
	return req, step, r.Journal.Append(r.stepStarted(step, req))
}

func (r *Run) stepStarted(step int, req request) event.Event {
	return r.event(event.StepStarted, event.StepStartedData{Step: step, Model: r.model().config.Name, Fallback: r.fallback, Reserved: req.reserved})
}

// A request is what the model is asked, with what is reserved for it.
type request struct {
	model.Request
	reserved *event.Reserved
	capped   bool // a budget bounds the answer
}

// request puts the model's request together. It fits the model's context and
// the run's budgets.
func (r *Run) request(view *event.Session, run *event.Run) (request, error) {
	system, err := r.agent.prompt(view, run)
	if err != nil {
		return request{}, err
	}
	m := r.model()
	req := request{Request: model.Request{Session: view, RunID: r.id, System: system, Tools: modelTools(r.specs), MaxTokens: m.config.MaxTokens}}
	counts := r.counts(view)
	tokens := int64(0)
	if counts || m.config.Context > 0 {
		if tokens, err = r.fit(&req, m.config); err != nil {
			return req, err
		}
	}
	if run.Book.InStep {
		return req, nil // it was reserved
	}
	answer, err := r.reserve(view, tokens)
	if err != nil {
		return req, err
	}
	if answer > 0 && (req.MaxTokens == 0 || answer < int64(req.MaxTokens)) {
		req.MaxTokens, req.capped = int(answer), true
	}
	if counts {
		req.reserved = &event.Reserved{Tokens: tokens, CostUSD: m.price.counted(event.Usage{InputTokens: tokens}).CostUSD}
	}
	return req, nil
}

// bytesPerToken estimates tokens from the bytes of a request. It is low: a
// request is thought larger than it is, for most languages.
const bytesPerToken = 3

// fit cuts the conversation so that request and answer fit the model's context,
// which the log says before the model is asked, and estimates the request.
func (r *Run) fit(req *request, m ModelConfig) (tokens int64, err error) {
	tools := len(event.Encode(req.Tools))
	limit := math.MaxInt
	if m.Context > 0 {
		limit = max(0, (m.Context-first(m.MaxTokens, m.Context/4))*bytesPerToken-tools)
	}
	cut, size := req.Session.Fit(event.View{System: req.System, RunID: r.id}, limit)
	if size > limit {
		return 0, &Failure{Code: event.CodeTooLarge, Message: fmt.Sprintf(
			"the request takes about %d tokens even without what can be left out; with %d for the answer that is more than the model's context of %d",
			(size+tools)/bytesPerToken, first(m.MaxTokens, m.Context/4), m.Context)}
	}
	if cut != req.Session.CutOf(r.id) {
		e := r.hidden(true, event.Custom, event.CustomData{Name: event.CutEvent, Value: event.Encode(cut)})
		if err := r.Journal.Append(e); err != nil {
			return 0, err
		}
		req.Session = r.Journal.View()
	}
	return int64((size + tools) / bytesPerToken), nil
}

// ask calls the model until an answer is complete.
func (r *Run) ask(ctx context.Context, req request, step int) error {
	return r.repeat(ctx, func(retry int) (*model.Error, error) { return r.askOnce(ctx, req, step, retry) })
}

// repeat does what may have to be done again: again is why, and says when.
func (r *Run) repeat(ctx context.Context, do func(retry int) (again *model.Error, err error)) error {
	for retry := 1; ; retry++ {
		again, err := do(retry)
		if again == nil || err != nil {
			return err
		}
		if err := r.pause(ctx, retry, again.RetryAfter); err != nil {
			return err
		}
	}
}

// askOnce calls the model and closes the step with its answer, or takes back what
// there was of it.
func (r *Run) askOnce(ctx context.Context, req request, step, retry int) (again *model.Error, err error) {
	req.Attempt = retry
	a := newAnswer(r)
	result, err := r.stream(ctx, req.Request, a)
	result.Usage = r.model().price.counted(result.Usage)
	var fault *model.Error
	switch {
	case err == nil:
		defer r.hush()
		return nil, a.complete(step, req.finished(result))
	case errors.Is(err, ErrDrained):
		a.drop()
		return nil, err // the next owner takes the attempt back
	case context.Cause(ctx) != nil:
		return nil, errors.Join(a.flush(), context.Cause(ctx)) // what was said so far stays
	case !errors.As(err, &fault):
		a.drop()
		return nil, err // the journal's, or a panic
	case req.finished(result).FinishReason == event.FinishBudget:
		return nil, r.cutOff(a, step, result)
	}
	return r.takeBack(a, fault, step, retry)
}

// takeBack discards the answer of a model that failed, and says how the run goes on:
// with another attempt, with another model, or not at all.
func (r *Run) takeBack(a *answer, fault *model.Error, step, retry int) (again *model.Error, err error) {
	last := !fault.Retryable || retry > r.Tunables.Retries
	next := last && r.another(fault)
	if err := a.discard(string(fault.Code), retry, last && !next); err != nil {
		return nil, err
	}
	r.hush()
	switch {
	case next:
		return nil, r.fallBack(step)
	case last:
		return nil, failureOf(fault)
	}
	return fault, nil
}

func failureOf(fault *model.Error) *Failure {
	return &Failure{Code: fault.Code, Message: fault.Message, Retryable: fault.Retryable}
}

// finished says of an answer that a budget cut off that it was so.
func (q request) finished(result model.Result) model.Result {
	if q.capped && result.FinishReason == event.FinishLength {
		result.FinishReason = event.FinishBudget
	}
	return result
}

// cutOff takes back an answer that a budget cut off within its calls, and counts it.
func (r *Run) cutOff(a *answer, step int, result model.Result) error {
	if err := a.discard(string(event.CodeBudget), 0, true); err != nil {
		return err
	}
	return r.Journal.Append(r.event(event.StepCompleted, event.StepCompletedData{Step: step, FinishReason: event.FinishBudget, Usage: result.Usage}))
}

// stream runs one attempt; it is broken off when the worker drains.
func (r *Run) stream(ctx context.Context, req model.Request, a *answer) (result model.Result, err error) {
	defer Caught(&err)
	ctx, cancel := until(ctx, r.draining, ErrDrained)
	defer cancel()
	result, err = r.model().Stream(ctx, req, a.take)
	if err != nil && errors.Is(context.Cause(ctx), ErrDrained) {
		return result, ErrDrained
	}
	if err == nil {
		err = a.catchUp(ctx)
	}
	if err != nil {
		return result, err
	}
	return result, truncated(result, a)
}

// truncated turns an answer that was cut inside its tool calls into a fault: none
// of these calls may run.
func truncated(result model.Result, a *answer) error {
	if len(a.calls) > 0 && (result.FinishReason == event.FinishLength || result.FinishReason == event.FinishFilter) {
		return &model.Error{Code: event.CodeModelTruncated, Retryable: true,
			Message: fmt.Sprintf("the model stopped (%s) inside its tool calls; raise max_tokens of the model", result.FinishReason)}
	}
	return nil
}

func (r *Run) pause(ctx context.Context, retry int, asked time.Duration) error {
	wait := min(r.Tunables.Backoff<<(retry-1), 30*time.Second)
	wait += time.Duration(rand.Int64N(int64(wait)/2 + 1))
	if asked > 0 {
		wait = min(asked, maxRetryAfter)
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-r.draining:
		return ErrDrained
	case <-t.C:
		return nil
	}
}

// listTools asks the sources what there is, but lets go of the run at once when it
// is to. A server that was there before and is missing now leaves its tools listed:
// calling them says what is wrong.
func (r *Run) listTools(ctx context.Context) error {
	ctx, cancel := until(ctx, r.draining, ErrDrained)
	defer cancel()
	listing, stop := context.WithTimeout(ctx, r.Tunables.ToolWait)
	defer stop()
	var all []tool.Tool
	for _, source := range r.sources() {
		list, err := source.Tools(listing)
		switch {
		case err != nil && ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && r.tools != nil:
			return nil
		case err != nil:
			return &Failure{Code: event.CodeToolMissing, Message: err.Error(), Retryable: true}
		}
		all = append(all, list...)
	}
	r.tools, r.specs = map[string]tool.Tool{}, nil
	for _, t := range tool.Distinct(all) {
		spec := t.Spec()
		r.tools[spec.Name] = t
		r.specs = append(r.specs, spec)
	}
	return nil
}

// sources are the agent's, and the tools that the request brought along.
func (r *Run) sources() []tool.Source {
	var client tool.Fixed
	for _, c := range r.config.ClientTools {
		client = append(client, tool.Client{ClientTool: c})
	}
	return append(slices.Clip(r.agent.Sources), client)
}

// executor is who runs a tool; a tool that does not exist is answered here.
func (r *Run) executor(name string) event.Executor {
	if t := r.tools[name]; t != nil && t.Spec().Executor != "" {
		return t.Spec().Executor
	}
	if r.agent.Remote != nil {
		return event.ByRemote
	}
	return event.ByWorker
}

func modelTools(specs []tool.Spec) []model.ToolSpec {
	out := make([]model.ToolSpec, len(specs))
	for i, s := range specs {
		out[i] = model.ToolSpec{Name: s.Name, Description: s.Description, Parameters: s.Parameters}
	}
	return out
}
