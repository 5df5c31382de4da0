package modeltest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
)

// asked is what the server needs to know of a request.
type asked struct {
	turn int // assistant's messages since the user's last words
	body map[string]json.RawMessage
}

// check refuses what the real servers refuse.
func check(p Protocol, h http.Header, body []byte) (asked, error) {
	var a asked
	if err := json.Unmarshal(body, &a.body); err != nil {
		return a, fmt.Errorf("the body is not JSON: %w", err)
	}
	if string(a.body["stream"]) != "true" {
		return a, errors.New("this server only streams: set stream")
	}
	if len(a.body["model"]) < 3 {
		return a, errors.New("model is missing")
	}
	if p == Anthropic {
		if h.Get("Anthropic-Version") == "" || len(a.body["max_tokens"]) == 0 {
			return a, errors.New("anthropic-version or max_tokens is missing")
		}
		return a, a.checkMessages()
	}
	return a, a.checkChat()
}

// refused says why a server with the step's quirks does not take the request.
func (a asked) refused(s *Step) string {
	switch {
	case s.has(NoStreamOption) && a.body["stream_options"] != nil:
		return "Unrecognized request argument supplied: stream_options"
	case s.has(WantsNewLimit) && a.body["max_tokens"] != nil:
		return "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
	}
	return ""
}

// checkChat holds tool messages to their calls.
func (a *asked) checkChat() error {
	var messages []struct {
		Role       string
		ToolCallID string `json:"tool_call_id"`
		ToolCalls  []struct {
			ID       string
			Function struct{ Arguments string }
		} `json:"tool_calls"`
	}
	if err := json.Unmarshal(a.body["messages"], &messages); err != nil {
		return fmt.Errorf("messages: %w", err)
	}
	if len(messages) == 0 {
		return errors.New("messages is empty")
	}
	var open []string
	for i, m := range messages {
		switch {
		case m.Role == "tool" && !slices.Contains(open, m.ToolCallID):
			return fmt.Errorf("messages[%d]: no call %q for this tool message", i, m.ToolCallID)
		case m.Role == "tool":
			open = slices.DeleteFunc(open, func(id string) bool { return id == m.ToolCallID })
			continue
		case len(open) > 0:
			return fmt.Errorf("messages[%d]: calls %q have no tool message", i, open)
		case m.Role == "user":
			a.turn = 0
		case m.Role == "assistant":
			a.turn++
		}
		for _, c := range m.ToolCalls {
			if !json.Valid([]byte(c.Function.Arguments)) {
				return fmt.Errorf("messages[%d]: arguments of %q are not JSON", i, c.ID)
			}
			open = append(open, c.ID)
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("calls %q have no tool message", open)
	}
	return nil
}

// checkMessages holds roles to their turns and results to their calls.
func (a *asked) checkMessages() error {
	var messages []struct {
		Role    string
		Content []struct {
			Type, Text, ID, Signature string
			ToolUseID                 string `json:"tool_use_id"`
			Input                     json.RawMessage
		}
	}
	if err := json.Unmarshal(a.body["messages"], &messages); err != nil {
		return fmt.Errorf("messages: %w", err)
	}
	if len(messages) == 0 {
		return errors.New("messages is empty")
	}
	var open []string
	for i, m := range messages {
		if want := []string{"user", "assistant"}[i%2]; m.Role != want || len(m.Content) == 0 {
			return fmt.Errorf("messages[%d]: role %q with %d blocks, want %q", i, m.Role, len(m.Content), want)
		}
		if m.Role == "assistant" {
			a.turn++
		}
		for j, b := range m.Content {
			switch {
			case b.Type == "text" && len(bytes.TrimSpace([]byte(b.Text))) == 0:
				return fmt.Errorf("messages[%d].content[%d]: text must not be empty", i, j)
			case b.Type == "text" && m.Role == "user":
				a.turn = 0
			case b.Type == "thinking" && b.Signature == "":
				return fmt.Errorf("messages[%d].content[%d]: signature is missing", i, j)
			case b.Type == "tool_use":
				if len(b.Input) == 0 || b.Input[0] != '{' {
					return fmt.Errorf("messages[%d].content[%d]: input is not an object", i, j)
				}
				open = append(open, b.ID)
			case b.Type == "tool_result":
				if !slices.Contains(open, b.ToolUseID) {
					return fmt.Errorf("messages[%d].content[%d]: no call %q", i, j, b.ToolUseID)
				}
				open = slices.DeleteFunc(open, func(id string) bool { return id == b.ToolUseID })
			}
		}
		if m.Role == "user" && len(open) > 0 {
			return fmt.Errorf("messages[%d]: calls %q have no tool_result", i, open)
		}
	}
	if len(open) > 0 {
		return fmt.Errorf("calls %q have no tool_result", open)
	}
	return nil
}
