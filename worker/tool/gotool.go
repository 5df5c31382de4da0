package tool

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/runlog-dev/runlog/event"
)

// New makes a tool of a Go function. What the function returns as an error is
// told to the model; so is a Result made by Failed. After a crash the call runs
// again if spec.OnCrash is Retry, somebody is asked if it is Ask, and it is closed with outcome unknown otherwise;
// steps that must not happen twice go through Once.
func New(spec Spec, call func(context.Context, Call) (Result, error)) Tool {
	return function{spec, call}
}

type function struct {
	spec Spec
	call func(context.Context, Call) (Result, error)
}

func (f function) Spec() Spec                                       { return f.spec }
func (f function) Call(ctx context.Context, c Call) (Result, error) { return f.call(ctx, c) }

// Text is a result of one text.
func Text(text string) Result { return Result{Content: []event.Part{event.TextPart(text)}} }

// Args decodes the arguments of a call.
func Args[T any](c Call) (args T, err error) {
	if err := json.Unmarshal([]byte(c.Args), &args); err != nil {
		return args, fmt.Errorf("the arguments do not fit: %w", err)
	}
	return args, nil
}

// Once does a step of a call that must not happen twice, whoever dies: in a later
// attempt of the call it gives the recorded result and does nothing. name tells
// the steps of the call apart. The result is recorded as JSON, redacted like
// everything in the log, and at most some hundred KiB.
//
// If the worker was lost between the step's beginning and its record, nobody
// knows whether it happened: the error is ErrEffectUnknown, and the tool may ask
// the other side, with the call's IdempotencyKey. A step that returns an error
// did not happen, and may be tried again, unless the error is ErrEffectUnknown
// or ctx has ended.
func Once[T any](ctx context.Context, c Call, name string, step func(context.Context) (T, error)) (result T, err error) {
	b, err := c.Once(ctx, name, func(ctx context.Context) (json.RawMessage, error) {
		v, err := step(ctx)
		if err != nil {
			return nil, err
		}
		return json.Marshal(v)
	})
	if err != nil {
		return result, err
	}
	return result, json.Unmarshal(b, &result)
}
