package agent

import (
	"context"
	"errors"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/tool"
)

// again reports whether a call that failed is worth another attempt, and safe: its
// tool was not reached, or may be called twice. What a tool answers, be it an
// error, is an answer.
func (t *toolCall) again(err error, retry int) bool {
	spec := t.tool.Spec()
	if spec.Agent != "" || retry > spec.MaxRetries() {
		return false
	}
	if !errors.Is(err, tool.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	return spec.OnCrash == tool.Retry || errors.Is(err, tool.ErrUnavailable) && outcome(err) == event.OutcomeFailed
}

// retry waits, and begins the next attempt as the first one began: after
// tool.running is committed, and only while the session is ours.
func (t *toolCall) retry(ctx context.Context, retry int, why error) error {
	if err := t.run.pause(ctx, retry, 0); err != nil {
		return err
	}
	t.view = t.run.Journal.View() // it has what the last attempt has made
	t.call = t.view.Call(t.call.CallID)
	t.call.Attempt++
	e := t.running()
	e.Reason = t.run.Redactor.String(why.Error())
	if err := t.append(t.run.hidden(t.internal, event.ToolRunning, e)); err != nil {
		return err
	}
	return t.run.announced(ctx)
}

// left is what becomes of a call whose next attempt did not come about. One that
// the next worker may repeat stays open for it.
func (t *toolCall) left(ctx context.Context, last, why error) error {
	if errors.Is(why, ErrDrained) && t.tool.Spec().OnCrash != tool.Retry {
		return t.log(ctx, tool.Result{}, last)
	}
	return t.log(ctx, tool.Result{}, why)
}
