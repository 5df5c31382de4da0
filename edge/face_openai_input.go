package edge

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/runlog-dev/runlog/edge/dialect/openai"
	"github.com/runlog-dev/runlog/event"
)

// responsesInput is the body of POST /v1/responses. What only a model understands
// (temperature and the like) is the agent's business, and passed over.
type responsesInput struct {
	Model        string          `json:"model"` // the agent
	Input        json.RawMessage `json:"input"`
	Instructions string          `json:"instructions"`
	Stream       bool            `json:"stream"`
	Background   bool            `json:"background"`
	Previous     string          `json:"previous_response_id"`
	Conversation json.RawMessage `json:"conversation"` // an id, or {id}
	Tools        []struct {
		Type string `json:"type"`
		event.ClientTool
	} `json:"tools"`

	items []responseItem
}

// responseItem is one of input: a message, or what belongs to a call.
type responseItem struct {
	Type       string          `json:"type"`
	Role       string          `json:"role"`
	ID         string          `json:"id"`
	Content    json.RawMessage `json:"content"`
	CallID     string          `json:"call_id"`
	Name       string          `json:"name"`
	Args       string          `json:"arguments"`
	Output     json.RawMessage `json:"output"`
	ApprovalID string          `json:"approval_request_id"`
	Approve    *bool           `json:"approve"`
	Reason     string          `json:"reason"`
}

func readResponses(body []byte) (*responsesInput, error) {
	in := &responsesInput{}
	if err := decodeOpen(body, in); err != nil {
		return nil, err
	}
	raw := bytes.TrimSpace(in.Input)
	var text string
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return nil, bad("input", "input is missing: a text, or a list of items")
	case json.Unmarshal(raw, &text) == nil:
		in.items = []responseItem{{Role: "user", Content: raw}}
	case json.Unmarshal(raw, &in.items) != nil || len(in.items) == 0 || len(in.items) > maxMessages:
		return nil, bad("input", "input is a text, or a list of 1 to %d items", maxMessages)
	}
	return in, nil
}

func (in *responsesInput) conversation() string {
	var id string
	var object struct {
		ID string `json:"id"`
	}
	if json.Unmarshal(in.Conversation, &id) == nil {
		return id
	}
	_ = json.Unmarshal(in.Conversation, &object) // absent, or no id
	return object.ID
}

// functions are the client's tools; others are the agent's business.
func (in *responsesInput) functions() (list []event.ClientTool) {
	for _, t := range in.Tools {
		if t.Type == "function" {
			list = append(list, t.ClientTool)
		}
	}
	return list
}

// answersOnly reports that a request brings what a run waits for, and nothing
// that anybody says.
func (in *responsesInput) answersOnly() bool {
	answers := false
	for _, i := range in.items {
		switch i.Type {
		case "function_call_output", "mcp_approval_response":
			answers = true
		case "", "message":
			return false
		}
	}
	return answers
}

// answers are commands for all that the run waits for.
func (in *responsesInput) answers(fold *event.Session) ([]event.Command, error) {
	run := fold.Parked()
	if run == nil {
		return nil, nothingWaits("conversation")
	}
	var list []event.Command
	given := map[string]bool{}
	for n, i := range in.items {
		t := fold.Call(i.CallID)
		if i.Type == "mcp_approval_response" {
			t = fold.Call(strings.TrimPrefix(i.ApprovalID, openai.ApprovalPrefix))
		}
		if t == nil || t.RunID != run.RunID || !t.Waits() || given[t.CallID] {
			continue
		}
		at := fmt.Sprintf("input[%d]", n)
		switch {
		case i.Type == "mcp_approval_response" && i.Approve != nil && t.Status == event.WaitingApproval:
			list = append(list, decision(t, *i.Approve, i.Reason))
		case i.Type == "function_call_output" && t.Executor == event.ByClient:
			content, err := readContent(at, map[string]json.RawMessage{"content": i.Output})
			if err != nil {
				return nil, err
			}
			list = append(list, resultOf(t.CallID, orText(content.parts), nil, false))
		default:
			continue
		}
		given[t.CallID] = true
	}
	return list, unanswered(fold, run, given)
}

// responseMessages are the messages that the session does not hold. A call and
// its output are taken from a conversation that began elsewhere.
func (s *Server) responseMessages(ctx context.Context, c *call, in *responsesInput, fold *event.Session) ([]inputMessage, error) {
	var list []inputMessage
	if in.Instructions != "" {
		m := inputMessage{event.InputMessage{Role: event.RoleSystem, Parts: []event.Part{event.TextPart(in.Instructions)}}, in.Instructions}
		m.MessageID = derivedID("msg", "instructions", in.Instructions)
		list = append(list, m)
	}
	said := false
	for n, i := range in.items {
		at := fmt.Sprintf("input[%d]", n)
		switch i.Type {
		case "", "message":
			m, err := s.responseMessage(ctx, c, at, i)
			if err != nil {
				return nil, err
			}
			said = true
			list = append(list, m)
		case "function_call":
			if fold.Call(i.CallID) == nil && i.CallID != "" && i.Name != "" {
				list = append(list, inputMessage{InputMessage: event.InputMessage{Role: event.RoleAssistant, Calls: []event.PastCall{{CallID: i.CallID, Name: i.Name, Args: i.Args}}}, text: i.CallID})
			}
		case "function_call_output":
			content, err := readContent(at, map[string]json.RawMessage{"content": i.Output})
			if err != nil {
				return nil, err
			}
			made, err := answerCall(at, list, pastResult{i.CallID, orText(content.parts)})
			if err != nil {
				return nil, err
			}
			said = said || made
		case "reasoning", "item_reference", "mcp_call", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response":
			// the session has its own
		default:
			return nil, unsupported(at+".type", "%s: an item of type %q cannot be sent; use message, function_call_output or mcp_approval_response", at, i.Type)
		}
	}
	if !said {
		return nil, bad("input", "input says nothing: send a message, or answers with previous_response_id")
	}
	return list, nil
}

func (s *Server) responseMessage(ctx context.Context, c *call, at string, i responseItem) (inputMessage, error) {
	var m inputMessage
	var err error
	if m.Role, err = readRole(at, i.Role); err != nil {
		return m, err
	}
	if i.ID != "" && m.Role == event.RoleAssistant && event.CheckID("id", i.ID) == nil {
		m.MessageID = i.ID // ours, if it comes back
	}
	if m.Parts, err = s.openaiContent(ctx, c, at, i.Content); err != nil {
		return m, err
	}
	if len(m.Parts) == 0 {
		return m, bad(at+".content", "%s is empty", at)
	}
	m.text = string(event.Encode(m.Parts))
	return m, nil
}

// openaiPart is a part of a message, as either of the APIs has it.
type openaiPart struct {
	Type     string          `json:"type"`
	Text     string          `json:"text"`
	Refusal  string          `json:"refusal"`
	ImageURL json.RawMessage `json:"image_url"` // a URL, or {url}
	FileURL  string          `json:"file_url"`
	FileData string          `json:"file_data"`
	FileID   string          `json:"file_id"`
	Filename string          `json:"filename"`
	File     *struct {
		FileData string `json:"file_data"`
		FileID   string `json:"file_id"`
		Filename string `json:"filename"`
	} `json:"file"`
}

// openaiContent reads a text, or parts.
func (s *Server) openaiContent(ctx context.Context, c *call, at string, raw json.RawMessage) ([]event.Part, error) {
	var text string
	var list []openaiPart
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return nil, nil
	case json.Unmarshal(raw, &text) == nil:
		if text == "" {
			return nil, nil
		}
		return []event.Part{event.TextPart(text)}, nil
	case json.Unmarshal(raw, &list) != nil:
		return nil, bad(at+".content", "%s.content is neither a text nor a list of parts", at)
	}
	var parts []event.Part
	for n, p := range list {
		part, err := s.openaiPart(ctx, c, fmt.Sprintf("%s.content[%d]", at, n), p)
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
	}
	return parts, nil
}

func (s *Server) openaiPart(ctx context.Context, c *call, at string, p openaiPart) (event.Part, error) {
	switch p.Type {
	case "text", "input_text", "output_text", "refusal":
		return event.TextPart(p.Text + p.Refusal), nil
	case "input_image", "image_url":
		var ref string
		var object struct {
			URL string `json:"url"`
		}
		if json.Unmarshal(p.ImageURL, &ref) != nil {
			_ = json.Unmarshal(p.ImageURL, &object) // refused below if it is neither
			ref = object.URL
		}
		if p.FileID != "" {
			ref = event.ArtifactPath + p.FileID
		}
		part, err := s.inlineFile(ctx, c, at, ref, "", "")
		part.Type = event.PartImage
		return part, err
	case "input_file", "file":
		if p.File != nil {
			p.FileData, p.FileID, p.Filename = p.File.FileData, p.File.FileID, p.File.Filename
		}
		ref := p.FileURL + p.FileData
		if p.FileID != "" {
			ref = event.ArtifactPath + p.FileID
		}
		return s.inlineFile(ctx, c, at, ref, "", p.Filename)
	}
	return event.Part{}, unsupported(at+".type", "%s: a part of type %q cannot be sent; use text, an image or a file", at, p.Type)
}
