package audit

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"unicode/utf8"

	"github.com/runlog-dev/runlog/event"
)

// sample builds a request for a model of what was read so far, for a sample of
// prefixes: each of the first 63, then 32 from every doubling of the log.
func (c *Checker) sample(e event.Event) {
	if c.broken || c.request == nil || !sampled(e.Seq) {
		return
	}
	c.samples++
	if err := c.request(c.fold); err != nil {
		c.wrong(RequestValid, "the log up to here gives no valid request: %v", err)
	}
}

// requests builds the requests that continue a session, of both kinds.
func requests(s *event.Session) error {
	if err := openAI(s.OpenAIMessages("You are.")); err != nil {
		return fmt.Errorf("chat completions: %w", err)
	}
	_, messages := s.AnthropicMessages("You are.")
	if err := anthropic(messages); err != nil {
		return fmt.Errorf("messages: %w", err)
	}
	return nil
}

func sampled(seq event.Seq) bool {
	octave := bits.Len64(uint64(seq)) // seq < 1<<octave
	return octave <= 6 || seq&(1<<(octave-6)-1) == 0
}

// openAI says what a server of chat completions would refuse.
func openAI(raw json.RawMessage) error {
	var list []struct {
		Role       string  `json:"role"`
		Content    *string `json:"content"`
		ToolCallID string  `json:"tool_call_id"`
		ToolCalls  []struct {
			ID       string `json:"id"`
			Function struct {
				Name, Arguments string
			} `json:"function"`
		} `json:"tool_calls"`
	}
	if err := decodeUTF8(raw, &list); err != nil {
		return err
	}
	t := talk{}
	for i, m := range list {
		text := m.Content != nil && strings.TrimSpace(*m.Content) != ""
		var err error
		switch m.Role {
		case "system":
			if i > 0 || !text {
				err = errors.New("a system message that is empty or not first")
			}
		case "tool":
			err = t.result(m.ToolCallID, text)
		default:
			err = t.turn(m.Role, text || len(m.ToolCalls) > 0)
		}
		for _, call := range m.ToolCalls {
			err = errors.Join(err, t.call(call.ID, call.Function.Name, call.Function.Arguments))
		}
		if err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
	}
	return t.end()
}

// anthropic says what a server of the Messages API would refuse.
func anthropic(raw json.RawMessage) error {
	var list []struct {
		Role    string `json:"role"`
		Content []struct {
			Type, Text, ID, Name, Signature, Data string
			Input                                 json.RawMessage
			ToolUseID                             string `json:"tool_use_id"`
			Content                               string
		} `json:"content"`
	}
	if err := decodeUTF8(raw, &list); err != nil {
		return err
	}
	t := talk{}
	for i, m := range list {
		var results, err error
		said := false
		for j, b := range m.Content {
			switch b.Type {
			case "tool_result":
				results = errors.Join(results, t.result(b.ToolUseID, strings.TrimSpace(b.Content) != ""))
				if j > 0 && m.Content[j-1].Type != "tool_result" {
					results = errors.New("a result behind other blocks")
				}
			case "tool_use", "text":
				said = said || b.Type == "tool_use" || strings.TrimSpace(b.Text) != ""
			case "thinking", "redacted_thinking":
				if b.Signature == "" && b.Data == "" || j == len(m.Content)-1 {
					err = errors.New("reasoning that is not signed, or last")
				}
			}
		}
		hasResults := len(m.Content) > 0 && m.Content[0].Type == "tool_result"
		if !hasResults || m.Role != "user" {
			err = errors.Join(err, t.turn(m.Role, said))
		}
		for _, b := range m.Content {
			if b.Type == "tool_use" {
				err = errors.Join(err, t.call(b.ID, b.Name, string(b.Input)))
			}
		}
		if err = errors.Join(results, err); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
	}
	return t.end()
}

// talk is the state of a conversation as a provider checks it.
type talk struct {
	last string // user, assistant or tool
	open map[string]bool
	seen map[string]bool
}

func (t *talk) turn(role string, says bool) error {
	last := t.last
	t.last = role
	switch {
	case len(t.open) > 0:
		return fmt.Errorf("a %s while %d calls have no result", role, len(t.open))
	case !says:
		return fmt.Errorf("a %s who says nothing", role)
	case role == "user" && (last == "" || last == "assistant" || last == "tool"):
		return nil
	case role == "assistant" && (last == "user" || last == "tool"):
		return nil
	}
	return fmt.Errorf("a %s after %q", role, last)
}

func (t *talk) call(id, name, args string) error {
	if t.seen[id] || id == "" || name == "" {
		return fmt.Errorf("call %q of %q, or twice", id, name)
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal([]byte(args), &object); err != nil || object == nil {
		return fmt.Errorf("arguments of call %s are no object: %.80q", id, args)
	}
	if t.seen == nil {
		t.seen, t.open = map[string]bool{}, map[string]bool{}
	}
	t.seen[id], t.open[id] = true, true
	return nil
}

func (t *talk) result(id string, text bool) error {
	if !t.open[id] || !text {
		return fmt.Errorf("a result of %q, which is not open, or without text", id)
	}
	delete(t.open, id)
	t.last = "tool"
	return nil
}

func (t *talk) end() error {
	if len(t.open) > 0 || t.last != "user" && t.last != "tool" {
		return fmt.Errorf("it ends with %q and %d open calls", t.last, len(t.open))
	}
	return nil
}

func decodeUTF8(raw json.RawMessage, v any) error {
	if !utf8.Valid(raw) {
		return errors.New("not UTF-8")
	}
	return json.Unmarshal(raw, v)
}
