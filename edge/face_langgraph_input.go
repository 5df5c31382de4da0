package edge

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/runlog-dev/runlog/edge/dialect/langgraph"
	"github.com/runlog-dev/runlog/event"
)

// langgraphInput is the body of a request for a run. config, context, metadata
// and the like are for graphs, and passed over.
type langgraphInput struct {
	Assistant    string          `json:"assistant_id"`
	Input        json.RawMessage `json:"input"` // {messages}
	Command      *graphCommand   `json:"command"`
	StreamMode   json.RawMessage `json:"stream_mode"` // a name, or names
	OnDisconnect string          `json:"on_disconnect"`
	Multitask    string          `json:"multitask_strategy"`
	Webhook      json.RawMessage `json:"webhook"`
	AfterSeconds float64         `json:"after_seconds"`
	Before       json.RawMessage `json:"interrupt_before"`
	After        json.RawMessage `json:"interrupt_after"`
	CheckpointID string          `json:"checkpoint_id"`
	Checkpoint   *struct {
		ID string `json:"checkpoint_id"`
	} `json:"checkpoint"`

	modes langgraph.Modes
}

type graphCommand struct {
	Resume json.RawMessage `json:"resume"`
	Update json.RawMessage `json:"update"`
	Goto   json.RawMessage `json:"goto"`
}

func readLangGraph(body []byte) (*langgraphInput, error) {
	in := &langgraphInput{}
	if err := decodeOpen(body, in); err != nil {
		return nil, err
	}
	var names []string
	var one string
	switch {
	case absent(in.StreamMode):
		names = []string{"values"}
	case json.Unmarshal(in.StreamMode, &one) == nil:
		names = []string{one}
	case json.Unmarshal(in.StreamMode, &names) != nil:
		return nil, bad("stream_mode", "stream_mode is a name or a list of names")
	case len(names) == 0:
		names = []string{"values"}
	}
	var err error
	in.modes, err = modesOf(names)
	return in, err
}

// modesOf reads the names of stream modes; none are the usual ones.
func modesOf(names []string) (langgraph.Modes, error) {
	var modes langgraph.Modes
	for _, name := range names {
		m := langgraph.Mode(name)
		if m == 0 {
			return 0, unsupported("stream_mode", "the stream mode %q is not told; known: %s", name, langgraph.Known())
		}
		modes |= m
	}
	return modes, nil
}

// absent reports that a member is missing, null, or empty.
func absent(raw json.RawMessage) bool {
	switch string(bytes.TrimSpace(raw)) {
	case "", "null", "[]", "{}", `""`:
		return true
	}
	return false
}

// refuse says what of a request is wrong or not built.
func (in *langgraphInput) refuse(fold *event.Session) error {
	checkpoint := in.CheckpointID
	if in.Checkpoint != nil && in.Checkpoint.ID != "" {
		checkpoint = in.Checkpoint.ID
	}
	switch {
	case in.OnDisconnect != "" && in.OnDisconnect != "continue" && in.OnDisconnect != "cancel":
		return bad("on_disconnect", "on_disconnect: %q is not known; use continue or cancel", in.OnDisconnect)
	case !absent(in.Webhook):
		return unsupported("webhook", "webhooks are not built yet; follow the run's stream")
	case in.AfterSeconds > 0:
		return unsupported("after_seconds", "runs that start later are not built yet; start it when it is to run")
	case !absent(in.Before) || !absent(in.After):
		return unsupported("interrupt_before", "an agent has no nodes to stop at; which calls need an approval is the agent's setting")
	case checkpoint != "" && checkpoint != headCheckpoint(fold):
		return unsupported("checkpoint", "a thread goes on from its end: %q is a checkpoint before that, or none of this thread's", checkpoint)
	case in.Command != nil && (!absent(in.Command.Update) || !absent(in.Command.Goto)):
		return unsupported("command", "command.update and command.goto are for graphs; only command.resume is taken")
	}
	switch in.Multitask {
	case "", "enqueue", "reject", "interrupt":
		return nil
	}
	return unsupported("multitask_strategy", "multitask_strategy: %q is not built: what was said stays said; use enqueue, reject or interrupt", in.Multitask)
}

func (in *langgraphInput) queue() event.Queue {
	return map[string]event.Queue{"enqueue": event.Enqueue, "reject": event.Reject, "interrupt": event.Interrupt}[in.Multitask]
}

// resumes reports that a request brings what a run waits for. An answer may be
// false or empty, but not null.
func (in *langgraphInput) resumes() bool {
	return in.Command != nil && len(in.Command.Resume) > 0 && string(in.Command.Resume) != "null"
}

func (in *langgraphInput) empty() bool { return absent(in.Input) }

// A graphMessage is a message of LangChain's, as it is, as its library stores it
// (lc), or as a pair of role and text.
type graphMessage struct {
	Type    string          `json:"type"`
	Role    string          `json:"role"`
	ID      json.RawMessage `json:"id"` // a string; what is stored has the name of its class
	Content json.RawMessage `json:"content"`
	CallID  string          `json:"tool_call_id"`
	Calls   []graphCall     `json:"tool_calls"`
	Stored  int             `json:"lc"`
	Fields  json.RawMessage `json:"kwargs"`

	id, at string
}

type graphCall struct {
	ID   string          `json:"id"`
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"`
}

// messages are those of the request's input.
func (in *langgraphInput) messages() ([]graphMessage, error) {
	var text string
	if json.Unmarshal(in.Input, &text) == nil {
		return []graphMessage{{Type: "human", Content: in.Input, at: "input"}}, nil
	}
	var input struct {
		Messages json.RawMessage `json:"messages"`
	}
	if err := json.Unmarshal(in.Input, &input); err != nil || absent(input.Messages) {
		return nil, bad("input", "input holds no messages: send {messages: [{type: human, content: …}]}")
	}
	raw := bytes.TrimSpace(input.Messages)
	if raw[0] != '[' {
		raw = append(append([]byte("["), raw...), ']')
	}
	var each []json.RawMessage
	if err := json.Unmarshal(raw, &each); err != nil || len(each) > maxMessages {
		return nil, bad("input.messages", "input.messages is a list of 1 to %d messages", maxMessages)
	}
	list := make([]graphMessage, len(each))
	for i, raw := range each {
		if err := list[i].read(fmt.Sprintf("input.messages[%d]", i), raw); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (m *graphMessage) read(at string, raw json.RawMessage) error {
	var pair []json.RawMessage
	var text string
	switch {
	case json.Unmarshal(raw, &text) == nil:
		*m = graphMessage{Type: "human", Content: raw}
	case json.Unmarshal(raw, &pair) == nil && len(pair) == 2 && json.Unmarshal(pair[0], &m.Role) == nil:
		m.Content = pair[1]
	case json.Unmarshal(raw, m) != nil:
		return bad(at, "%s is no message: {type, content}", at)
	}
	if m.Stored > 0 {
		return m.readStored(at)
	}
	_ = json.Unmarshal(m.ID, &m.id) // null, if there is none
	m.at = at
	return nil
}

// readStored reads {lc, type: constructor, id: [… class], kwargs}.
func (m *graphMessage) readStored(at string) error {
	var class []string
	if json.Unmarshal(m.ID, &class) != nil || len(class) == 0 || len(m.Fields) == 0 {
		return bad(at, "%s is no message: id names its class, kwargs has its fields", at)
	}
	name := strings.TrimSuffix(strings.TrimSuffix(class[len(class)-1], "Chunk"), "Message")
	fields := m.Fields
	*m = graphMessage{}
	if err := m.read(at, fields); err != nil {
		return err
	}
	m.Type = strings.ToLower(name)
	return nil
}

// role is the message's, in the words that readRole knows.
func (m *graphMessage) role() string {
	name := m.Role
	if name == "" {
		name = strings.ToLower(strings.TrimSuffix(m.Type, "MessageChunk"))
	}
	switch name {
	case "human":
		return "user"
	case "ai":
		return "assistant"
	}
	return name
}

// langgraphMessages are the messages that the thread does not hold, in runlog's form.
func (s *Server) langgraphMessages(ctx context.Context, c *call, in *langgraphInput, fold *event.Session) ([]inputMessage, error) {
	sent, err := in.messages()
	if err != nil {
		return nil, err
	}
	var list []inputMessage
	for _, m := range sent {
		if m.id != "" && fold.MessageByID(m.id) != nil {
			continue
		}
		if m.role() == "tool" {
			if fold.Call(m.CallID) == nil {
				content, err := s.graphContent(ctx, c, m.at, m.Content)
				if err != nil {
					return nil, err
				}
				if _, err := answerCall(m.at, list, pastResult{m.CallID, orText(content)}); err != nil {
					return nil, err
				}
			}
			continue
		}
		next, err := s.langgraphMessage(ctx, c, &m)
		if err != nil {
			return nil, err
		}
		if len(next.Parts)+len(next.Calls) > 0 {
			list = append(list, next)
		}
	}
	if len(list) == 0 && len(fold.Messages) == 0 {
		return nil, bad("input.messages", "input.messages says nothing, and the thread is empty: send a message")
	}
	return list, nil
}

func (s *Server) langgraphMessage(ctx context.Context, c *call, m *graphMessage) (inputMessage, error) {
	next, err := beginInput(m.at, m.role(), m.id)
	if err != nil {
		return next, err
	}
	if next.Parts, err = s.graphContent(ctx, c, m.at, m.Content); err != nil {
		return next, err
	}
	if next.Role == event.RoleAssistant {
		for _, call := range m.Calls {
			next.Calls = append(next.Calls, event.PastCall{CallID: call.ID, Name: call.Name, Args: string(call.Args)})
		}
	}
	next.text = string(event.Encode(next.Parts))
	return next, nil
}

// A graphPart is a part of a message: in the shape that OpenAI has, or a block of
// LangChain's.
type graphPart struct {
	openaiPart
	URL      string `json:"url"`
	Data     string `json:"data"` // base64
	Base64   string `json:"base64"`
	MimeType string `json:"mime_type"`
	Mime     string `json:"mimeType"`
	Name     string `json:"name"`
}

// graphContent reads a text, or parts.
func (s *Server) graphContent(ctx context.Context, c *call, at string, raw json.RawMessage) ([]event.Part, error) {
	var list []graphPart
	if len(raw) == 0 || bytes.TrimSpace(raw)[0] != '[' {
		return s.openaiContent(ctx, c, at, raw)
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, bad(at+".content", "%s.content is neither a text nor a list of parts", at)
	}
	var parts []event.Part
	for i, p := range list {
		at := fmt.Sprintf("%s.content[%d]", at, i)
		part, err := s.openaiPart(ctx, c, at, p.openaiPart)
		switch p.Type {
		case "reasoning", "thinking", "tool_use", "tool_call", "tool_call_chunk": // the session has its own
			continue
		case "image", "audio", "file", "video":
			part, err = s.inlineFile(ctx, c, at, p.ref(), p.MimeType+p.Mime, p.Name+p.Filename)
		}
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}
	return parts, nil
}

// ref is where the block's bytes are.
func (p *graphPart) ref() string {
	if data := p.Data + p.Base64; data != "" {
		return "data:" + p.MimeType + p.Mime + ";base64," + data
	}
	return p.URL
}
