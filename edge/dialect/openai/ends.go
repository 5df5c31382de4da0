package openai

import (
	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
)

type teller func(*Response, event.Event)

var tellers = map[event.Type]teller{
	event.RunStarted:         func(r *Response, _ event.Event) { r.begin() },
	event.RunStatus:          dialect.Take((*Response).runStatus),
	event.RunCompleted:       dialect.Take((*Response).runCompleted),
	event.RunFailed:          dialect.Take((*Response).runFailed),
	event.RunCancelled:       dialect.Take((*Response).runCancelled),
	event.TextDelta:          (*Response).textDelta,
	event.MessageCompleted:   dialect.Take((*Response).messageCompleted),
	event.MessageDiscarded:   dialect.Take((*Response).discarded),
	event.ReasoningStarted:   dialect.Take((*Response).reasoningStarted),
	event.ReasoningDelta:     (*Response).reasoningDelta,
	event.ReasoningCompleted: dialect.Take((*Response).reasoningCompleted),
	event.ToolStarted:        dialect.Take((*Response).toolStarted),
	event.ToolArgsDelta:      (*Response).argsDelta,
	event.ToolArgs:           dialect.Take((*Response).toolArgs),
	event.ToolRunning:        dialect.Take((*Response).toolRunning),
	event.ToolCompleted:      dialect.Take((*Response).toolEnded),
	event.ToolFailed:         dialect.Take((*Response).toolEnded),
	event.ApprovalRequested:  dialect.Take((*Response).approvalRequested),
}

// runStatus ends the response of a run that is parked: the next request answers.
func (r *Response) runStatus(_ event.Event, d event.RunStatusData) {
	if d.ExpiresAt != nil && !r.over {
		r.end("completed", "response.completed")
	}
}

type because struct {
	Reason string `json:"reason"`
}

func (r *Response) runCompleted(_ event.Event, d event.RunCompletedData) {
	r.usage = &d.Usage
	switch d.FinishReason {
	case event.FinishLength:
		r.why = because{"max_output_tokens"}
	case event.FinishFilter:
		r.why = because{"content_filter"}
	case event.FinishStopped, event.FinishBudget:
		r.why = because{string(d.FinishReason)}
	default:
		r.end("completed", "response.completed")
		return
	}
	r.end("incomplete", "response.incomplete")
}

func (r *Response) runFailed(_ event.Event, d event.RunFailedData) {
	r.usage = d.Usage
	r.err = struct {
		Code    event.Code `json:"code"`
		Message string     `json:"message"`
	}{d.Code, d.Message}
	r.end("failed", "response.failed")
}

// runCancelled: there is no event response.cancelled.
func (r *Response) runCancelled(_ event.Event, d event.RunCancelledData) {
	r.usage = d.Usage
	r.end("cancelled", "response.incomplete")
}

// end closes what is open, which is nothing unless the log was broken off, and
// the response.
func (r *Response) end(status, kind string) {
	err, why, usage := r.err, r.why, r.usage
	r.begin()
	r.err, r.why, r.usage = err, why, usage
	r.dropAll("")
	r.status, r.over = status, true
	response := r.JSON()
	r.emit(kind, r.start(kind, len(response)).Raw("response", response))
}
