package langgraph

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
)

// A message is one of LangChain's.
type message struct {
	Type       string        `json:"type"` // human, ai, system, tool
	ID         string        `json:"id"`
	Content    any           `json:"content"` // a string, or parts
	Name       string        `json:"name,omitempty"`
	Calls      []call        `json:"tool_calls,omitempty"`
	Invalid    []invalidCall `json:"invalid_tool_calls,omitempty"`
	CallID     string        `json:"tool_call_id,omitempty"`
	Status     string        `json:"status,omitempty"` // of a tool's: success or error
	Artifact   any           `json:"artifact,omitempty"`
	Additional *additional   `json:"additional_kwargs,omitempty"`
}

type (
	call struct {
		ID   string          `json:"id"`
		Name string          `json:"name"`
		Args json.RawMessage `json:"args"`
		Type string          `json:"type"`
	}
	// An invalidCall has arguments that are no JSON object.
	invalidCall struct {
		ID    string `json:"id"`
		Name  string `json:"name"`
		Args  string `json:"args"`
		Error string `json:"error"`
		Type  string `json:"type"`
	}
	additional struct {
		Reasoning string `json:"reasoning_content,omitempty"`
	}
	// artifact is what a tool has returned besides what it says.
	artifact struct {
		Structured json.RawMessage `json:"structured,omitempty"`
		Truncated  bool            `json:"truncated,omitempty"`
		File       *event.Part     `json:"file,omitempty"` // the whole, if it was cut
	}
	contentPart struct {
		Type     string    `json:"type"`
		Text     string    `json:"text,omitempty"`
		ImageURL *imageURL `json:"image_url,omitempty"`
		URL      string    `json:"url,omitempty"`
		MimeType string    `json:"mime_type,omitempty"`
		Name     string    `json:"name,omitempty"`
	}
	imageURL struct {
		URL string `json:"url"`
	}
)

var types = map[event.Role]string{event.RoleUser: "human", event.RoleAssistant: "ai", event.RoleSystem: "system"}

// resultID is the id of the message that a tool's result is.
func resultID(callID string) string { return callID + "-result" }

// messages is the conversation, without the sub-agents'. What is still being
// written is left to the chunks.
func messages(s *event.Session) []message {
	list := []message{}
	for _, m := range s.Messages {
		if r := s.Run(m.RunID); m.Status == event.Streaming || r != nil && r.ParentRunID != "" || hidden(event.Values(m.Parts)) {
			continue
		}
		list = append(list, withResults(s, m)...)
	}
	return list
}

// hidden reports that clients see nothing of a message.
func hidden(parts []event.Part) bool {
	return len(parts) > 0 && !slices.ContainsFunc(parts, func(p event.Part) bool { return !p.Internal })
}

// withResults is a message, and what its tools have said.
func withResults(s *event.Session, m *event.Message) []message {
	list := []message{messageOf(s, m.MessageID, m.Role, event.Values(m.Parts))}
	for _, c := range s.CallsOf(m.MessageID) {
		if c.Done() && !c.Internal {
			list = append(list, toolMessage(dialect.ResultOf(c), c.Status == event.Failed))
		}
	}
	return list
}

// messageOf is a message of the given parts, which may not stand in the session yet.
func messageOf(s *event.Session, id string, role event.Role, parts []event.Part) message {
	out := message{Type: types[role], ID: id}
	var reasoning strings.Builder
	var said []event.Part
	for _, p := range parts {
		switch {
		case p.Internal:
		case p.Type == event.PartReasoning:
			reasoning.WriteString(p.Text)
		case p.Type == event.PartToolCall:
			if c := s.Call(p.CallID); c != nil && !c.Internal {
				out.calls(c)
			}
		default:
			said = append(said, p)
		}
	}
	if reasoning.Len() > 0 {
		out.Additional = &additional{reasoning.String()}
	}
	out.Content = contentOf(said)
	return out
}

func (m *message) calls(c *event.ToolCall) {
	if args := dialect.Arguments(c.Args); args[0] == '{' {
		m.Calls = append(m.Calls, call{c.CallID, c.Name, args, "tool_call"})
		return
	}
	m.Invalid = append(m.Invalid, invalidCall{c.CallID, c.Name, c.Args, "the arguments are no JSON object", "invalid_tool_call"})
}

// contentOf is a string if there is only text.
func contentOf(parts []event.Part) any {
	var b strings.Builder
	list := []contentPart{}
	plain := true
	for _, p := range parts {
		switch p.Type {
		case event.PartText:
			b.WriteString(p.Text)
			list = append(list, contentPart{Type: "text", Text: p.Text})
		case event.PartImage:
			plain = false
			list = append(list, contentPart{Type: "image_url", ImageURL: &imageURL{p.URL}})
		default:
			plain = false
			list = append(list, contentPart{Type: string(p.Type), URL: p.URL, MimeType: p.MediaType, Name: p.Name})
		}
	}
	if plain {
		return b.String()
	}
	return list
}

func toolMessage(r dialect.Result, failed bool) message {
	m := message{Type: "tool", ID: resultID(r.CallID), Name: r.Name, CallID: r.CallID, Status: "success", Content: r.Text()}
	if failed {
		m.Status = "error"
	}
	if len(r.Structured) > 0 || r.Truncated || r.Artifact != nil {
		m.Artifact = artifact{r.Structured, r.Truncated, r.Artifact}
	}
	return m
}

// State is the state of a thread: its messages, and the members of the session's
// state beside them.
func State(s *event.Session) json.RawMessage {
	return valuesOf(messages(s), s.State)
}

func valuesOf(list []message, state json.RawMessage) json.RawMessage {
	members := map[string]json.RawMessage{}
	if len(state) > 0 && json.Unmarshal(state, &members) != nil {
		members = map[string]json.RawMessage{"state": state} // no object
	}
	members["messages"] = event.Encode(list)
	delete(members, interruptKey)
	return event.Encode(members)
}

// MessagesThrough is the state of a thread when a run had ended, as far as it can
// be told later: the messages.
func MessagesThrough(s *event.Session, runs map[string]bool) json.RawMessage {
	list := []message{}
	for _, m := range s.Messages {
		if runs[m.RunID] && m.Status != event.Streaming && !hidden(event.Values(m.Parts)) {
			list = append(list, withResults(s, m)...)
		}
	}
	return valuesOf(list, nil)
}
