package refusal

import (
	"encoding/json"
	"errors"
	"fmt"
)

type message struct {
	Role    string
	Content []block
}

type block struct {
	Type, Text, Signature, Data, ID, Name string
	Thinking                              *string
	Input                                 json.RawMessage
	ToolUseID                             string `json:"tool_use_id"`
	Content                               string
	IsError                               bool `json:"is_error"`
}

// Messages says what a server of the Messages API refuses of a messages array, or
// nil.
func Messages(messages []byte) error {
	all, err := list[message](messages)
	if err != nil {
		return err
	}
	calls := newCalls()
	for i, m := range all {
		if want := []string{"user", "assistant"}[i%2]; m.Role != want || len(m.Content) == 0 {
			return fmt.Errorf("message %d: role %q with %d blocks, want %q", i, m.Role, len(m.Content), want)
		}
		if err := m.check(calls); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
	}
	if len(all)%2 == 0 {
		return errors.New("it does not end with the user")
	}
	return nil
}

// check holds the blocks of a message to their kinds and to the calls before them.
func (m message) check(calls *calls) error {
	results := m.Role == "user" // up to here there is nothing else
	for i, b := range m.Content {
		results = results && b.Type == "tool_result"
		if err := b.check(m.Role, results, i == len(m.Content)-1, calls); err != nil {
			return fmt.Errorf("block %d: %w", i, err)
		}
	}
	if m.Role == "user" {
		return calls.closed()
	}
	return nil
}

func (b block) check(role string, results, last bool, calls *calls) error {
	switch {
	case b.Type == "tool_result" && results:
		return calls.end(b.ToolUseID, b.Content)
	case b.Type == "text" && !blank(b.Text):
		return nil
	case role != "assistant":
	case b.Type == "thinking" && b.Signature != "" && b.Thinking != nil && !last:
		return nil
	case b.Type == "redacted_thinking" && b.Data != "" && !last:
		return nil
	case b.Type == "tool_use":
		return calls.begin(b.ID, b.Name, string(b.Input))
	}
	return fmt.Errorf("%s in a message of the %s: %+v", b.Type, role, b)
}
