package edge

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/runlog-dev/runlog/event"
)

// readContent reads content (a text or parts) or parts.
func readContent(at string, fields map[string]json.RawMessage) (content, error) {
	name, raw := "content", fields["content"]
	if p, ok := fields["parts"]; ok && len(raw) == 0 {
		name, raw = "parts", p
	}
	if len(raw) == 0 || string(raw) == "null" {
		return content{}, nil
	}
	var s string
	if json.Unmarshal(raw, &s) == nil {
		if s == "" {
			return content{}, nil
		}
		return content{parts: []event.Part{event.TextPart(s)}}, nil
	}
	var list []map[string]json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return content{}, bad(at+"."+name, "%s.%s is neither a text nor a list of parts", at, name)
	}
	return readParts(at+"."+name, list)
}

// A content is what a message holds: parts, and in Anthropic's form tool calls
// and results among them.
type content struct {
	parts   []event.Part
	calls   []event.PastCall
	results []pastResult
}

func readParts(at string, list []map[string]json.RawMessage) (c content, err error) {
	for i, fields := range list {
		if err := c.read(fmt.Sprintf("%s[%d]", at, i), fields); err != nil {
			return c, err
		}
	}
	return c, nil
}

// read adds one part, in runlog's form, OpenAI's or Anthropic's.
func (c *content) read(at string, fields map[string]json.RawMessage) error {
	var kind string
	if err := text(at, fields, "type", &kind); err != nil {
		return err
	}
	switch kind {
	case "text", "input_text", "output_text":
		var p struct {
			Type        string          `json:"type"`
			Text        string          `json:"text"`
			Annotations json.RawMessage `json:"annotations"`
		}
		err := strictPart(at, fields, &p)
		c.parts = append(c.parts, event.TextPart(p.Text))
		return err
	case "file", "image", "audio":
		return c.add(readFile(at, kind, fields))
	case "image_url":
		return c.add(readImageURL(at, fields))
	case "tool_use":
		return c.toolUse(at, fields)
	case "tool_result":
		return c.toolResult(at, fields)
	case "thinking", "redacted_thinking": // the session has its own
		return nil
	}
	return bad(at+".type", "%s: a part of type %q cannot be sent; use text, image, audio or file", at, kind)
}

func (c *content) add(p event.Part, err error) error {
	c.parts = append(c.parts, p)
	return err
}

func (c *content) toolUse(at string, fields map[string]json.RawMessage) error {
	var p struct {
		Type  string          `json:"type"`
		ID    string          `json:"id"`
		Name  string          `json:"name"`
		Input json.RawMessage `json:"input"`
	}
	if err := strictPart(at, fields, &p); err != nil {
		return err
	}
	if p.ID == "" || p.Name == "" {
		return bad(at, "%s: a tool_use needs id and name", at)
	}
	c.calls = append(c.calls, event.PastCall{CallID: p.ID, Name: p.Name, Args: string(p.Input)})
	return nil
}

func (c *content) toolResult(at string, fields map[string]json.RawMessage) error {
	var p struct {
		Type      string          `json:"type"`
		ToolUseID string          `json:"tool_use_id"`
		Content   json.RawMessage `json:"content"`
		IsError   bool            `json:"is_error"`
	}
	if err := strictPart(at, fields, &p); err != nil {
		return err
	}
	if p.ToolUseID == "" {
		return bad(at, "%s: a tool_result needs tool_use_id", at)
	}
	inner, err := readContent(at, map[string]json.RawMessage{"content": p.Content})
	c.results = append(c.results, pastResult{p.ToolUseID, orText(inner.parts)})
	return err
}

func readImageURL(at string, fields map[string]json.RawMessage) (event.Part, error) {
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

// filePart checks a part that names a file, by its artifact or by its URL.
func filePart(at string, p event.Part) (event.Part, error) {
	switch {
	case strings.HasPrefix(p.URL, "data:"):
		return p, unsupported(at, "%s: data in the request is not built yet; send it to /v1/artifacts and name its artifact_id", at)
	case (p.ArtifactID == "") == (p.URL == ""):
		return p, bad(at, "%s needs either artifact_id or url", at)
	case p.ArtifactID != "":
		p.URL = event.ArtifactPath + p.ArtifactID
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
