package catalog

import (
	"encoding/json"
	"time"

	"github.com/runlog-dev/runlog/event"
)

// A Session is a conversation as the catalog knows it.
type Session struct {
	SessionID string          `json:"session_id"`
	Seq       event.Seq       `json:"seq"` // the last event that changed anything here
	Agent     string          `json:"agent"`
	Metadata  json.RawMessage `json:"metadata,omitempty"`
	CreatedAt event.Time      `json:"created_at"`
	UpdatedAt event.Time      `json:"updated_at"`
}

// A Run is the run as a fold has it (without Book), and where it belongs.
type Run struct {
	event.Run
	SessionID string     `json:"session_id"`
	Seq       event.Seq  `json:"seq"` // the last event that changed the run
	CreatedAt event.Time `json:"created_at"`
}

// A ToolCall leaves out what can be large: arguments and result are in the log.
type ToolCall struct {
	CallID     string         `json:"call_id"`
	SessionID  string         `json:"session_id"`
	RunID      string         `json:"run_id,omitempty"`
	MessageID  string         `json:"message_id,omitempty"`
	Seq        event.Seq      `json:"seq"`
	Name       string         `json:"name"`
	Executor   event.Executor `json:"executor"`
	Status     event.Status   `json:"status"`
	Attempt    int            `json:"attempt,omitempty"`
	Code       event.Code     `json:"code,omitempty"`
	Message    string         `json:"message,omitempty"`
	Outcome    event.Outcome  `json:"outcome,omitempty"`
	Truncated  bool           `json:"truncated,omitempty"`
	ArtifactID string         `json:"artifact_id,omitempty"` // holds the whole of a truncated result
	Internal   bool           `json:"internal,omitempty"`
	CreatedAt  event.Time     `json:"created_at"`
	StartedAt  *event.Time    `json:"started_at,omitempty"` // of the last attempt
	EndedAt    *event.Time    `json:"ended_at,omitempty"`
}

// An Artifact is the artifact as a fold has it, and where it belongs. Bytes is
// 0 until it is completed.
type Artifact struct {
	event.Artifact
	SessionID string      `json:"session_id"`
	Seq       event.Seq   `json:"seq"`
	CreatedAt event.Time  `json:"created_at"`
	EndedAt   *event.Time `json:"ended_at,omitempty"`
}

// A row of each table: the value that callers see and what else is stored. The
// table's fields are pointers to all of it in the order of its columns; scanning and
// writing both go through them.
type (
	sessionRow struct {
		Session
		tenant   string
		metadata string
	}
	runRow struct {
		Run
		tenant  string
		failure event.RunError
		output  event.RunOutput
	}
	callRow struct {
		ToolCall
		tenant string
		opened event.Seq
	}
	artifactRow struct {
		Artifact
		tenant string
		opened event.Seq
	}
)

var (
	sessionTable = table[sessionRow]{
		name: "sessions", key: []string{"tenant", "session_id"},
		rest: []column{{"seq", bigint}, {"agent", text}, {"metadata", text}, {"created", bigint}, {"updated", bigint}},
		fields: func(r *sessionRow) []any {
			return []any{&r.tenant, &r.SessionID, &r.Seq, &r.Agent, &r.metadata, micros{&r.CreatedAt}, micros{&r.UpdatedAt}}
		},
	}
	runTable = table[runRow]{
		name: "runs", key: []string{"tenant", "session_id", "run_id"},
		rest: []column{{"seq", bigint}, {"trace_id", text}, {"agent", text}, {"parent_run_id", text},
			{"parent_call_id", text}, {"status", text}, {"created", bigint}, {"started", bigint}, {"ended", bigint},
			{"finish_reason", text}, {"output_message_id", text}, {"error_code", text}, {"error_message", text},
			{"retryable", bigint}, {"cancelled_by", text}, {"reason", text}, {"input_tokens", bigint},
			{"output_tokens", bigint}, {"reasoning_tokens", bigint}, {"cached_input_tokens", bigint},
			{"steps", bigint}, {"tool_calls", bigint}, {"cost_usd", double}},
		fields: func(r *runRow) []any {
			u := &r.Usage
			return []any{&r.tenant, &r.SessionID, &r.RunID, &r.Seq, &r.TraceID, &r.Agent, &r.ParentRunID,
				&r.ParentCallID, &r.Status, micros{&r.CreatedAt}, maybe{&r.StartedAt}, maybe{&r.EndedAt},
				&r.FinishReason, &r.output.MessageID, &r.failure.Code, &r.failure.Message,
				flag{&r.failure.Retryable}, &r.By, &r.Reason, &u.InputTokens,
				&u.OutputTokens, &u.ReasoningTokens, &u.CachedInputTokens,
				&u.Steps, &u.ToolCalls, &u.CostUSD}
		},
	}
	callTable = table[callRow]{
		name: "tool_calls", key: []string{"tenant", "session_id", "call_id"},
		rest: []column{{"seq", bigint}, {"opened", bigint}, {"run_id", text}, {"message_id", text}, {"name", text},
			{"executor", text}, {"status", text}, {"attempt", bigint}, {"code", text}, {"message", text},
			{"outcome", text}, {"artifact_id", text}, {"truncated", bigint}, {"internal", bigint},
			{"created", bigint}, {"started", bigint}, {"ended", bigint}},
		fields: func(r *callRow) []any {
			return []any{&r.tenant, &r.SessionID, &r.CallID, &r.Seq, &r.opened, &r.RunID, &r.MessageID, &r.Name,
				&r.Executor, &r.Status, &r.Attempt, &r.Code, &r.Message,
				&r.Outcome, &r.ArtifactID, flag{&r.Truncated}, flag{&r.Internal},
				micros{&r.CreatedAt}, maybe{&r.StartedAt}, maybe{&r.EndedAt}}
		},
	}
	artifactTable = table[artifactRow]{
		name: "artifacts", key: []string{"tenant", "session_id", "artifact_id"},
		rest: []column{{"seq", bigint}, {"opened", bigint}, {"run_id", text}, {"call_id", text}, {"name", text},
			{"media_type", text}, {"bytes", bigint}, {"sha256", text}, {"url", text}, {"status", text},
			{"internal", bigint}, {"created", bigint}, {"ended", bigint}},
		fields: func(r *artifactRow) []any {
			return []any{&r.tenant, &r.SessionID, &r.ArtifactID, &r.Seq, &r.opened, &r.RunID, &r.CallID, &r.Name,
				&r.MediaType, &r.Bytes, &r.SHA256, &r.URL, &r.Status,
				flag{&r.Internal}, micros{&r.CreatedAt}, maybe{&r.EndedAt}}
		},
	}
)

func (r *sessionRow) public() Session {
	s := r.Session
	if r.metadata != "" {
		s.Metadata = json.RawMessage(r.metadata)
	}
	return s
}

func (r *runRow) public() Run {
	run := r.Run
	if r.Status == event.Failed || r.failure != (event.RunError{}) {
		failure := r.failure
		run.Error = &failure
	}
	if r.output.MessageID != "" {
		output := r.output
		run.Output = &output
	}
	return run
}

func (r *callRow) public() ToolCall { return r.ToolCall }

func (r *artifactRow) public() Artifact { return r.Artifact }

// micros stores a time as microseconds since 1970.
type micros struct{ at *event.Time }

func (m micros) Scan(v any) error {
	*m.at = fromMicros(v.(int64))
	return nil
}

func (m micros) MarshalJSON() ([]byte, error) { return json.Marshal(m.at.UnixMicro()) }

func fromMicros(n int64) event.Time { return event.At(time.UnixMicro(n)) }

// maybe is micros for what may not have happened yet: 0.
type maybe struct{ at **event.Time }

func (m maybe) Scan(v any) error {
	*m.at = nil
	if n := v.(int64); n != 0 {
		at := fromMicros(n)
		*m.at = &at
	}
	return nil
}

func (m maybe) MarshalJSON() ([]byte, error) {
	if *m.at == nil {
		return []byte("0"), nil
	}
	return micros{*m.at}.MarshalJSON()
}

// flag stores a bool as 0 or 1.
type flag struct{ on *bool }

func (f flag) Scan(v any) error {
	*f.on = v.(int64) != 0
	return nil
}

func (f flag) MarshalJSON() ([]byte, error) {
	if *f.on {
		return []byte("1"), nil
	}
	return []byte("0"), nil
}
