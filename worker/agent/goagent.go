package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/model"
	"github.com/runlog-dev/runlog/worker/tool"
)

// Go makes an agent whose steps Go code decides, in the place of a model: all
// else, tools, approvals, limits, crashes and cancel, is as with a model. The
// function is called for each step. It says something, or calls tools, whose
// results the next step sees; the run ends with the step that calls none. After
// a crash a step is decided again, so it depends on the Step alone and has no
// effects of its own: these are for tools.
func Go(d Definition, step func(context.Context, *Step) error, tools ...tool.Tool) (*Agent, error) {
	if d.Model.Name == "" {
		d.Model.Name = "go"
	}
	return New(d, goModel(step), []tool.Source{tool.Fixed(tools)})
}

// A Step is one step of an agent written in Go.
type Step struct {
	Input   string         // the user's last message to the run
	Session *event.Session // the conversation as it stands, read only
	RunID   string

	to     func(model.Chunk) error
	broken error // of the log
	calls  int
}

func (s *Step) emit(c model.Chunk) error {
	if s.broken == nil {
		s.broken = s.to(c)
	}
	return s.broken
}

// Say says a piece of text, which streams to clients at once.
func (s *Step) Say(format string, args ...any) error {
	return s.emit(model.Chunk{Kind: model.Text, Text: fmt.Sprintf(format, args...)})
}

// Call has a tool called when the step is over, at the same time as the others
// that the step calls. args becomes a JSON object.
func (s *Step) Call(name string, args any) error {
	b, err := json.Marshal(args)
	if err != nil {
		return fmt.Errorf("arguments of %s: %w", name, err)
	}
	if args == nil {
		b = []byte("{}")
	}
	i := s.calls
	s.calls++
	if err := s.emit(model.Chunk{Kind: model.CallStart, Index: i, Name: name}); err != nil {
		return err
	}
	return s.emit(model.Chunk{Kind: model.CallArgs, Index: i, Text: string(b)})
}

// Result is the last call of a tool in this run that has its result, or nil.
// Status is event.Completed or event.Failed.
func (s *Step) Result(name string) *event.ToolCall {
	for _, c := range slices.Backward(s.Session.ToolCalls) {
		if c.RunID == s.RunID && c.Name == name && c.Done() {
			return c
		}
	}
	return nil
}

type goModel func(context.Context, *Step) error

func (g goModel) Stream(ctx context.Context, req model.Request, emit func(model.Chunk) error) (model.Result, error) {
	s := &Step{Session: req.Session, RunID: req.RunID, to: emit, Input: req.Session.Asked(req.RunID)}
	if err := g(ctx, s); err != nil {
		if s.broken != nil || ctx.Err() != nil {
			return model.Result{}, err
		}
		var fault *model.Error
		if !errors.As(err, &fault) { // one of model.Error says itself whether to retry
			err = &model.Error{Code: event.CodeModelError, Message: err.Error()}
		}
		return model.Result{}, err
	}
	if s.broken != nil {
		return model.Result{}, s.broken
	}
	if s.calls > 0 {
		return model.Result{FinishReason: event.FinishToolCalls}, nil
	}
	return model.Result{FinishReason: event.FinishStop}, nil
}
