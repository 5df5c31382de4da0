package agui

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
)

func runStarted(d Dialect, e event.Event, data event.RunStartedData) []dialect.Message {
	if !own(e) {
		return begin("SUBAGENT_STARTED", e).text("name", data.Agent).some("parentToolCallId", data.ParentCallID).alone()
	}
	return d.started(e, data.Resumes).alone()
}

// started opens a run.
func (d Dialect) started(e event.Event, parent string) frame {
	f := d.run(begin("RUN_STARTED", e), e).some("parentRunId", parent)
	if !d.Old {
		f = f.text("protocolVersion", Protocol)
	}
	return f
}

// run adds which run it is, as its reader calls it.
func (d Dialect) run(f frame, e event.Event) frame {
	id := e.RunID
	if d.As != "" && d.Run == id {
		id = d.As
	}
	return f.text("threadId", e.SessionID).text("runId", id)
}

func runCompleted(d Dialect, e event.Event, data event.RunCompletedData) []dialect.Message {
	if !own(e) {
		return begin("SUBAGENT_FINISHED", e).alone()
	}
	return d.usage(d.run(begin("RUN_FINISHED", e), e), &data.Usage).raw("result", e.Data).alone()
}

// usage adds the tokens of a run.
func (d Dialect) usage(f frame, u *event.Usage) frame {
	if d.Old || u == nil {
		return f
	}
	return f.value("usage", []usage{{u.InputTokens, u.OutputTokens, u.ReasoningTokens, u.CachedInputTokens}})
}

type usage struct {
	InputTokens       int64 `json:"inputTokens"`
	OutputTokens      int64 `json:"outputTokens"`
	ReasoningTokens   int64 `json:"reasoningTokens"`
	CachedInputTokens int64 `json:"cachedInputTokens"`
}

func stepStarted(_ Dialect, e event.Event, d event.StepStartedData) []dialect.Message {
	return begin("STEP_STARTED", e).text("stepName", stepName(d.Step)).alone()
}

func stepCompleted(_ Dialect, e event.Event, d event.StepCompletedData) []dialect.Message {
	return begin("STEP_FINISHED", e).text("stepName", stepName(d.Step)).alone()
}

func stepName(n int) string { return "step " + strconv.Itoa(n) }

func messageStarted(_ Dialect, e event.Event, d event.MessageStartedData) []dialect.Message {
	return begin("TEXT_MESSAGE_START", e).text("messageId", d.MessageID).text("role", string(d.Role)).alone()
}

// messageCompleted closes a message of the model's, and tells all of one that a
// client has sent.
func messageCompleted(d Dialect, e event.Event, data event.MessageCompletedData) []dialect.Message {
	end := begin("TEXT_MESSAGE_END", e).text("messageId", data.MessageID).end()
	if data.Role == event.RoleAssistant && e.CommandID == "" {
		return []dialect.Message{end}
	}
	if d.Run != "" {
		return nil
	}
	list := []dialect.Message{begin("TEXT_MESSAGE_START", e).text("messageId", data.MessageID).text("role", string(data.Role)).end()}
	var text strings.Builder
	for _, p := range data.Parts {
		if p.Type == event.PartText && !p.Internal {
			text.WriteString(p.Text)
		}
	}
	if text.Len() > 0 {
		list = append(list, begin("TEXT_MESSAGE_CONTENT", e).text("messageId", data.MessageID).text("delta", text.String()).end())
	}
	return append(list, end)
}

// Reasoning is a span with one message of the same id in it.

func reasoningStarted(_ Dialect, e event.Event, d event.ReasoningStartedData) []dialect.Message {
	return []dialect.Message{
		begin("REASONING_START", e).text("messageId", d.ReasoningID).end(),
		begin("REASONING_MESSAGE_START", e).text("messageId", d.ReasoningID).text("role", "reasoning").end(),
	}
}

func reasoningCompleted(_ Dialect, e event.Event, d event.ReasoningCompletedData) []dialect.Message {
	return endReasoning(e, d.ReasoningID)
}

func endReasoning(e event.Event, id string) []dialect.Message {
	return []dialect.Message{
		begin("REASONING_MESSAGE_END", e).text("messageId", id).end(),
		begin("REASONING_END", e).text("messageId", id).end(),
	}
}

func toolStarted(d Dialect, e event.Event, data event.ToolStartedData) []dialect.Message {
	if d.said(e) {
		return nil
	}
	return begin("TOOL_CALL_START", e).text("toolCallId", data.CallID).text("toolCallName", data.Name).some("parentMessageId", data.MessageID).alone()
}

// toolArgs closes a call. Its arguments came in deltas, unless the call is one of
// a conversation that a client has sent.
func toolArgs(d Dialect, e event.Event, data event.ToolArgsData) []dialect.Message {
	end := begin("TOOL_CALL_END", e).text("toolCallId", data.CallID).end()
	switch {
	case e.CommandID == "":
		return []dialect.Message{end}
	case d.Run != "":
		return nil
	}
	return []dialect.Message{begin("TOOL_CALL_ARGS", e).text("toolCallId", data.CallID).text("delta", data.Args).end(), end}
}

func toolCompleted(_ Dialect, e event.Event, d event.ToolCompletedData) []dialect.Message {
	r := result{CallID: d.CallID, Content: d.Content, Structured: d.Structured, Truncated: d.Truncated, Artifact: d.Artifact}
	return []dialect.Message{r.message(e)}
}

// A result is how a tool call ended.
type result struct {
	CallID     string
	Content    []event.Part
	Structured json.RawMessage
	Truncated  bool
	Artifact   *event.Part
	Code       event.Code // of a failed one
	Outcome    event.Outcome
	Message    string
}

// resultID is the id of the message that has a call's result.
func resultID(callID string) string { return callID + "-result" }

func (r result) message(e event.Event) dialect.Message {
	f := begin("TOOL_CALL_RESULT", e).text("messageId", resultID(r.CallID)).text("toolCallId", r.CallID)
	f = f.text("content", r.text()).text("role", "tool")
	if m := r.metadata(); m != nil {
		f = f.value("metadata", m)
	}
	return f.end()
}

// metadata says what a text cannot.
func (r result) metadata() any {
	if r.Code == "" && !r.Truncated {
		return nil
	}
	type about struct {
		Code      event.Code    `json:"code,omitempty"`
		Outcome   event.Outcome `json:"outcome,omitempty"`
		Truncated bool          `json:"truncated,omitempty"`
		Artifact  *event.Part   `json:"artifact,omitempty"`
	}
	return struct {
		Runlog about `json:"runlog"`
	}{about{r.Code, r.Outcome, r.Truncated, r.Artifact}}
}

// text is what a tool has said: its texts, and the other parts as JSON, one to a
// line.
func (r result) text() string {
	var b strings.Builder
	for _, p := range r.Content {
		if p.Internal {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		switch p.Type {
		case event.PartText:
			b.WriteString(p.Text)
		case event.PartJSON:
			b.Write(p.Value)
		default:
			b.Write(event.Encode(p))
		}
	}
	switch {
	case b.Len() > 0:
		return b.String()
	case r.Message != "":
		return r.Message
	}
	return string(r.Structured)
}

func stateSnapshot(_ Dialect, e event.Event, d event.StateSnapshotData) []dialect.Message {
	return begin("STATE_SNAPSHOT", e).raw("snapshot", d.State).alone()
}

func stateDelta(_ Dialect, e event.Event, d event.StateDeltaData) []dialect.Message {
	return begin("STATE_DELTA", e).raw("delta", d.Patch).alone()
}

func activitySnapshot(_ Dialect, e event.Event, d event.ActivityData) []dialect.Message {
	return begin("ACTIVITY_SNAPSHOT", e).text("messageId", d.ActivityID).text("activityType", d.Kind).raw("content", d.Content).raw("replace", json.RawMessage("true")).alone()
}

// custom tells of what AG-UI has no event for, under the name of its type.
func custom(_ Dialect, e event.Event) []dialect.Message {
	return begin("CUSTOM", e).text("name", string(e.Type)).raw("value", e.Data).alone()
}

func customOwn(_ Dialect, e event.Event, d event.CustomData) []dialect.Message {
	if len(d.Value) == 0 {
		d.Value = json.RawMessage("null") // clients refuse one without
	}
	return begin("CUSTOM", e).text("name", d.Name).raw("value", d.Value).alone()
}
