package runlog

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/runlog-dev/runlog/event"
)

// A Submission asks for one run.
type Submission struct {
	Agent     string `json:"agent,omitempty"`      // default: the server's
	SessionID string `json:"session_id,omitempty"` // continue this conversation
	RunID     string `json:"run_id,omitempty"`     // default: given by the server
	TraceID   string `json:"trace_id,omitempty"`
	// Input is a string, []event.Part for one user message, or []event.InputMessage.
	Input        any              `json:"input"`
	Queue        string           `json:"queue,omitempty"`         // enqueue, reject, interrupt, steer
	OnDisconnect string           `json:"on_disconnect,omitempty"` // continue, cancel
	Config       *event.RunConfig `json:"config,omitempty"`

	// IdempotencyKey makes repetitions of a submission one run for 24 hours.
	// Default: a random one per call, which covers the client's own retries.
	IdempotencyKey string `json:"-"`
}

// A Run is the state of a run as the server knows it.
type Run struct {
	RunID        string             `json:"run_id"`
	SessionID    string             `json:"session_id"`
	TraceID      string             `json:"trace_id"`
	Agent        string             `json:"agent"`
	Status       event.Status       `json:"status"`
	Seq          event.Seq          `json:"seq"` // last event this state reflects
	CreatedAt    event.Time         `json:"created_at"`
	StartedAt    event.Time         `json:"started_at"`
	EndedAt      event.Time         `json:"ended_at"`
	FinishReason event.FinishReason `json:"finish_reason"`
	Usage        *event.Usage       `json:"usage"`

	Raw json.RawMessage `json:"-"` // the object as it came, with what this type leaves out
}

// UnmarshalJSON keeps the raw object beside the fields.
func (r *Run) UnmarshalJSON(b []byte) error {
	type fields Run
	if err := json.Unmarshal(b, (*fields)(r)); err != nil {
		return err
	}
	r.Raw = bytes.Clone(b)
	return nil
}

func (s Submission) request() (request, error) {
	body, err := json.Marshal(s)
	if err != nil {
		return request{}, fmt.Errorf("encode submission: %w", err)
	}
	key := s.IdempotencyKey
	if key == "" {
		key = rand.Text()
	}
	return request{
		method: http.MethodPost, path: "/v1/runs", body: body,
		header: http.Header{"Idempotency-Key": {key}},
	}, nil
}

// Submit starts a run and returns once it is accepted: from then on it is
// executed, or ends in a state that can be seen.
func (c *Client) Submit(ctx context.Context, s Submission) (Run, error) {
	r, err := s.request()
	if err != nil {
		return Run{}, err
	}
	var run Run
	if err := c.call(ctx, r, &run); err != nil {
		return Run{}, fmt.Errorf("submit run: %w", err)
	}
	return run, nil
}

// GetRun returns the state of a run. An unknown id is an *Error with code not_found.
func (c *Client) GetRun(ctx context.Context, runID string) (Run, error) {
	var run Run
	err := c.call(ctx, request{method: http.MethodGet, path: runPath(runID)}, &run)
	if err != nil {
		return Run{}, fmt.Errorf("get run %s: %w", runID, err)
	}
	return run, nil
}

// A RunQuery selects runs; empty fields select all.
type RunQuery struct {
	TraceID string
	Status  event.Status
	Agent   string
	Limit   int    // runs per page; 0: the server's default
	Cursor  string // RunPage.NextCursor of the page before
}

// A RunPage is one page of a search, latest first. NextCursor is empty on the last one.
type RunPage struct {
	Runs       []Run  `json:"runs"`
	NextCursor string `json:"next_cursor"`
}

// ListRuns returns one page of runs.
func (c *Client) ListRuns(ctx context.Context, q RunQuery) (RunPage, error) {
	v := url.Values{}
	for name, value := range map[string]string{"trace_id": q.TraceID, "status": string(q.Status), "agent": q.Agent, "cursor": q.Cursor} {
		if value != "" {
			v.Set(name, value)
		}
	}
	if q.Limit > 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	var page RunPage
	if err := c.call(ctx, request{method: http.MethodGet, path: withQuery("/v1/runs", v)}, &page); err != nil {
		return RunPage{}, fmt.Errorf("list runs: %w", err)
	}
	return page, nil
}

// Runs returns every run that q selects, page by page.
func (c *Client) Runs(ctx context.Context, q RunQuery) iter.Seq2[Run, error] {
	return func(yield func(Run, error) bool) {
		for {
			page, err := c.ListRuns(ctx, q)
			if err != nil {
				yield(Run{}, err)
				return
			}
			for _, run := range page.Runs {
				if !yield(run, nil) {
					return
				}
			}
			if q.Cursor = page.NextCursor; q.Cursor == "" {
				return
			}
		}
	}
}

// A Cancellation says how to cancel.
type Cancellation struct {
	Reason string `json:"reason,omitempty"`
	Wait   bool   `json:"wait,omitempty"` // return after the run's terminal event
}

// Cancel asks for the end of a run and returns its state: with Wait the final
// one, which is completed or failed if the run was faster. Cancelling a run that
// is over changes nothing and is no error.
func (c *Client) Cancel(ctx context.Context, runID string, how Cancellation) (Run, error) {
	body, err := json.Marshal(how)
	if err != nil {
		return Run{}, fmt.Errorf("encode cancellation: %w", err)
	}
	r := request{method: http.MethodPost, path: runPath(runID) + "/cancel", body: body}
	if how.Wait {
		r.idle = 5 * time.Minute // the answer comes when a tool has let go
	}
	var run Run
	if err := c.call(ctx, r, &run); err != nil {
		return Run{}, fmt.Errorf("cancel run %s: %w", runID, err)
	}
	return run, nil
}

// Snapshot returns the fold of a session's events so far: the whole conversation
// as one value, with the seq it reflects. It is raw JSON of the shape of
// event.Session.
func (c *Client) Snapshot(ctx context.Context, sessionID string) (json.RawMessage, error) {
	var raw json.RawMessage
	r := request{method: http.MethodGet, path: sessionPath(sessionID) + "/snapshot"}
	if err := c.call(ctx, r, &raw); err != nil {
		return nil, fmt.Errorf("get snapshot of session %s: %w", sessionID, err)
	}
	return raw, nil
}

func runPath(id string) string     { return "/v1/runs/" + url.PathEscape(id) }
func sessionPath(id string) string { return "/v1/sessions/" + url.PathEscape(id) }

func withQuery(path string, v url.Values) string {
	if len(v) == 0 {
		return path
	}
	return path + "?" + v.Encode()
}
