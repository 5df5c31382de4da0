package event

import (
	"encoding/json"
	"strings"
)

// RedactedThinking marks the signature of a reasoning part whose thought the
// provider keeps to itself: what follows the mark is its opaque data.
const RedactedThinking = "redacted:"

type anthropicMessage struct {
	Role    string           `json:"role"`
	Content []anthropicBlock `json:"content"`
}

// anthropicBlock is one content block of any kind that requests have.
type anthropicBlock struct {
	Type      string          `json:"type"`
	Text      string          `json:"text,omitempty"`
	Thinking  *string         `json:"thinking,omitempty"`
	Signature string          `json:"signature,omitempty"`
	Data      string          `json:"data,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
	ToolUseID string          `json:"tool_use_id,omitempty"`
	Content   string          `json:"content,omitempty"`
	IsError   bool            `json:"is_error,omitempty"`
}

// AnthropicView returns the system prompt and the messages array of the
// Anthropic Messages form.
func (s *Session) AnthropicView(v View) (sys string, messages json.RawMessage) {
	system, turns := v.turns(s)
	a := anthropicBuilder{View: v, messages: []anthropicMessage{}}
	for _, t := range turns {
		if t.role == RoleSystem {
			system = join("\n\n", system, t.text())
			continue
		}
		a.turn(t)
	}
	return system, Encode(a.messages)
}

// An anthropicBuilder joins what follows on the same side: results come first
// in the user's next message.
type anthropicBuilder struct {
	View
	messages []anthropicMessage
	results  bool // the last message holds nothing but results
}

func (a *anthropicBuilder) add(role string, blocks ...anthropicBlock) {
	if len(blocks) == 0 {
		return
	}
	n := len(a.messages)
	if n > 0 && a.messages[n-1].Role == role && (a.results || !a.Transcript) {
		a.messages[n-1].Content = append(a.messages[n-1].Content, blocks...)
	} else {
		a.messages = append(a.messages, anthropicMessage{Role: role, Content: blocks})
	}
	a.results = false
}

func (a *anthropicBuilder) turn(t *turn) {
	role := "user"
	if t.role == RoleAssistant {
		role = "assistant"
	}
	var blocks, results []anthropicBlock
	for _, b := range t.blocks {
		blocks = a.appendBlock(blocks, b)
	}
	a.add(role, blocks...)
	for _, c := range t.calls() {
		if !c.open {
			results = append(results, anthropicBlock{Type: "tool_result", ToolUseID: c.id, Content: c.result, IsError: c.failed})
		}
	}
	a.add("user", results...)
	a.results = len(results) > 0
}

// appendBlock leaves out reasoning without signature: it is not Anthropic's.
func (a *anthropicBuilder) appendBlock(blocks []anthropicBlock, b block) []anthropicBlock {
	switch {
	case b.kind == PartToolCall:
		return append(blocks, anthropicBlock{Type: "tool_use", ID: b.call.id, Name: b.call.name, Input: json.RawMessage(b.call.args)})
	case b.kind == PartText:
		return append(blocks, anthropicBlock{Type: "text", Text: b.text})
	case b.signature == "":
		return blocks
	}
	if data, ok := strings.CutPrefix(b.signature, RedactedThinking); ok {
		return append(blocks, anthropicBlock{Type: "redacted_thinking", Data: data})
	}
	return append(blocks, anthropicBlock{Type: "thinking", Thinking: &b.text, Signature: b.signature})
}
