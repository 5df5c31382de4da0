package agui

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/internal/wire"
	"github.com/runlog-dev/runlog/worker/model"
	"github.com/runlog-dev/runlog/worker/remote"
)

// A narrator tells what a server's events say.
type narrator struct {
	session  *event.Session
	say      func(remote.Saying) error
	begun    bool // RUN_STARTED has come
	finished bool // RUN_FINISHED
	seen     map[string]bool
	others   map[string]bool // messages that are not the agent's
	message  string          // of chunks
	ended    bool            // the text of the message that was told last
	call     string          // of chunks
	open     map[string]bool // calls between their start and their end
	repeated map[string]bool // calls that were started again before they had a result
	acts     map[string]bool
}

func newNarrator(t remote.Task, say func(remote.Saying) error) *narrator {
	return &narrator{session: t.Session, say: say, seen: map[string]bool{}, others: map[string]bool{}, acts: map[string]bool{},
		open: map[string]bool{}, repeated: map[string]bool{}}
}

func wrong(format string, args ...any) error {
	return &model.Error{Code: event.CodeModelError, Message: "the agent's server does not keep to AG-UI: " + fmt.Sprintf(format, args...)}
}

// take tells of one event.
func (n *narrator) take(data []byte) error {
	if !utf8.Valid(data) {
		return wrong("an event is not UTF-8: %s", wire.Clip(string(data)))
	}
	var e wireEvent
	if err := json.Unmarshal(data, &e); err != nil || e.Type == "" {
		return wrong("an event is no JSON object with a type: %s", wire.Clip(string(data)))
	}
	switch {
	case e.Type == "RUN_ERROR":
		return &model.Error{Code: event.CodeModelError, Message: runError(e), Retryable: e.Metadata.Retryable}
	case e.Type == "RUN_STARTED" && n.begun:
		return wrong("RUN_STARTED in the middle of a run")
	case e.Type == "RUN_STARTED":
		n.begun = true
		return nil
	case !n.begun:
		return wrong("the first event is %s, not RUN_STARTED", e.Type)
	}
	tell := tellers[e.Type]
	if tell == nil || e.SubagentRunID != "" {
		return n.raw(e.Type, data)
	}
	err := tell(n, e)
	if errors.Is(err, remote.ErrMisfit) { // clients only warn
		return n.raw(e.Type, data)
	}
	return err
}

func runError(e wireEvent) string {
	if e.Code != "" {
		return "the agent failed (" + e.Code + "): " + e.Message
	}
	return "the agent failed: " + e.Message
}

// maxRaw bounds what auditors get of an event that the log has no word for.
const maxRaw = 256 << 10

func (n *narrator) raw(kind string, data []byte) error {
	if len(data) > maxRaw {
		data = event.Encode(struct {
			Type  string `json:"type"`
			Bytes int    `json:"bytes_left_out"`
		}{kind, len(data)})
	}
	return n.say(remote.Raw{Source: "agui", Event: data})
}

var tellers = map[string]func(*narrator, wireEvent) error{
	"TEXT_MESSAGE_START":   (*narrator).textStart,
	"TEXT_MESSAGE_CONTENT": (*narrator).textContent,
	"TEXT_MESSAGE_END":     (*narrator).textEnd,
	"TEXT_MESSAGE_CHUNK":   (*narrator).textChunk,
	"TOOL_CALL_START":      (*narrator).callStart,
	"TOOL_CALL_ARGS":       (*narrator).callArgs,
	"TOOL_CALL_END":        (*narrator).callEnd,
	"TOOL_CALL_CHUNK":      (*narrator).callChunk,
	"TOOL_CALL_RESULT":     (*narrator).callResult,
	"STATE_SNAPSHOT":       func(n *narrator, e wireEvent) error { return n.say(remote.State{State: or(e.Snapshot, "null")}) },
	"STATE_DELTA":          func(n *narrator, e wireEvent) error { return n.say(remote.StatePatch{Patch: e.Delta}) },
	"MESSAGES_SNAPSHOT":    (*narrator).snapshot,
	"ACTIVITY_SNAPSHOT":    (*narrator).activity,
	"ACTIVITY_DELTA": func(n *narrator, e wireEvent) error {
		return n.say(remote.ActivityPatch{ID: e.MessageID, Patch: e.Patch})
	},
	"REASONING_START":               (*narrator).thoughtStart,
	"REASONING_MESSAGE_START":       quiet,
	"REASONING_MESSAGE_CONTENT":     (*narrator).thought,
	"REASONING_MESSAGE_CHUNK":       (*narrator).thought,
	"REASONING_MESSAGE_END":         thoughtEnd,
	"REASONING_END":                 thoughtEnd,
	"THINKING_START":                (*narrator).thoughtStart, // as REASONING was called once
	"THINKING_TEXT_MESSAGE_START":   quiet,
	"THINKING_TEXT_MESSAGE_CONTENT": (*narrator).thought,
	"THINKING_TEXT_MESSAGE_END":     thoughtEnd,
	"THINKING_END":                  thoughtEnd,
	"CUSTOM":                        (*narrator).custom,
	"RUN_FINISHED":                  (*narrator).finish,
}

func quiet(*narrator, wireEvent) error { return nil }

func text(raw json.RawMessage) (s string, ok bool) {
	if len(raw) == 0 {
		return "", true
	}
	return s, json.Unmarshal(raw, &s) == nil
}

func (n *narrator) textStart(e wireEvent) error {
	if e.MessageID == "" {
		return wrong("TEXT_MESSAGE_START has no messageId")
	}
	n.message = e.MessageID
	if e.Role != "" && e.Role != "assistant" { // what others said, the log has
		n.others[e.MessageID] = true
		return remote.ErrMisfit
	}
	n.seen[e.MessageID], n.ended = true, false
	return n.say(remote.Text{MessageID: e.MessageID})
}

func (n *narrator) textContent(e wireEvent) error {
	delta, ok := text(e.Delta)
	switch {
	case !ok || !n.seen[e.MessageID] && !n.others[e.MessageID]:
		return wrong("TEXT_MESSAGE_CONTENT of message %q, which is not open, or without a text", e.MessageID)
	case n.others[e.MessageID]:
		return remote.ErrMisfit
	}
	return n.say(remote.Text{MessageID: e.MessageID, Delta: delta})
}

// textEnd leaves the message open: calls may belong to it.
func (n *narrator) textEnd(wireEvent) error {
	n.ended = true
	return nil
}

func (n *narrator) textChunk(e wireEvent) error {
	if e.MessageID == "" {
		e.MessageID = n.message
	}
	if !n.seen[e.MessageID] && !n.others[e.MessageID] {
		if err := n.textStart(e); err != nil {
			return err
		}
	}
	return n.textContent(e)
}

// callStart: a call without a parent is a message of its own, as clients have it.
func (n *narrator) callStart(e wireEvent) error {
	if e.ToolCallID == "" || e.ToolCallName == "" {
		return wrong("TOOL_CALL_START has no toolCallId, or no toolCallName")
	}
	if n.open[e.ToolCallID] {
		return wrong("TOOL_CALL_START of call %q, which has not ended", e.ToolCallID)
	}
	n.call, n.open[e.ToolCallID] = e.ToolCallID, true
	parent := e.ParentMessageID
	if m := n.session.MessageByID(parent); parent == "" || n.others[parent] || m != nil && m.Role != event.RoleAssistant {
		parent = e.ToolCallID
	}
	n.seen[parent] = true
	err := n.say(remote.Call{MessageID: parent, CallID: e.ToolCallID, Name: e.ToolCallName})
	n.repeated[e.ToolCallID] = errors.Is(err, remote.ErrMisfit)
	return err
}

func (n *narrator) callEnd(e wireEvent) error {
	delete(n.open, e.ToolCallID)
	return nil
}

func (n *narrator) callArgs(e wireEvent) error {
	delta, ok := text(e.Delta)
	if !ok {
		return wrong("TOOL_CALL_ARGS of call %q has no text", e.ToolCallID)
	}
	if n.repeated[e.ToolCallID] {
		return remote.ErrMisfit // they were told
	}
	return n.say(remote.Args{CallID: e.ToolCallID, Delta: delta})
}

func (n *narrator) callChunk(e wireEvent) error {
	if e.ToolCallID != "" && e.ToolCallID != n.call {
		delete(n.open, n.call) // another one ends it
		if err := n.callStart(e); err != nil {
			return err
		}
	}
	if e.ToolCallID = n.call; len(e.Delta) == 0 {
		return nil
	}
	return n.callArgs(e)
}

func (n *narrator) callResult(e wireEvent) error {
	n.seen[e.MessageID] = true
	return n.say(remote.Result{CallID: e.ToolCallID, Content: contentOf(e.Content)})
}

// contentOf is a text, or a list of parts, as parts of the log.
func contentOf(raw json.RawMessage) []event.Part {
	var s string
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if json.Unmarshal(raw, &s) == nil {
		return []event.Part{event.TextPart(s)}
	}
	if json.Unmarshal(raw, &parts) != nil {
		return []event.Part{{Type: event.PartJSON, Value: or(raw, "null")}}
	}
	var list []event.Part
	for _, p := range parts {
		if p.Type != "text" {
			return []event.Part{{Type: event.PartJSON, Value: raw}}
		}
		list = append(list, event.TextPart(p.Text))
	}
	return list
}

func (n *narrator) activity(e wireEvent) error {
	if e.Replace != nil && !*e.Replace && n.acts[e.MessageID] {
		return nil
	}
	if e.MessageID == "" || e.ActivityType == "" {
		return wrong("ACTIVITY_SNAPSHOT has no messageId, or no activityType")
	}
	n.acts[e.MessageID] = true
	return n.say(remote.Activity{ID: e.MessageID, Kind: e.ActivityType, Content: or(e.Content, "null")})
}

// thoughtStart: what is thought after a message belongs to the next one.
func (n *narrator) thoughtStart(wireEvent) error {
	if !n.ended {
		return nil
	}
	n.ended = false
	return n.say(remote.MessageEnd{})
}

func (n *narrator) thought(e wireEvent) error {
	delta, ok := text(e.Delta)
	if !ok {
		return wrong("%s has no text", e.Type)
	}
	return n.say(remote.Reasoning{Delta: delta})
}

func thoughtEnd(n *narrator, _ wireEvent) error { return n.say(remote.ReasoningEnd{}) }

func (n *narrator) custom(e wireEvent) error {
	if e.Name == "" || event.ReservedName(e.Name) {
		return remote.ErrMisfit
	}
	return n.say(remote.Custom{Name: e.Name, Value: e.Value})
}

// snapshot tells of messages that did not stream: those behind what the log had
// when the agent was asked.
func (n *narrator) snapshot(e wireEvent) error {
	tail := 0
	for i, m := range e.Messages {
		if n.session.MessageByID(m.ID) != nil {
			tail = i + 1
		}
	}
	for _, m := range e.Messages[tail:] {
		if err := n.whole(m); err != nil && !errors.Is(err, remote.ErrMisfit) {
			return err
		}
	}
	return nil
}

func (n *narrator) whole(m wireMessage) error {
	switch {
	case n.seen[m.ID]:
		return nil
	case m.Role == "tool":
		return n.callResult(wireEvent{MessageID: m.ID, ToolCallID: m.ToolCallID, Content: m.Content})
	case m.Role != "assistant":
		return nil
	}
	n.seen[m.ID] = true
	if err := n.say(remote.Text{MessageID: m.ID, Delta: textOf(contentOf(or(m.Content, `""`)))}); err != nil {
		return err
	}
	for _, c := range m.ToolCalls {
		if err := n.say(remote.Call{MessageID: m.ID, CallID: c.ID, Name: c.Function.Name}); err != nil {
			return err
		}
		if err := n.say(remote.Args{CallID: c.ID, Delta: c.Function.Arguments}); err != nil {
			return err
		}
	}
	return nil
}

// finish ends the leg, with what the agent asks people.
func (n *narrator) finish(e wireEvent) error {
	for _, u := range e.Usage {
		if err := n.say(remote.Usage{Usage: event.Usage{InputTokens: u.Input, OutputTokens: u.Output, ReasoningTokens: u.Reasoning, CachedInputTokens: u.Cached}}); err != nil {
			return err
		}
	}
	if e.Outcome != nil && e.Outcome.Type == "cancelled" {
		return &model.Error{Code: event.CodeModelError, Message: "the agent's server has cancelled its run"}
	}
	if e.Outcome != nil {
		for _, i := range e.Outcome.Interrupts {
			if err := n.interrupt(i); err != nil {
				return err
			}
		}
	}
	n.finished = true
	return nil
}

// interrupt asks for the approval of a call, or, where it is about none, for an
// answer.
func (n *narrator) interrupt(i wireInterrupt) error {
	ask := remote.Ask{ID: i.ID, CallID: i.CallID}
	if at, err := time.Parse(time.RFC3339, i.ExpiresAt); err == nil {
		t := event.At(at)
		ask.ExpiresAt = &t
	}
	if ask.CallID != "" {
		err := n.say(ask)
		if !errors.Is(err, remote.ErrMisfit) {
			return err
		}
	}
	i.ID, i.ExpiresAt = "", ""
	ask.CallID, ask.Name, ask.Question = "", question, event.Encode(struct {
		Reason   string          `json:"reason"`
		Message  string          `json:"message,omitempty"`
		Schema   json.RawMessage `json:"responseSchema,omitempty"`
		Metadata json.RawMessage `json:"metadata,omitempty"`
	}{i.Reason, i.Message, i.Schema, i.Metadata})
	return n.say(ask)
}
