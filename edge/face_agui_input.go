package edge

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/runlog-dev/runlog/event"
)

// aguiInput is AG-UI's RunAgentInput. state and context are taken and not used:
// a session's state is the agent's.
type aguiInput struct {
	ThreadID string             `json:"threadId"`
	RunID    string             `json:"runId"`
	Protocol string             `json:"protocolVersion"` // clients from before 1.0 name none
	Messages []aguiMessage      `json:"messages"`
	Tools    []event.ClientTool `json:"tools"`
	Props    json.RawMessage    `json:"forwardedProps"`
	Resume   []aguiResume       `json:"resume"`
}

type aguiMessage struct {
	ID         string          `json:"id"`
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content"`
	ToolCalls  json.RawMessage `json:"toolCalls"`
	ToolCallID string          `json:"toolCallId"`
	Error      string          `json:"error"`

	at string // where it stands, for messages
}

type aguiResume struct {
	InterruptID string          `json:"interruptId"`
	Status      string          `json:"status"` // resolved | cancelled
	Payload     json.RawMessage `json:"payload"`
}

func (in *aguiInput) old() bool { return in.Protocol == "" }

// readAGUI reads a request. Members that it does not know are passed over: newer
// clients may send them.
func readAGUI(body []byte) (*aguiInput, error) {
	in := &aguiInput{}
	if err := decodeOpen(body, in); err != nil {
		return nil, err
	}
	for _, id := range []struct{ name, value string }{{"threadId", in.ThreadID}, {"runId", in.RunID}} {
		if id.value == "" {
			continue
		}
		if err := event.CheckID(id.name, id.value); err != nil {
			return nil, bad(id.name, "%s", err)
		}
	}
	for i := range in.Messages {
		in.Messages[i].at = fmt.Sprintf("messages[%d]", i)
	}
	for i, r := range in.Resume {
		if r.InterruptID == "" || r.Status != "resolved" && r.Status != "cancelled" {
			return nil, bad(fmt.Sprintf("resume[%d]", i), "resume[%d] needs an interruptId, and the status resolved or cancelled", i)
		}
	}
	return in, nil
}

// unknown are the messages that the session does not hold, in runlog's form.
func (in *aguiInput) unknown(fold *event.Session) ([]inputMessage, error) {
	var list []inputMessage
	for _, m := range in.Messages {
		if m.ID != "" && fold.MessageByID(m.ID) != nil {
			continue
		}
		switch m.Role {
		case "activity", "reasoning": // the session has its own
			continue
		case "tool":
			if fold.Call(m.ToolCallID) == nil {
				content, err := m.content()
				if err != nil {
					return nil, err
				}
				if _, err := answerCall(m.at, list, pastResult{m.ToolCallID, orText(content.parts)}); err != nil {
					return nil, err
				}
			}
			continue
		}
		next, err := m.input()
		if err != nil {
			return nil, err
		}
		if len(next.Parts)+len(next.Calls) > 0 {
			list = append(list, next)
		}
	}
	if len(list) > maxMessages {
		return nil, bad("messages", "%d new messages, at most %d are taken at once", len(list), maxMessages)
	}
	return list, nil
}

func (m *aguiMessage) input() (inputMessage, error) {
	next, err := beginInput(m.at, m.Role, m.ID)
	if err != nil {
		return next, err
	}
	content, err := m.content()
	if err != nil {
		return next, err
	}
	next.Parts = content.parts
	if next.Role == event.RoleAssistant {
		next.Calls, err = readCalls(m.at, m.ToolCalls)
	}
	next.text = string(event.Encode(next.InputMessage))
	return next, err
}

// content is a text or parts.
func (m *aguiMessage) content() (content, error) {
	var list []aguiPart
	raw := bytes.TrimSpace(m.Content)
	if len(raw) == 0 || raw[0] != '[' {
		return readContent(m.at, map[string]json.RawMessage{"content": m.Content})
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return content{}, bad(m.at+".content", "%s.content is neither a text nor a list of parts", m.at)
	}
	var c content
	for i, p := range list {
		part, err := p.part(fmt.Sprintf("%s.content[%d]", m.at, i))
		if err != nil {
			return c, err
		}
		c.parts = append(c.parts, part)
	}
	return c, nil
}

// aguiPart is a part of a message: a text, or something that has a source; binary
// is how clients before 1.0 said it.
type aguiPart struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	URL      string `json:"url"`
	Data     string `json:"data"`
	MimeType string `json:"mimeType"`
	Filename string `json:"filename"`
	Source   struct {
		Type     string `json:"type"` // url | data | file
		Value    string `json:"value"`
		MimeType string `json:"mimeType"`
	} `json:"source"`
}

func (p aguiPart) part(at string) (event.Part, error) {
	out := event.Part{Type: event.PartFile, Name: p.Filename, MediaType: p.MimeType + p.Source.MimeType, URL: p.URL}
	switch p.Type {
	case "text":
		return event.TextPart(p.Text), nil
	case "image":
		out.Type = event.PartImage
	case "audio":
		out.Type = event.PartAudio
	case "video", "document", "binary":
	default:
		return out, bad(at+".type", "%s: a part of type %q cannot be sent; use text, image, audio, video or document", at, p.Type)
	}
	switch {
	case p.Source.Type == "url":
		out.URL = p.Source.Value
	case p.Source.Type == "data" || p.Data != "":
		out.URL = "data:"
	case p.Source.Type == "file":
		out.ArtifactID = p.Source.Value
	}
	return filePart(at, out)
}

// config is what a request says about its run: the client's tools, and which
// calls it wants to see.
func (in *aguiInput) config() (*event.RunConfig, error) {
	for i, t := range in.Tools {
		if t.Name == "" {
			return nil, bad(fmt.Sprintf("tools[%d].name", i), "tools[%d] has no name", i)
		}
	}
	emit, err := in.emit()
	if err != nil || emit == nil {
		return clientTools(in.Tools), err
	}
	return &event.RunConfig{ClientTools: in.Tools, Emit: emit}, nil
}

// emit reads which tool calls the client wants to see: forwardedProps has
// emit_tool_calls (or, as LangGraph's producers call it, copilotkit:emit-tool-calls),
// which is true, false, a name or names.
func (in *aguiInput) emit() (*event.Emit, error) {
	var props struct {
		Own        json.RawMessage `json:"emit_tool_calls"`
		CopilotKit json.RawMessage `json:"copilotkit:emit-tool-calls"`
	}
	if len(in.Props) == 0 || json.Unmarshal(in.Props, &props) != nil {
		return nil, nil // it may be anything
	}
	raw := props.Own
	if len(raw) == 0 {
		raw = props.CopilotKit
	}
	if len(raw) == 0 || string(raw) == "null" || string(raw) == "true" {
		return nil, nil
	}
	var name string
	var names []string
	switch {
	case string(raw) == "false":
		return &event.Emit{Tools: event.NoTools}, nil
	case json.Unmarshal(raw, &name) == nil:
		names = []string{name}
	case json.Unmarshal(raw, &names) != nil:
		return nil, bad("forwardedProps.emit_tool_calls", "emit_tool_calls is true, false, a tool's name, or a list of names")
	}
	return &event.Emit{Tools: event.SomeTools(names...)}, nil
}
