// Package parts is the dialect of whole messages: every change of the
// conversation is a command that carries the message as it is now.
//
//	{id, command, payload}
//
//	session.created    payload {session_id, agent}
//	user.message       payload {id, role, parts}
//	assistant.message  payload {id, role, parts, status}   the same id again replaces it; status discarded takes it back
//	session.updated    payload {session_id, status, run_id?, error?, snapshot?}   the run's status, or the shared state
//
// parts are {type: text, text}, {type: reasoning, text}, {type: file, …} and
// {type: tool-invocation, toolCallId, toolName, args, state, result?}, whose state
// goes from running to completed or failed. The text of a message comes with the
// whole message: who wants deltas takes another dialect.
package parts

import (
	"encoding/json"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
)

// Dialect is the dialect parts.
type Dialect struct{ dialect.Quiet }

// Name is parts.
func (Dialect) Name() string { return "parts" }

// Lost says what is not told.
func (Dialect) Lost() map[event.Type]string {
	return dialect.Untold("told with the whole message, or no part of the conversation",
		event.SessionCreated, event.MessageStarted, event.MessageCompleted, event.MessageDiscarded, event.ToolCompleted, event.ToolFailed,
		event.RunStarted, event.RunStatus, event.RunCompleted, event.RunFailed, event.RunCancelled, event.StateSnapshot, event.StateDelta)
}

type (
	created struct {
		SessionID string `json:"session_id"`
		Agent     string `json:"agent"`
	}
	message struct {
		ID     string       `json:"id"`
		Role   event.Role   `json:"role"`
		Parts  []any        `json:"parts"`
		Status event.Status `json:"status,omitempty"`
	}
	text struct {
		Type event.PartType `json:"type"`
		Text string         `json:"text"`
	}
	invocation struct {
		Type   string          `json:"type"`
		ID     string          `json:"toolCallId"`
		Name   string          `json:"toolName"`
		Args   json.RawMessage `json:"args"`
		State  event.Status    `json:"state"`
		Result *string         `json:"result,omitempty"`
	}
	updated struct {
		SessionID string          `json:"session_id"`
		RunID     string          `json:"run_id,omitempty"`
		Status    event.Status    `json:"status"`
		Error     *event.RunError `json:"error,omitempty"`
		Snapshot  json.RawMessage `json:"snapshot,omitempty"`
	}
)

// Event tells of an event that stands for itself.
func (Dialect) Event(e event.Event, _ []byte, _ dialect.Audience) []dialect.Message {
	if e.Internal || e.Type != event.SessionCreated {
		return nil
	}
	var d event.SessionCreatedData
	if e.Into(&d) != nil {
		return nil
	}
	return command(e, "session.created", created{e.SessionID, d.Agent})
}

// told are the types that are told with the session around them.
var told = map[event.Type]bool{
	event.MessageStarted: true, event.MessageCompleted: true, event.MessageDiscarded: true, event.ToolCompleted: true, event.ToolFailed: true,
	event.RunStarted: true, event.RunStatus: true, event.RunCompleted: true, event.RunFailed: true, event.RunCancelled: true,
	event.StateSnapshot: true, event.StateDelta: true,
}

// Folds: messages are told whole, so that nearly everything needs the session.
func (Dialect) Folds(e event.Event) bool { return !e.Internal && told[e.Type] }

// EventAfter tells what has become of the message, or of the session.
func (Dialect) EventAfter(before *event.Session, e event.Event, _ []byte, _ dialect.Audience) []dialect.Message {
	switch e.Type {
	case event.MessageStarted:
		return dialect.Decoded(e, func(d event.MessageStartedData) []dialect.Message {
			return command(e, word(d.Role), message{d.MessageID, d.Role, []any{}, event.Streaming})
		})
	case event.MessageCompleted:
		return dialect.Decoded(e, func(d event.MessageCompletedData) []dialect.Message {
			return command(e, word(d.Role), message{d.MessageID, d.Role, partsOf(before, d.Parts, result{}), event.Completed})
		})
	case event.MessageDiscarded:
		return dialect.Decoded(e, func(d event.MessageDiscardedData) []dialect.Message {
			if before.MessageByID(d.MessageID) == nil {
				return nil
			}
			return command(e, "assistant.message", message{d.MessageID, event.RoleAssistant, []any{}, "discarded"})
		})
	case event.ToolCompleted, event.ToolFailed:
		return dialect.Decoded(e, func(d dialect.Result) []dialect.Message {
			status := map[event.Type]event.Status{event.ToolCompleted: event.Completed, event.ToolFailed: event.Failed}[e.Type]
			return answered(before, e, result{d.CallID, status, d.Text()})
		})
	case event.StateSnapshot, event.StateDelta:
		return shared(before, e)
	}
	return run(before, e)
}

func command(e event.Event, name string, payload any) []dialect.Message {
	return dialect.NewObject(256).Text("id", e.ID).Text("command", name).Value("payload", payload).One(name)
}

func word(r event.Role) string {
	if r == event.RoleAssistant {
		return "assistant.message"
	}
	return "user.message"
}

// A result is one that the session before the event does not have.
type result struct {
	callID string
	state  event.Status
	text   string
}

// partsOf are a message's parts, its tool calls with their state.
func partsOf(s *event.Session, list []event.Part, r result) []any {
	out := []any{}
	for _, p := range list {
		switch {
		case p.Internal:
		case p.Type == event.PartText, p.Type == event.PartReasoning:
			out = append(out, text{p.Type, p.Text})
		case p.Type != event.PartToolCall:
			out = append(out, p)
		default:
			if c := s.Call(p.CallID); c != nil && !c.Internal {
				out = append(out, invoked(c, r))
			}
		}
	}
	return out
}

func invoked(c *event.ToolCall, r result) invocation {
	i := invocation{"tool-invocation", c.CallID, c.Name, dialect.Arguments(c.Args), event.Running, nil}
	switch {
	case c.CallID == r.callID:
		i.State, i.Result = r.state, &r.text
	case c.Done():
		said := dialect.ResultOf(c).Text()
		i.State, i.Result = c.Status, &said
	}
	return i
}

// answered tells the message of a call again, with its result.
func answered(before *event.Session, e event.Event, r result) []dialect.Message {
	c := before.Call(r.callID)
	if c == nil {
		return nil
	}
	m := before.MessageByID(c.MessageID)
	if m == nil {
		return nil
	}
	return command(e, "assistant.message", message{m.MessageID, m.Role, partsOf(before, event.Values(m.Parts), r), m.Status})
}

// shared tells the shared state as it is now.
func shared(before *event.Session, e event.Event) []dialect.Message {
	var d struct {
		event.StateSnapshotData
		event.StateDeltaData
	}
	if e.Into(&d) != nil {
		return nil
	}
	if e.Type == event.StateDelta {
		var err error
		if d.State, err = event.Patch(before.State, d.Patch); err != nil {
			return nil
		}
	}
	status := event.Running
	if r := before.Run(e.RunID); r != nil {
		status = r.Status
	}
	return command(e, "session.updated", updated{SessionID: e.SessionID, RunID: e.RunID, Status: status, Snapshot: d.State})
}

// run tells how a run is; its end carries the session.
func run(before *event.Session, e event.Event) []dialect.Message {
	if e.Agent != "" {
		return nil
	}
	after := before.Clone()
	if after.Apply(e) != nil {
		return nil
	}
	r := after.Run(e.RunID)
	if r == nil {
		return nil
	}
	u := updated{SessionID: e.SessionID, RunID: e.RunID, Status: r.Status, Error: r.Error}
	if e.Type.Terminal() {
		u.Snapshot = after.EncodePublic()
	}
	return command(e, "session.updated", u)
}

// Snapshot is an update with the session.
func (Dialect) Snapshot(_ dialect.Kind, s *event.Session, _ dialect.Audience) []dialect.Message {
	u := updated{SessionID: s.SessionID, Status: event.Completed, Snapshot: s.EncodePublic()}
	if r := s.Active(); r != nil {
		u.RunID, u.Status = r.RunID, r.Status
	}
	return command(event.Event{ID: event.NameIn(s.SessionID, s.Seq, s.Book.Epoch)}, "session.updated", u)
}
