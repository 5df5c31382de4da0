package event

import "encoding/json"

// openAIMessage is one entry of a chat-completions messages array. Content is
// null, not missing, where an assistant only calls tools: some servers look for
// the member.
type openAIMessage struct {
	Role       string       `json:"role"`
	Content    *string      `json:"content"`
	Reasoning  string       `json:"reasoning_content,omitempty"`
	ToolCalls  []openAICall `json:"tool_calls,omitempty"`
	ToolCallID string       `json:"tool_call_id,omitempty"`
}

type openAICall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// OpenAIView returns a chat-completions messages array.
func (s *Session) OpenAIView(v View) json.RawMessage {
	system, turns := v.turns(s)
	messages := make([]openAIMessage, 0, 2*len(turns)+1)
	if system != "" {
		messages = append(messages, openAIText("system", system))
	}
	for _, t := range turns {
		messages = v.appendOpenAI(messages, t)
	}
	return Encode(messages)
}

func openAIText(role, text string) openAIMessage {
	return openAIMessage{Role: role, Content: &text}
}

func (v View) appendOpenAI(messages []openAIMessage, t *turn) []openAIMessage {
	if t.role != RoleAssistant {
		return append(messages, openAIText(string(t.role), t.text()))
	}
	calls := t.calls()
	m := openAIMessage{Role: "assistant"}
	if text := t.text(); text != "" {
		m.Content = &text
	}
	if v.Reasoning {
		m.Reasoning = t.join(PartReasoning)
	}
	for _, c := range calls {
		m.ToolCalls = append(m.ToolCalls, c.openAI())
	}
	if m.Content == nil && m.ToolCalls == nil && m.Reasoning == "" {
		return messages
	}
	return appendResults(append(messages, m), calls)
}

func appendResults(messages []openAIMessage, calls []*wireCall) []openAIMessage {
	for _, c := range calls {
		if c.open {
			continue
		}
		r := openAIText("tool", c.result)
		r.ToolCallID = c.id
		messages = append(messages, r)
	}
	return messages
}

func (c *wireCall) openAI() openAICall {
	call := openAICall{ID: c.id, Type: "function"}
	call.Function.Name, call.Function.Arguments = c.name, c.raw
	return call
}
