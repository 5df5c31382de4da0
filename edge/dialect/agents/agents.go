// Package agents is the dialect of four words: a response that begins, its tool
// calls, and the response when it is complete.
//
//	response_start      {type, run_id, session_id, trace_id, agent}
//	tool_call_start     {type, id, name}
//	tool_call_complete  {type, id, name, arguments, result, is_error}
//	response_complete   {type, run_id, status, text?, usage?, error?}
//
// text is that of the answer. A response that failed or was cancelled says so in
// status, and has no text.
package agents

import (
	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
)

// Dialect is the dialect agents.
type Dialect struct {
	dialect.Quiet
	dialect.AsFold
}

// Name is agents.
func (Dialect) Name() string { return "agents" }

// Lost says what is not told.
func (Dialect) Lost() map[event.Type]string {
	return dialect.Untold("there is no word but for a response and its tool calls",
		event.RunStarted, event.ToolStarted, event.ToolCompleted, event.ToolFailed, event.RunCompleted, event.RunFailed, event.RunCancelled)
}

var encoders = map[event.Type]func(event.Event) []dialect.Message{
	event.RunStarted: dialect.On(func(e event.Event, d event.RunStartedData) []dialect.Message {
		return begin("response_start").Text("run_id", e.RunID).Text("session_id", e.SessionID).Some("trace_id", e.TraceID).Text("agent", d.Agent).One("response_start")
	}),
	event.ToolStarted: dialect.On(func(_ event.Event, d event.ToolStartedData) []dialect.Message {
		return begin("tool_call_start").Text("id", d.CallID).Text("name", d.Name).One("tool_call_start")
	}),
	event.ToolCompleted: dialect.On(complete),
	event.ToolFailed:    dialect.On(complete),
	event.RunFailed: dialect.On(func(e event.Event, d event.RunFailedData) []dialect.Message {
		return end(e, event.Failed, d.Usage).Value("error", event.RunError{Code: d.Code, Message: d.Message, Retryable: d.Retryable}).One("response_complete")
	}),
	event.RunCancelled: dialect.On(func(e event.Event, d event.RunCancelledData) []dialect.Message {
		return end(e, event.Cancelled, d.Usage).One("response_complete")
	}),
}

// Event tells of an event. Internal ones have no place here, nor have the
// beginning and end of a sub-agent's run.
func (Dialect) Event(e event.Event, _ []byte, _ dialect.Audience) []dialect.Message {
	if e.Internal || e.Agent != "" && (e.Type.Terminal() || e.Type == event.RunStarted) {
		return nil
	}
	if encode := encoders[e.Type]; encode != nil {
		return encode(e)
	}
	return nil
}

// Folds: the end of a run has the text of its answer.
func (Dialect) Folds(e event.Event) bool {
	return e.Type == event.RunCompleted && !e.Internal && e.Agent == ""
}

// EventAfter tells of a run's end.
func (Dialect) EventAfter(before *event.Session, e event.Event, _ []byte, _ dialect.Audience) []dialect.Message {
	var d event.RunCompletedData
	if e.Into(&d) != nil {
		return nil
	}
	return end(e, event.Completed, &d.Usage).Text("text", answer(before, d.Output.MessageID)).One("response_complete")
}

func answer(s *event.Session, id string) string {
	m := s.MessageByID(id)
	if m == nil {
		return ""
	}
	return event.TextOf(event.Values(m.Parts))
}

func begin(kind string) dialect.Object { return dialect.NewObject(128).Text("type", kind) }

func complete(e event.Event, r dialect.Result) []dialect.Message {
	return begin("tool_call_complete").Text("id", r.CallID).Text("name", r.Name).Raw("arguments", dialect.Arguments(r.Args)).
		Text("result", r.Text()).Value("is_error", e.Type == event.ToolFailed).One("tool_call_complete")
}

func end(e event.Event, status event.Status, usage *event.Usage) dialect.Object {
	o := begin("response_complete").Text("run_id", e.RunID).Text("status", string(status))
	if usage != nil {
		o = o.Value("usage", usage)
	}
	return o
}
