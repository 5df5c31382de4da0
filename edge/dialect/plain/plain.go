// Package plain is the small dialect of /chat: a run as message_start,
// text_delta, tool_use, tool_result and message_stop, for clients that want a
// text and the tools that were used.
//
//	message_start {type, run_id, session_id, trace_id, role: "assistant"}   once
//	text_delta    {type, message_id, text}
//	text_reset    {type, message_id}            forget the text of that message: the model starts it anew
//	tool_use      {type, id, name, input}       the arguments are complete; input is text if it is no JSON object
//	tool_result   {type, tool_use_id, name, content, is_error}
//	message_stop  {type, stop_reason, usage?, error?}   once, at the run's end
//
// stop_reason is the run's finish reason, or failed, or cancelled.
package plain

import (
	"encoding/json"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
)

// Dialect is the plain dialect.
type Dialect struct {
	dialect.Quiet // but for Moved
	dialect.AsFold
}

// Name is plain.
func (Dialect) Name() string { return "plain" }

type (
	start struct {
		Type      string `json:"type"`
		RunID     string `json:"run_id"`
		SessionID string `json:"session_id"`
		TraceID   string `json:"trace_id,omitempty"`
		Role      string `json:"role"`
	}
	reset struct {
		Type      string `json:"type"`
		MessageID string `json:"message_id"`
	}
	use struct {
		Type  string          `json:"type"`
		ID    string          `json:"id"`
		Name  string          `json:"name"`
		Input json.RawMessage `json:"input"`
	}
	result struct {
		Type    string       `json:"type"`
		ID      string       `json:"tool_use_id"`
		Name    string       `json:"name"`
		Content []event.Part `json:"content"`
		IsError bool         `json:"is_error"`
	}
	stop struct {
		Type   string          `json:"type"`
		Reason string          `json:"stop_reason"`
		Usage  *event.Usage    `json:"usage,omitempty"`
		Error  *event.RunError `json:"error,omitempty"`
	}
)

// Event tells of an event, if the dialect has a word for it.
func (Dialect) Event(e event.Event, _ []byte, to dialect.Audience) []dialect.Message {
	if e.Internal && to == dialect.Client || e.Agent != "" { // a sub-agent's: its call has the result
		return nil
	}
	if encode := encoders[e.Type]; encode != nil {
		return encode(e)
	}
	return nil
}

var encoders = map[event.Type]func(event.Event) []dialect.Message{
	event.RunStarted: func(e event.Event) []dialect.Message {
		return one("message_start", start{"message_start", e.RunID, e.SessionID, e.TraceID, "assistant"})
	},
	event.TextDelta: textDelta,
	event.MessageDiscarded: dialect.On(func(_ event.Event, d event.MessageDiscardedData) []dialect.Message {
		return one("text_reset", reset{"text_reset", d.MessageID})
	}),
	event.ToolArgs: dialect.On(func(_ event.Event, d event.ToolArgsData) []dialect.Message {
		return one("tool_use", use{"tool_use", d.CallID, d.Name, dialect.Arguments(d.Args)})
	}),
	event.ToolCompleted: dialect.On(toolResult),
	event.ToolFailed:    dialect.On(toolResult),
	event.RunCompleted: dialect.On(func(_ event.Event, d event.RunCompletedData) []dialect.Message {
		return one("message_stop", stop{"message_stop", string(d.FinishReason), &d.Usage, nil})
	}),
	event.RunFailed: dialect.On(func(_ event.Event, d event.RunFailedData) []dialect.Message {
		return one("message_stop", stop{"message_stop", "failed", d.Usage, &event.RunError{Code: d.Code, Message: d.Message, Retryable: d.Retryable}})
	}),
	event.RunCancelled: dialect.On(func(_ event.Event, d event.RunCancelledData) []dialect.Message {
		return one("message_stop", stop{"message_stop", "cancelled", d.Usage, nil})
	}),
}

func textDelta(e event.Event) []dialect.Message {
	id, text, ok := dialect.Delta(e.Data)
	if !ok {
		return nil
	}
	return dialect.NewObject(len(e.Data)).Text("type", "text_delta").Raw("message_id", id).Raw("text", text).One("text_delta")
}

func one(name string, data any) []dialect.Message {
	return []dialect.Message{{Event: name, Data: event.Encode(data)}}
}

func toolResult(e event.Event, r dialect.Result) []dialect.Message {
	content := r.Content
	switch failed := e.Type == event.ToolFailed; {
	case len(content) == 0 && failed:
		content = []event.Part{event.TextPart(r.Message)}
	case content == nil:
		content = []event.Part{}
	}
	return one("tool_result", result{"tool_result", r.CallID, r.Name, content, e.Type == event.ToolFailed})
}

// Moved has an id, which is all that counts.
func (Dialect) Moved(event.Seq) []dialect.Message {
	return []dialect.Message{{Event: "position", Data: []byte(`{"type":"position"}`)}}
}
