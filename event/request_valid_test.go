package event

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"testing"
	"unicode/utf8"
)

var (
	wireIDs   = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,40}$`)
	wireNames = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
	loneHalf  = regexp.MustCompile(`(?i)\\ud[89ab][0-9a-f]{2}`)
)

func strict(raw []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	return d.Decode(v)
}

type gotOpenAI struct {
	Role       string  `json:"role"`
	Content    *string `json:"content"`
	ToolCallID string  `json:"tool_call_id"`
	ToolCalls  []struct {
		ID, Type string
		Function struct{ Name, Arguments string }
	} `json:"tool_calls"`
}

// validOpenAI holds a messages array to the rules of chat completions, and to
// what the stricter servers of that protocol ask besides: one system message
// and that first, users and assistants in turn, the assistant not last.
func validOpenAI(body []byte) error {
	var list []gotOpenAI
	if err := strict(body, &list); err != nil {
		return err
	}
	if !utf8.Valid(body) {
		return errors.New("not UTF-8")
	}
	var open []string // calls that wait for their tool message
	seen, before := map[string]bool{}, ""
	for i, m := range list {
		if m.Role == "tool" {
			at := slices.Index(open, m.ToolCallID)
			if at < 0 || m.Content == nil || blank(*m.Content) {
				return fmt.Errorf("message %d: a tool message without its call or without text", i)
			}
			open = slices.Delete(open, at, at+1)
			before = "tool"
			continue
		}
		if len(open) > 0 {
			return fmt.Errorf("message %d: calls %q have no result", i, open)
		}
		if err := m.check(i, before); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
		for _, c := range m.ToolCalls {
			if seen[c.ID] || !wireIDs.MatchString(c.ID) || !wireNames.MatchString(c.Function.Name) || c.Type != "function" {
				return fmt.Errorf("message %d: bad call %+v", i, c)
			}
			if err := object(c.Function.Arguments); err != nil {
				return fmt.Errorf("message %d: %w", i, err)
			}
			seen[c.ID] = true
			open = append(open, c.ID)
		}
		before = m.Role
	}
	if len(open) > 0 || (before != "user" && before != "tool") {
		return fmt.Errorf("ends with %q, open calls %q", before, open)
	}
	return nil
}

func (m gotOpenAI) check(i int, before string) error {
	empty := m.Content == nil || blank(*m.Content)
	switch {
	case m.Role == "system" && (i > 0 || empty):
		return errors.New("system message empty or not first")
	case m.Role == "user" && (empty || before == "user"):
		return errors.New("user message empty or after another")
	case m.Role == "assistant" && before != "user" && before != "tool":
		return fmt.Errorf("assistant after %q", before)
	case m.Role == "assistant" && (m.Content != nil && empty || m.Content == nil && len(m.ToolCalls) == 0):
		return errors.New("assistant says nothing")
	case m.Role != "assistant" && m.ToolCalls != nil:
		return errors.New("calls of somebody else")
	case !slices.Contains([]string{"system", "user", "assistant"}, m.Role):
		return fmt.Errorf("role %q", m.Role)
	}
	return nil
}

// object holds arguments to be a JSON object without half characters.
func object(args string) error {
	var o map[string]any
	if err := json.Unmarshal([]byte(args), &o); err != nil || o == nil {
		return fmt.Errorf("arguments %q are no object", args)
	}
	plain := regexp.MustCompile(`(?i)\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}|\\\\`).ReplaceAllString(args, "")
	if loneHalf.MatchString(plain) {
		return fmt.Errorf("arguments %q hold half a character", args)
	}
	return nil
}

type gotBlock struct {
	Type, Text, Signature, Data, ID, Name string
	Thinking                              *string
	Input                                 json.RawMessage
	ToolUseID                             string `json:"tool_use_id"`
	Content                               string
	IsError                               bool `json:"is_error"`
}

// validAnthropic holds a messages array to the rules of the Messages API.
func validAnthropic(body []byte) error {
	var list []struct {
		Role    string
		Content []gotBlock
	}
	if err := strict(body, &list); err != nil {
		return err
	}
	var open []string
	seen := map[string]bool{}
	for i, m := range list {
		if want := []string{"user", "assistant"}[i%2]; m.Role != want || len(m.Content) == 0 {
			return fmt.Errorf("message %d: role %q with %d blocks, want %q", i, m.Role, len(m.Content), want)
		}
		results := true
		for j, b := range m.Content {
			results = results && b.Type == "tool_result"
			if b.Type == "tool_result" {
				at := slices.Index(open, b.ToolUseID)
				if at < 0 || !results || m.Role != "user" || blank(b.Content) {
					return fmt.Errorf("message %d: result %+v out of place or empty", i, b)
				}
				open = slices.Delete(open, at, at+1)
				continue
			}
			if err := b.check(m.Role, j == len(m.Content)-1); err != nil {
				return fmt.Errorf("message %d block %d: %w", i, j, err)
			}
			if b.Type == "tool_use" {
				if seen[b.ID] {
					return fmt.Errorf("message %d: id %q twice", i, b.ID)
				}
				seen[b.ID] = true
				open = append(open, b.ID)
			}
		}
		if m.Role == "user" && len(open) > 0 {
			return fmt.Errorf("message %d: calls %q have no result", i, open)
		}
	}
	if len(list)%2 == 0 {
		return errors.New("does not end with the user")
	}
	return nil
}

func (b gotBlock) check(role string, last bool) error {
	switch {
	case b.Type == "text" && !blank(b.Text):
		return nil
	case role != "assistant":
	case b.Type == "thinking" && b.Signature != "" && b.Thinking != nil && !last:
		return nil
	case b.Type == "redacted_thinking" && b.Data != "" && !last:
		return nil
	case b.Type == "tool_use" && wireIDs.MatchString(b.ID) && wireNames.MatchString(b.Name):
		return object(string(b.Input))
	}
	return fmt.Errorf("%s in a message of %s: %+v", b.Type, role, b)
}

// The validators must be able to say no.
func TestValidatorsRefuse(t *testing.T) {
	for _, bad := range []string{
		`[]`, `[{"role":"user","content":" "}]`, `[{"role":"user","content":"a"},{"role":"user","content":"b"}]`,
		`[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]`,
		`[{"role":"user","content":"a"},{"role":"tool","content":"b","tool_call_id":"c"}]`,
		`[{"role":"user","content":"a"},{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"n","arguments":"{}"}}]},{"role":"user","content":"x"}]`,
		`[{"role":"user","content":"a"},{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"n","arguments":"{"}}]},{"role":"tool","tool_call_id":"c","content":"x"}]`,
	} {
		if validOpenAI([]byte(bad)) == nil {
			t.Errorf("openai takes %s", bad)
		}
	}
	text := `{"type":"text","text":"a"}`
	use := `{"type":"tool_use","id":"c","name":"n","input":{}}`
	for _, bad := range []string{
		`[]`, `[{"role":"assistant","content":[` + text + `]}]`, `[{"role":"user","content":[]}]`,
		`[{"role":"user","content":[` + text + `]},{"role":"assistant","content":[` + text + `]}]`,
		`[{"role":"user","content":[` + text + `]},{"role":"assistant","content":[` + use + `]},{"role":"user","content":[` + text + `]}]`,
		`[{"role":"user","content":[` + text + `]},{"role":"assistant","content":[` + use + `]},{"role":"user","content":[` + text + `,{"type":"tool_result","tool_use_id":"c","content":"x"}]}]`,
		`[{"role":"user","content":[` + text + `]},{"role":"assistant","content":[{"type":"thinking","thinking":"","signature":"s"}]},{"role":"user","content":[` + text + `]}]`,
		`[{"role":"user","content":[` + text + `]},{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"n","input":{"x":"\ud83d"}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":"x"}]}]`,
	} {
		if validAnthropic([]byte(bad)) == nil {
			t.Errorf("anthropic takes %s", bad)
		}
	}
}
