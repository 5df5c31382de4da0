package edge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/runlog-dev/runlog/event"
)

// An inputMessage is a message of a request; its id may still be missing.
type inputMessage struct {
	event.InputMessage
	text string // what identifies it: its content, encoded
}

// maxMessages bounds the messages of one request.
const maxMessages = 2000

// readInput reads the three forms of input: a text, the parts of one message of
// the user's, or messages, in runlog's or in OpenAI's form.
func readInput(raw json.RawMessage) ([]inputMessage, error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		return nil, bad("input", "input is missing: a text, a list of parts, or a list of messages")
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		if text == "" {
			return nil, bad("input", "input is empty")
		}
		return []inputMessage{userMessage(event.TextPart(text))}, nil
	}
	var list []map[string]json.RawMessage
	if json.Unmarshal(raw, &list) != nil || len(list) == 0 || len(list) > maxMessages {
		return nil, bad("input", "input is a text, or a list of 1 to %d parts or messages (objects)", maxMessages)
	}
	if _, ok := list[0]["role"]; ok {
		return readMessages("input", list)
	}
	parts, err := readParts("input", list)
	if err != nil {
		return nil, err
	}
	return []inputMessage{userMessage(parts...)}, nil
}

func userMessage(parts ...event.Part) inputMessage {
	return inputMessage{event.InputMessage{Role: event.RoleUser, Parts: parts}, string(event.Encode(parts))}
}

// readMessages reads a conversation. Results of tools (role tool) join the calls
// that they answer.
func readMessages(param string, list []map[string]json.RawMessage) ([]inputMessage, error) {
	var all []inputMessage
	for i, fields := range list {
		at := fmt.Sprintf("%s[%d]", param, i)
		m, callID, err := readMessage(at, fields)
		if err != nil {
			return nil, err
		}
		if callID == "" {
			all = append(all, m)
			continue
		}
		if !answerCall(all, callID, m.Parts) {
			return nil, bad(at+".tool_call_id", "%s answers the tool call %q, which no earlier message makes", at, callID)
		}
	}
	for i := range all {
		m := &all[i]
		m.text = string(event.Encode(m.InputMessage))
		if m.Role != event.RoleAssistant {
			m.text = string(event.Encode(m.Parts))
		}
	}
	return all, nil
}

func answerCall(all []inputMessage, callID string, content []event.Part) bool {
	for i := len(all) - 1; i >= 0; i-- {
		for j := range all[i].Calls {
			if c := &all[i].Calls[j]; c.CallID == callID && c.Content == nil {
				c.Content = content
				return true
			}
		}
	}
	return false
}

// passed are members that vendors' SDKs add to messages and that say nothing to
// a model.
var passed = []string{"name", "refusal", "annotations", "audio", "function_call", "reasoning_content", "reasoning", "status", "type"}

// readMessage reads one message; callID is set if it is a tool's result.
func readMessage(at string, fields map[string]json.RawMessage) (m inputMessage, callID string, err error) {
	var role string
	for _, f := range []struct {
		name string
		into *string
	}{{"role", &role}, {"message_id", &m.MessageID}, {"tool_call_id", &callID}} {
		if err := text(at, fields, f.name, f.into); err != nil {
			return m, "", err
		}
	}
	if err := text(at, fields, "id", &m.MessageID); err != nil {
		return m, "", err
	}
	if m.MessageID != "" {
		if err := event.CheckID("message id", m.MessageID); err != nil {
			return m, "", bad(at, "%s: %s", at, err)
		}
	}
	if m.Role, err = readRole(at, role); err != nil {
		return m, "", err
	}
	if (role == "tool") != (callID != "") {
		return m, "", bad(at+".tool_call_id", "%s: role tool and tool_call_id go together", at)
	}
	if m.Parts, err = readContent(at, fields); err != nil {
		return m, "", err
	}
	if m.Calls, err = readCalls(at, fields["tool_calls"]); err != nil {
		return m, "", err
	}
	switch {
	case len(m.Calls) > 0 && m.Role != event.RoleAssistant:
		return m, "", bad(at+".tool_calls", "%s: only an assistant's message makes tool calls", at)
	case role == "tool" && m.Parts == nil:
		m.Parts = []event.Part{event.TextPart("")}
	case len(m.Parts) == 0 && len(m.Calls) == 0:
		return m, "", bad(at+".content", "%s is empty", at)
	}
	return m, callID, unknownMember(at, fields)
}

func unknownMember(at string, fields map[string]json.RawMessage) error {
	known := append([]string{"role", "id", "message_id", "content", "parts", "tool_calls", "tool_call_id"}, passed...)
	for name, value := range fields {
		if !slices.Contains(known, name) && string(value) != "null" {
			return bad(at+"."+name, "%s: unknown field %q", at, name)
		}
	}
	return nil
}

// text reads a member that is a string if it is there.
func text(at string, fields map[string]json.RawMessage, name string, into *string) error {
	raw, ok := fields[name]
	if !ok || string(raw) == "null" {
		return nil
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return bad(at+"."+name, "%s.%s is not a string", at, name)
	}
	return nil
}

func readRole(at, role string) (event.Role, error) {
	switch role {
	case "user", "tool": // a result joins its call, whoever says it
		return event.RoleUser, nil
	case "assistant":
		return event.RoleAssistant, nil
	case "system", "developer":
		return event.RoleSystem, nil
	}
	return "", bad(at+".role", "%s: role %q is not known; use user, assistant, system or tool", at, role)
}

// readContent reads content (a text or parts) or parts.
func readContent(at string, fields map[string]json.RawMessage) ([]event.Part, error) {
	name, raw := "content", fields["content"]
	if p, ok := fields["parts"]; ok && len(raw) == 0 {
		name, raw = "parts", p
	}
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	var s string
	if json.Unmarshal(raw, &s) == nil {
		if s == "" {
			return nil, nil
		}
		return []event.Part{event.TextPart(s)}, nil
	}
	var list []map[string]json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return nil, bad(at+"."+name, "%s.%s is neither a text nor a list of parts", at, name)
	}
	return readParts(at+"."+name, list)
}

func readParts(at string, list []map[string]json.RawMessage) ([]event.Part, error) {
	parts := make([]event.Part, len(list))
	for i, fields := range list {
		var err error
		if parts[i], err = readPart(fmt.Sprintf("%s[%d]", at, i), fields); err != nil {
			return nil, err
		}
	}
	return parts, nil
}

// readPart reads a part of runlog's form, or OpenAI's image_url.
func readPart(at string, fields map[string]json.RawMessage) (event.Part, error) {
	var kind string
	if err := text(at, fields, "type", &kind); err != nil {
		return event.Part{}, err
	}
	switch kind {
	case "text", "input_text", "output_text":
		var p struct {
			Type        string          `json:"type"`
			Text        string          `json:"text"`
			Annotations json.RawMessage `json:"annotations"`
		}
		err := strictPart(at, fields, &p)
		return event.TextPart(p.Text), err
	case "file", "image", "audio":
		return readFile(at, kind, fields)
	case "image_url":
		var p struct {
			Type     string `json:"type"`
			ImageURL struct {
				URL    string `json:"url"`
				Detail string `json:"detail"`
			} `json:"image_url"`
		}
		if err := strictPart(at, fields, &p); err != nil {
			return event.Part{}, err
		}
		return filePart(at, event.Part{Type: event.PartImage, URL: p.ImageURL.URL})
	}
	return event.Part{}, bad(at+".type", "%s: a part of type %q cannot be sent; use text, image, audio or file", at, kind)
}

func readFile(at, kind string, fields map[string]json.RawMessage) (event.Part, error) {
	var p struct {
		Type       string `json:"type"`
		ArtifactID string `json:"artifact_id"`
		URL        string `json:"url"`
		Name       string `json:"name"`
		MediaType  string `json:"media_type"`
		Bytes      int64  `json:"bytes"`
	}
	if err := strictPart(at, fields, &p); err != nil {
		return event.Part{}, err
	}
	return filePart(at, event.Part{Type: event.PartType(kind), ArtifactID: p.ArtifactID, URL: p.URL, Name: p.Name, MediaType: p.MediaType, Bytes: p.Bytes})
}

func filePart(at string, p event.Part) (event.Part, error) {
	switch {
	case strings.HasPrefix(p.URL, "data:"):
		return p, unsupported(at, "%s: data in the request is not built yet; send it to /v1/artifacts and name its artifact_id", at)
	case (p.ArtifactID == "") == (p.URL == ""):
		return p, bad(at, "%s needs either artifact_id or url", at)
	case p.ArtifactID != "":
		p.URL = "/artifacts/" + p.ArtifactID
	case !strings.HasPrefix(p.URL, "https://") && !strings.HasPrefix(p.URL, "http://"):
		return p, bad(at+".url", "%s: the url is neither http nor https", at)
	}
	return p, nil
}

// strictPart decodes a part whose every member must be known.
func strictPart(at string, fields map[string]json.RawMessage, v any) error {
	err := decode(event.Encode(fields), v)
	if p, ok := err.(*Problem); ok { //nolint:errorlint // decode returns nothing else
		_, what, _ := strings.Cut(p.Detail, ": ")
		p.Detail, p.Param = at+": "+what, strings.TrimSuffix(at+"."+p.Param, ".")
	}
	return err
}

// readCalls reads an assistant's earlier tool calls.
func readCalls(at string, raw json.RawMessage) ([]event.PastCall, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	var list []struct {
		ID       string `json:"id"`
		Type     string `json:"type"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, bad(at+".tool_calls", "%s.tool_calls is not a list of {id, type: function, function: {name, arguments}}", at)
	}
	var calls []event.PastCall
	for _, c := range list {
		if c.ID == "" || c.Function.Name == "" {
			return nil, bad(at+".tool_calls", "%s.tool_calls: each call needs id and function.name", at)
		}
		calls = append(calls, event.PastCall{CallID: c.ID, Name: c.Function.Name, Args: c.Function.Arguments})
	}
	return calls, nil
}
