package runlog

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/runlog-dev/runlog/event"
)

// A Decision answers a tool call that needs approval.
type Decision struct {
	Decision   event.Decision `json:"decision"`
	Reason     string         `json:"reason,omitempty"`
	ArgsSHA256 string         `json:"args_sha256,omitempty"` // of approval.requested: about these arguments only
}

// Decide approves or denies a tool call. The first decision wins: the contrary
// of it is an *Error with status 409.
func (c *Client) Decide(ctx context.Context, runID, callID string, d Decision) (call event.ToolCall, err error) {
	err = c.post(ctx, runPath(runID)+"/approvals/"+url.PathEscape(callID), d, &call)
	if err != nil {
		err = fmt.Errorf("%s call %s: %w", d.Decision, callID, err)
	}
	return call, err
}

// A ToolResult is what a tool that the client runs gave: Content is a text.
type ToolResult struct {
	Content    string          `json:"content"`
	Structured json.RawMessage `json:"structured,omitempty"`
	Failed     bool            `json:"failed,omitempty"`
}

// Answer sends the result of a tool that the client ran.
func (c *Client) Answer(ctx context.Context, runID, callID string, r ToolResult) (call event.ToolCall, err error) {
	err = c.post(ctx, runPath(runID)+"/tools/"+url.PathEscape(callID), r, &call)
	if err != nil {
		err = fmt.Errorf("answer call %s: %w", callID, err)
	}
	return call, err
}

// Steer gives a message to a run that is going on.
func (c *Client) Steer(ctx context.Context, runID, input string) (run Run, err error) {
	err = c.post(ctx, runPath(runID)+"/steer", map[string]string{"input": input}, &run)
	if err != nil {
		err = fmt.Errorf("steer run %s: %w", runID, err)
	}
	return run, err
}

// Stop ends a run after its current step.
func (c *Client) Stop(ctx context.Context, runID string, how Cancellation) (run Run, err error) {
	err = c.post(ctx, runPath(runID)+"/stop", how, &run)
	if err != nil {
		err = fmt.Errorf("stop run %s: %w", runID, err)
	}
	return run, err
}

// Resume starts a run that goes on where another one failed, was cancelled or
// stopped. Resuming a run twice gives the same run.
func (c *Client) Resume(ctx context.Context, runID string) (run Run, err error) {
	err = c.post(ctx, runPath(runID)+"/resume", struct{}{}, &run)
	if err != nil {
		err = fmt.Errorf("resume run %s: %w", runID, err)
	}
	return run, err
}

// A DeadLetter is a run that was given up because it brought workers down.
type DeadLetter struct {
	RunID     string     `json:"run_id"`
	SessionID string     `json:"session_id"`
	TraceID   string     `json:"trace_id,omitempty"`
	Agent     string     `json:"agent"`
	Reason    string     `json:"reason"`
	Claims    int        `json:"claims"` // workers that were lost with it
	Time      event.Time `json:"time"`
}

// DeadLetters lists them, oldest first.
func (c *Client) DeadLetters(ctx context.Context) ([]DeadLetter, error) {
	var page struct {
		DeadLetters []DeadLetter `json:"dead_letters"`
	}
	if err := c.call(ctx, request{method: http.MethodGet, path: "/v1/dlq"}, &page); err != nil {
		return nil, fmt.Errorf("list dead letters: %w", err)
	}
	return page.DeadLetters, nil
}

// Redrive lets a dead run go on, as a new run of its session.
func (c *Client) Redrive(ctx context.Context, runID string) (run Run, err error) {
	err = c.post(ctx, "/v1/dlq/"+url.PathEscape(runID)+"/redrive", struct{}{}, &run)
	if err != nil {
		err = fmt.Errorf("redrive run %s: %w", runID, err)
	}
	return run, err
}

// DropDeadLetter takes a run off the list.
func (c *Client) DropDeadLetter(ctx context.Context, runID string) error {
	if err := c.call(ctx, request{method: http.MethodDelete, path: "/v1/dlq/" + url.PathEscape(runID)}, nil); err != nil {
		return fmt.Errorf("drop dead letter %s: %w", runID, err)
	}
	return nil
}

func (c *Client) post(ctx context.Context, path string, body, answer any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	r := request{method: http.MethodPost, path: path, body: b, header: http.Header{"Idempotency-Key": {rand.Text()}}}
	return c.call(ctx, r, answer)
}
