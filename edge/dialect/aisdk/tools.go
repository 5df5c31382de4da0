package aisdk

import (
	"encoding/json"
	"strings"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
)

// toolStarted tells of a call of the model's; those of a conversation that the
// client has sent it knows.
func (x *encoder) toolStarted(e event.Event, d event.ToolStartedData) []dialect.Message {
	if e.CommandID != "" {
		return nil
	}
	c := &call{name: d.Name, client: d.Executor == event.ByClient}
	x.calls[d.CallID] = c
	return append(x.endText(), c.executed(chunk("tool-input-start", 128).Text("toolCallId", d.CallID).Text("toolName", d.Name)).Message(""))
}

// executed says that the client has nothing to do.
func (c *call) executed(o dialect.Object) dialect.Object {
	if c.client {
		return o
	}
	return o.Value("providerExecuted", true)
}

func (x *encoder) argsDelta(e event.Event) []dialect.Message {
	id, text, ok := dialect.Delta(e.Data)
	if !ok {
		return nil
	}
	return chunk("tool-input-delta", len(e.Data)).Raw("toolCallId", id).Raw("inputTextDelta", text).One("")
}

func (x *encoder) toolArgs(_ event.Event, d event.ToolArgsData) []dialect.Message {
	c := x.calls[d.CallID]
	if c == nil {
		return nil
	}
	o := chunk("tool-input-available", len(d.Args)+128).Text("toolCallId", d.CallID).Text("toolName", d.Name).Raw("input", input(d.Args))
	return c.executed(o).One("")
}

// input is what the model wrote, as JSON if it is.
func input(args string) json.RawMessage {
	if raw := json.RawMessage(args); event.Valid(raw) {
		return dialect.OneLine(raw)
	}
	return dialect.Arguments(args)
}

// toolProgress is an output that is not the last one.
func (x *encoder) toolProgress(_ event.Event, d event.ToolProgressData) []dialect.Message {
	c := x.calls[d.CallID]
	if c == nil {
		return nil
	}
	return c.executed(chunk("tool-output-available", 128).Text("toolCallId", d.CallID).Value("output", d.Progress)).Value("preliminary", true).One("")
}

func (x *encoder) toolCompleted(_ event.Event, d event.ToolCompletedData) []dialect.Message {
	c := x.calls[d.CallID]
	if c == nil {
		return nil
	}
	return c.executed(chunk("tool-output-available", 256).Text("toolCallId", d.CallID).Raw("output", output(d))).One("")
}

// output is a result's value: what is structured, or else its text, or its parts.
func output(d event.ToolCompletedData) json.RawMessage {
	var text strings.Builder
	plain := !d.Truncated && d.Artifact == nil
	parts := []event.Part{}
	for _, p := range d.Content {
		if p.Internal {
			continue
		}
		plain = plain && p.Type == event.PartText
		text.WriteString(p.Text)
		parts = append(parts, p)
	}
	switch {
	case len(d.Structured) > 0 && !d.Truncated:
		return d.Structured
	case plain:
		return event.Encode(text.String())
	}
	return event.Encode(struct {
		Content   []event.Part `json:"content"`
		Truncated bool         `json:"truncated,omitempty"`
		Artifact  *event.Part  `json:"artifact,omitempty"`
	}{parts, d.Truncated, d.Artifact})
}

func (x *encoder) toolFailed(_ event.Event, d event.ToolFailedData) []dialect.Message {
	c := x.calls[d.CallID]
	switch {
	case c == nil:
		return nil
	case d.Outcome == event.OutcomeDenied && c.asked:
		return chunk("tool-output-denied", 64).Text("toolCallId", d.CallID).One("")
	}
	why := d.Message
	if d.Outcome == event.OutcomeUnknown {
		why = "outcome unknown: " + why
	}
	return c.executed(chunk("tool-output-error", 128).Text("toolCallId", d.CallID).Text("errorText", why)).One("")
}

// An approval has the id of its call. Of a call that clients do not see it is
// data.

func (x *encoder) approvalRequested(_ event.Event, d event.ApprovalRequestedData) []dialect.Message {
	c := x.calls[d.CallID]
	if c == nil {
		return x.data("data-approval", d.CallID, event.Encode(d))
	}
	c.asked = true
	return chunk("tool-approval-request", 128).Text("approvalId", d.CallID).Text("toolCallId", d.CallID).One("")
}

func (x *encoder) approvalResolved(_ event.Event, d event.ApprovalResolvedData) []dialect.Message {
	if x.calls[d.CallID] == nil {
		return x.data("data-approval", d.CallID, event.Encode(d))
	}
	return chunk("tool-approval-response", 128).Text("approvalId", d.CallID).Value("approved", d.Decision == event.Approved).Some("reason", d.Reason).One("")
}
