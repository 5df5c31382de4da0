package anthropic

import (
	"encoding/json"

	"github.com/runlog-dev/runlog/event"
)

type (
	envelope struct {
		ID           string            `json:"id"`
		Type         string            `json:"type"`
		Role         event.Role        `json:"role"`
		Model        string            `json:"model"`
		Content      []json.RawMessage `json:"content"`
		StopReason   *string           `json:"stop_reason"`
		StopSequence *string           `json:"stop_sequence"`
		Usage        usage             `json:"usage"`
	}
	usage struct {
		Input  int64 `json:"input_tokens"`
		Cached int64 `json:"cache_read_input_tokens"`
		Output int64 `json:"output_tokens"`
	}
	stopped struct {
		Reason   string  `json:"stop_reason"`
		Sequence *string `json:"stop_sequence"`
	}
	failure struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	}
)

func (m *Message) runStarted(_ event.Event, d event.RunStartedData) {
	m.model = d.Agent
	m.begin()
}

// begin tells that the message begins, once; a run that goes on after it was
// parked does so in another one.
func (m *Message) begin() {
	if m.stop != "" {
		m.id, m.begun, m.stop, m.blocks, m.made = m.run+"_"+m.seq.String(), false, "", 0, nil
	}
	if m.begun {
		return
	}
	m.begun = true
	m.emit("message_start", start("message_start", 256).Raw("message", event.Encode(m.envelope())))
}

func (m *Message) envelope() envelope {
	e := envelope{ID: m.id, Type: "message", Role: event.RoleAssistant, Model: m.model, Content: m.made, Usage: m.usage}
	if m.stop != "" {
		e.StopReason = &m.stop
	}
	if e.Content == nil {
		e.Content = []json.RawMessage{}
	}
	return e
}

// JSON is the message as far as it is made.
func (m *Message) JSON() json.RawMessage { return event.Encode(m.envelope()) }

// Failed says why the run failed; nil if it did not.
func (m *Message) Failed() *event.RunError { return m.err }

// Over reports whether the message has ended.
func (m *Message) Over() bool { return m.stop != "" || m.err != nil }

// runStatus ends the message of a run that waits for its client's tools.
func (m *Message) runStatus(_ event.Event, d event.RunStatusData) {
	if d.Status == event.WaitingTool && d.ExpiresAt != nil {
		m.end("tool_use", nil)
	}
}

func (m *Message) end(reason string, u *event.Usage) {
	m.close()
	m.begin()
	m.count(u)
	m.stop = reason
	m.emit("message_delta", start("message_delta", 128).Value("delta", stopped{Reason: reason}).Value("usage", m.usage))
	m.emit("message_stop", start("message_stop", 0))
}

func (m *Message) count(u *event.Usage) {
	if u != nil {
		m.usage = usage{u.InputTokens, u.CachedInputTokens, u.OutputTokens}
	}
}

// reasons are Anthropic's words for why a run ended.
var reasons = map[event.FinishReason]string{
	event.FinishLength:  "max_tokens",
	event.FinishFilter:  "refusal",
	event.FinishStopped: "pause_turn",
	event.FinishBudget:  "pause_turn",
}

func (m *Message) runCompleted(_ event.Event, d event.RunCompletedData) {
	reason := reasons[d.FinishReason]
	if reason == "" {
		reason = "end_turn"
	}
	m.end(reason, &d.Usage)
}

func (m *Message) runCancelled(_ event.Event, d event.RunCancelledData) { m.end("pause_turn", d.Usage) }

// runFailed is no message_stop: clients that read it have no message.
func (m *Message) runFailed(_ event.Event, d event.RunFailedData) {
	m.close()
	m.count(d.Usage)
	m.err = &event.RunError{Code: d.Code, Message: d.Message, Retryable: d.Retryable}
	kind := "api_error"
	switch d.Code {
	case event.CodeOverloaded, event.CodeUnavailable:
		kind = "overloaded_error"
	case event.CodeModelTimeout, event.CodeToolTimeout:
		kind = "timeout_error"
	}
	m.emit("error", start("error", 128).Value("error", failure{kind, string(d.Code) + ": " + d.Message}))
}
