package agui

import (
	"encoding/json"
	"strconv"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
)

func runStarted(d Dialect, e event.Event, data event.RunStartedData) []dialect.Message {
	if !own(e) {
		return begin("SUBAGENT_STARTED", e).Text("name", data.Agent).Some("parentToolCallId", data.ParentCallID).One("")
	}
	return d.started(e, data.Resumes).One("")
}

// started opens a run.
func (d Dialect) started(e event.Event, parent string) dialect.Object {
	f := d.run(begin("RUN_STARTED", e), e).Some("parentRunId", parent)
	if !d.Old {
		f = f.Text("protocolVersion", protocol)
	}
	return f
}

// run adds which run it is, as its reader calls it.
func (d Dialect) run(f dialect.Object, e event.Event) dialect.Object {
	id := e.RunID
	if d.As != "" && d.Run == id {
		id = d.As
	}
	return f.Text("threadId", e.SessionID).Text("runId", id)
}

func runCompleted(d Dialect, e event.Event, data event.RunCompletedData) []dialect.Message {
	if !own(e) {
		return begin("SUBAGENT_FINISHED", e).One("")
	}
	return d.usage(d.run(begin("RUN_FINISHED", e), e), &data.Usage).Raw("result", e.Data).One("")
}

// usage adds the tokens of a run.
func (d Dialect) usage(f dialect.Object, u *event.Usage) dialect.Object {
	if d.Old || u == nil {
		return f
	}
	return f.Value("usage", []usage{{u.InputTokens, u.OutputTokens, u.ReasoningTokens, u.CachedInputTokens}})
}

type usage struct {
	InputTokens       int64 `json:"inputTokens"`
	OutputTokens      int64 `json:"outputTokens"`
	ReasoningTokens   int64 `json:"reasoningTokens"`
	CachedInputTokens int64 `json:"cachedInputTokens"`
}

func stepStarted(_ Dialect, e event.Event, d event.StepStartedData) []dialect.Message {
	return begin("STEP_STARTED", e).Text("stepName", stepName(d.Step)).One("")
}

func stepCompleted(_ Dialect, e event.Event, d event.StepCompletedData) []dialect.Message {
	return begin("STEP_FINISHED", e).Text("stepName", stepName(d.Step)).One("")
}

func stepName(n int) string { return "step " + strconv.Itoa(n) }

func messageStarted(_ Dialect, e event.Event, d event.MessageStartedData) []dialect.Message {
	return begin("TEXT_MESSAGE_START", e).Text("messageId", d.MessageID).Text("role", string(d.Role)).One("")
}

// messageCompleted closes a message of the model's, and tells all of one that a
// client has sent.
func messageCompleted(d Dialect, e event.Event, data event.MessageCompletedData) []dialect.Message {
	end := begin("TEXT_MESSAGE_END", e).Text("messageId", data.MessageID).Message("")
	if data.Role == event.RoleAssistant && e.CommandID == "" {
		return []dialect.Message{end}
	}
	if d.Run != "" {
		return nil
	}
	list := []dialect.Message{begin("TEXT_MESSAGE_START", e).Text("messageId", data.MessageID).Text("role", string(data.Role)).Message("")}
	if text := event.TextOf(data.Parts); text != "" {
		list = append(list, begin("TEXT_MESSAGE_CONTENT", e).Text("messageId", data.MessageID).Text("delta", text).Message(""))
	}
	return append(list, end)
}

// Reasoning is a span with one message of the same id in it.

func reasoningStarted(_ Dialect, e event.Event, d event.ReasoningStartedData) []dialect.Message {
	return []dialect.Message{
		begin("REASONING_START", e).Text("messageId", d.ReasoningID).Message(""),
		begin("REASONING_MESSAGE_START", e).Text("messageId", d.ReasoningID).Text("role", "reasoning").Message(""),
	}
}

func reasoningCompleted(_ Dialect, e event.Event, d event.ReasoningCompletedData) []dialect.Message {
	return endReasoning(e, d.ReasoningID)
}

func endReasoning(e event.Event, id string) []dialect.Message {
	return []dialect.Message{
		begin("REASONING_MESSAGE_END", e).Text("messageId", id).Message(""),
		begin("REASONING_END", e).Text("messageId", id).Message(""),
	}
}

func toolStarted(d Dialect, e event.Event, data event.ToolStartedData) []dialect.Message {
	if d.said(e) {
		return nil
	}
	return begin("TOOL_CALL_START", e).Text("toolCallId", data.CallID).Text("toolCallName", data.Name).Some("parentMessageId", data.MessageID).One("")
}

// toolArgs closes a call. Its arguments came in deltas, unless the call is one of
// a conversation that a client has sent.
func toolArgs(d Dialect, e event.Event, data event.ToolArgsData) []dialect.Message {
	end := begin("TOOL_CALL_END", e).Text("toolCallId", data.CallID).Message("")
	switch {
	case e.CommandID == "":
		return []dialect.Message{end}
	case d.Run != "":
		return nil
	}
	return []dialect.Message{begin("TOOL_CALL_ARGS", e).Text("toolCallId", data.CallID).Text("delta", data.Args).Message(""), end}
}

func toolEnded(_ Dialect, e event.Event, r dialect.Result) []dialect.Message {
	return []dialect.Message{resultMessage(e, r)}
}

// resultID is the id of the message that has a call's result.
func resultID(callID string) string { return callID + "-result" }

func resultMessage(e event.Event, r dialect.Result) dialect.Message {
	f := begin("TOOL_CALL_RESULT", e).Text("messageId", resultID(r.CallID)).Text("toolCallId", r.CallID).Text("content", r.Text()).Text("role", "tool")
	if m := metadataOf(r); m != nil {
		f = f.Value("metadata", m)
	}
	return f.Message("")
}

// metadataOf a result says what a text cannot.
func metadataOf(r dialect.Result) any {
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

func stateSnapshot(_ Dialect, e event.Event, d event.StateSnapshotData) []dialect.Message {
	return begin("STATE_SNAPSHOT", e).Raw("snapshot", d.State).One("")
}

func stateDelta(_ Dialect, e event.Event, d event.StateDeltaData) []dialect.Message {
	return begin("STATE_DELTA", e).Raw("delta", d.Patch).One("")
}

func activitySnapshot(_ Dialect, e event.Event, d event.ActivityData) []dialect.Message {
	return begin("ACTIVITY_SNAPSHOT", e).Text("messageId", d.ActivityID).Text("activityType", d.Kind).Raw("content", d.Content).Raw("replace", json.RawMessage("true")).One("")
}

// custom tells of what AG-UI has no event for, under the name of its type.
func custom(_ Dialect, e event.Event) []dialect.Message {
	return begin("CUSTOM", e).Text("name", string(e.Type)).Raw("value", e.Data).One("")
}

func customOwn(_ Dialect, e event.Event, d event.CustomData) []dialect.Message {
	if len(d.Value) == 0 {
		d.Value = json.RawMessage("null") // clients refuse one without
	}
	return begin("CUSTOM", e).Text("name", d.Name).Raw("value", d.Value).One("")
}
