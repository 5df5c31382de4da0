package agui

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/remote"
)

// input is what a server is asked: a RunAgentInput. Nothing absent is null.
type input struct {
	ThreadID  string          `json:"threadId"`
	RunID     string          `json:"runId"`
	Protocol  string          `json:"protocolVersion,omitempty"`
	State     json.RawMessage `json:"state"`
	Messages  []message       `json:"messages"`
	Tools     []tool          `json:"tools"`
	Context   []Context       `json:"context"`
	Forwarded json.RawMessage `json:"forwardedProps"`
	Resume    []resume        `json:"resume,omitempty"`
}

type (
	message struct {
		ID         string  `json:"id"`
		Role       string  `json:"role"`
		Content    *string `json:"content,omitempty"`
		ToolCalls  []call  `json:"toolCalls,omitempty"`
		ToolCallID string  `json:"toolCallId,omitempty"`
		Error      string  `json:"error,omitempty"`
	}
	call struct {
		ID       string   `json:"id"`
		Type     string   `json:"type"`
		Function function `json:"function"`
	}
	function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	}
	tool struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	}
	resume struct {
		InterruptID string `json:"interruptId"`
		Status      string `json:"status"` // resolved | cancelled
		Payload     any    `json:"payload,omitempty"`
	}
)

func (a *Agent) input(t remote.Task) []byte {
	in := input{ThreadID: t.SessionID(), RunID: t.RunID, State: or(t.Session.State, "{}"), Messages: messagesOf(t.Session, t.RunID),
		Tools: []tool{}, Context: a.opt.Context, Forwarded: or(a.opt.Forwarded, "{}")}
	if a.opt.Protocol != "none" {
		in.Protocol = a.opt.Protocol
	}
	if t.Leg > 1 { // for AG-UI it is another run
		in.RunID = fmt.Sprintf("%s-%d", t.RunID, t.Leg)
	}
	if in.Context == nil {
		in.Context = []Context{}
	}
	for _, c := range t.Tools {
		in.Tools = append(in.Tools, tool{c.Name, c.Description, or(c.Parameters, "{}")})
	}
	for _, answer := range t.Answers {
		in.Resume = append(in.Resume, resumeOf(answer))
	}
	return event.Encode(in)
}

// or is what stands in the place of JSON that is absent.
func or(raw json.RawMessage, absent string) json.RawMessage {
	if len(raw) == 0 || string(raw) == "null" {
		return json.RawMessage(absent)
	}
	return raw
}

// resumeOf answers an interrupt.
func resumeOf(a remote.Answer) resume {
	r := resume{InterruptID: a.ID, Status: "resolved"}
	type decision struct {
		Approved bool   `json:"approved"`
		Reason   string `json:"reason,omitempty"`
	}
	text := textOf(a.Content)
	switch {
	case a.Expired:
		r.Status = "cancelled"
	case a.Approval:
		r.Payload = decision{a.Approved, a.Reason}
	case event.Valid([]byte(text)):
		r.Payload = json.RawMessage(text)
	default:
		r.Payload = text
	}
	return r
}

// question is the name of the calls by which people are asked what an interrupt
// asks without a tool call. The agent does not know them.
const question = "interrupt"

// messagesOf is the conversation as a client of the server would have it, without
// its reasoning, which servers do not want back.
func messagesOf(s *event.Session, runID string) []message {
	list := []message{}
	for _, m := range s.Messages {
		if !shown(s, m, runID) {
			continue
		}
		list = append(list, messageOf(s, m)...)
	}
	return list
}

// shown leaves out what is said between other agents of the session.
func shown(s *event.Session, m *event.Message, runID string) bool {
	if r := s.Run(runID); r != nil && r.ParentRunID != "" {
		return m.RunID == runID
	}
	r := s.Run(m.RunID)
	return r == nil || r.ParentRunID == ""
}

func messageOf(s *event.Session, m *event.Message) []message {
	own := message{ID: m.MessageID, Role: string(m.Role)}
	var results []message
	var text strings.Builder
	for _, p := range m.Parts {
		switch p.Type {
		case event.PartReasoning:
		case event.PartToolCall:
			c := s.Call(p.CallID)
			if c == nil || c.Name == question && c.Executor == event.ByClient {
				continue
			}
			own.ToolCalls = append(own.ToolCalls, call{c.CallID, "function", function{c.Name, c.Args}})
			if c.Done() {
				results = append(results, resultOf(c))
			}
		default:
			text.WriteString(partText(*p))
		}
	}
	if content := text.String(); content != "" || own.ToolCalls == nil {
		own.Content = &content
	}
	if m.Role == event.RoleAssistant && own.ToolCalls == nil && text.Len() == 0 {
		return nil
	}
	return append([]message{own}, results...)
}

func resultOf(c *event.ToolCall) message {
	text := textOf(c.Content)
	if text == "" && c.Message == "" {
		text = string(c.Structured)
	}
	m := message{ID: c.CallID + "-result", Role: "tool", Content: &text, ToolCallID: c.CallID}
	if c.Status == event.Failed {
		m.Error = c.Message
		if text == "" {
			text = c.Message
		}
	}
	return m
}

func textOf(parts []event.Part) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(partText(p))
	}
	return b.String()
}

// partText is a part as text: a file is named.
func partText(p event.Part) string {
	switch p.Type {
	case event.PartText:
		return p.Text
	case event.PartJSON:
		return string(p.Value)
	}
	return fmt.Sprintf("[%s %q, %s, %s]", p.Type, p.Name, p.MediaType, p.URL)
}
