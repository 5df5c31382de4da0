package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/tool"
)

// once is tool.Call.Once: that the effect begins is committed before it does,
// and its result after.
func (t *toolCall) once(ctx context.Context, name string, effect func(context.Context) (json.RawMessage, error)) (json.RawMessage, error) {
	entry := event.Once{Key: t.call.CallID + "/" + name}
	switch had := t.run.Journal.View().Run(t.run.id).Book.Once[entry.Key]; had.State {
	case event.OnceDone:
		return had.Result, nil
	case event.OnceBegun:
		return nil, fmt.Errorf("%s had begun when its worker was lost: %w", name, tool.ErrEffectUnknown)
	}
	if err := t.journal(ctx, entry, event.OnceBegun); err != nil {
		return nil, err
	}
	if err := t.run.Journal.Own(ctx); err != nil {
		return nil, err
	}
	result, err := effect(ctx)
	switch {
	case errors.Is(err, tool.ErrEffectUnknown) || err != nil && ctx.Err() != nil:
		return nil, err // it stays begun: nobody does it again
	case err != nil:
		return nil, errors.Join(err, t.journal(ctx, entry, event.OnceFailed))
	}
	entry.Result = result
	return result, t.journal(ctx, entry, event.OnceDone)
}

func (t *toolCall) journal(ctx context.Context, entry event.Once, state event.OnceState) error {
	entry.State = state
	e := t.run.hidden(true, event.Custom, event.CustomData{Name: event.OnceEvent, Value: event.Encode(entry)})
	if err := t.run.Journal.Append(e); err != nil {
		return fmt.Errorf("journal %s: %w", entry.Key, err)
	}
	return t.run.Journal.Sync(context.WithoutCancel(ctx))
}
