package rpc

import (
	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
)

func runStarted(e event.Event, d event.RunStartedData) []dialect.Message {
	return alone(begin("session_started", e).Text("agent", d.Agent).Some("resumes", d.Resumes))
}

func runCompleted(e event.Event, d event.RunCompletedData) []dialect.Message {
	return alone(begin("session_finished", e).Text("status", "completed").Text("finish_reason", string(d.FinishReason)).
		Some("message_id", d.Output.MessageID).Value("usage", d.Usage))
}

// runFailed says why, and then that the run is over: who knows only one of the
// two words sees the failure all the same.
func runFailed(e event.Event, d event.RunFailedData) []dialect.Message {
	why := beginAs("error", e, firstID(e)).Text("code", string(d.Code)).Text("message", d.Message).Value("retryable", d.Retryable)
	end := begin("session_finished", e).Text("status", "failed").Text("code", string(d.Code)).Text("message", d.Message)
	return []dialect.Message{why.Close().Message(""), usage(end, d.Usage).Close().Message("")}
}

func runCancelled(e event.Event, d event.RunCancelledData) []dialect.Message {
	return alone(usage(begin("session_finished", e).Text("status", "cancelled").Text("by", d.By).Some("reason", d.Reason), d.Usage))
}

func usage(o line, u *event.Usage) line {
	if u == nil {
		return o
	}
	return o.Value("usage", u)
}

func stepStarted(e event.Event, d event.StepStartedData) []dialect.Message {
	return alone(begin("model_call", e).Text("status", "started").Value("step", d.Step).Text("model", d.Model))
}

func stepCompleted(e event.Event, d event.StepCompletedData) []dialect.Message {
	return alone(begin("model_call", e).Text("status", "completed").Value("step", d.Step).
		Text("finish_reason", string(d.FinishReason)).Value("usage", d.Usage))
}

func textDelta(e event.Event) []dialect.Message {
	id, text, ok := dialect.Delta(e.Data)
	if !ok {
		return nil
	}
	return alone(begin("message_before", e).Raw("message_id", id).Raw("delta", text))
}

// messageCompleted tells a message of the model's, and what somebody else said as
// an event: it is no answer.
func messageCompleted(e event.Event, d event.MessageCompletedData) []dialect.Message {
	parts := shown(d.Parts)
	if d.Role == event.RoleAssistant && e.CommandID == "" {
		return alone(begin("message_after", e).Text("message_id", d.MessageID).Text("text", event.TextOf(parts)).Value("parts", parts))
	}
	d.Parts = parts
	return alone(begin("event", e).Text("name", string(e.Type)).Value("data", d))
}

func shown(parts []event.Part) []event.Part {
	list := []event.Part{}
	for _, p := range parts {
		if !p.Internal {
			list = append(list, p)
		}
	}
	return list
}

func messageDiscarded(e event.Event, d event.MessageDiscardedData) []dialect.Message {
	return alone(begin("message_discarded", e).Text("message_id", d.MessageID).Text("reason", d.Reason))
}

func toolArgs(e event.Event, d event.ToolArgsData) []dialect.Message {
	return alone(begin("tool_call", e).Text("call_id", d.CallID).Text("name", d.Name).Raw("arguments", dialect.Arguments(d.Args)))
}

func toolResult(e event.Event, r dialect.Result) []dialect.Message {
	status := "completed"
	if e.Type == event.ToolFailed {
		status = "failed"
	}
	o := begin("tool_result", e).Text("call_id", r.CallID).Text("name", r.Name).Text("status", status).
		Value("content", shown(r.Content)).Raw("structured", r.Structured)
	if e.Type == event.ToolFailed {
		o = o.Open("error").Text("code", string(r.Code)).Text("message", r.Message).Text("outcome", string(r.Outcome)).Close()
	}
	if r.Truncated {
		o = o.Value("truncated", true)
	}
	if r.Artifact != nil { // has the whole of what the log holds the head of
		o = o.Value("artifact", r.Artifact)
	}
	return alone(o)
}
