package refusal

import (
	"errors"
	"fmt"
)

type chatMessage struct {
	Role       string
	Content    *string
	Reasoning  string     `json:"reasoning_content"`
	ToolCallID string     `json:"tool_call_id"`
	ToolCalls  []chatCall `json:"tool_calls"`
}

type chatCall struct {
	ID, Type string
	Function struct{ Name, Arguments string }
}

// Chat says what a server of chat completions refuses of a messages array, or
// nil.
func Chat(messages []byte) error {
	all, err := list[chatMessage](messages)
	if err != nil {
		return err
	}
	calls, before := newCalls(), ""
	for i, m := range all {
		if err := m.check(i, before, calls); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
		before = m.Role
	}
	if before != "user" && before != "tool" {
		return fmt.Errorf("it ends with %q", before)
	}
	return calls.closed()
}

func (m chatMessage) check(i int, before string, calls *calls) error {
	if m.Role == "tool" {
		return calls.end(m.ToolCallID, m.text())
	}
	if err := errors.Join(calls.closed(), m.turn(i, before)); err != nil {
		return err
	}
	for _, c := range m.ToolCalls {
		if c.Type != "function" {
			return fmt.Errorf("call %q is of type %q", c.ID, c.Type)
		}
		if err := calls.begin(c.ID, c.Function.Name, c.Function.Arguments); err != nil {
			return err
		}
	}
	return nil
}

func (m chatMessage) text() string {
	if m.Content == nil {
		return ""
	}
	return *m.Content
}

func (m chatMessage) turn(i int, before string) error {
	empty := blank(m.text())
	switch {
	case m.Role != "system" && m.Role != "user" && m.Role != "assistant":
		return fmt.Errorf("the role %q", m.Role)
	case m.Role != "assistant" && m.ToolCalls != nil:
		return errors.New("calls of somebody else than the assistant")
	case m.Role != "assistant" && empty:
		return fmt.Errorf("a %s message without text", m.Role)
	case m.Role == "system" && i > 0:
		return errors.New("a system message that is not first")
	case m.Role == "user" && before == "user", m.Role == "assistant" && before != "user" && before != "tool":
		return fmt.Errorf("a message of the %s after %q", m.Role, before)
	case m.Role == "assistant" && (m.Content != nil && empty || m.Content == nil && m.ToolCalls == nil && m.Reasoning == ""):
		return errors.New("an assistant who says nothing")
	}
	return nil
}
