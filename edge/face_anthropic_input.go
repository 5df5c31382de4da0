package edge

import (
	"encoding/json"

	"github.com/runlog-dev/runlog/event"
)

// anthropicInput is as much of a request for a message as means something here:
// how the model samples is the agent's business.
type anthropicInput struct {
	Model    string             `json:"model"`
	System   json.RawMessage    `json:"system"`
	Messages []anthropicMessage `json:"messages"`
	Tools    []anthropicTool    `json:"tools"`
	Stream   bool               `json:"stream"`
}

type anthropicMessage struct {
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
}

type anthropicTool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"input_schema"`
}

func readAnthropic(body []byte) (*anthropicInput, error) {
	in := &anthropicInput{}
	if err := decodeOpen(body, in); err != nil {
		return nil, err
	}
	if len(in.Messages) == 0 {
		return nil, bad("messages", "messages is a list of {role, content}; it is empty")
	}
	return in, nil
}

// messages is the conversation.
func (in *anthropicInput) messages() ([]inputMessage, error) {
	var list []anthropicMessage
	if len(in.System) > 0 && string(in.System) != "null" && string(in.System) != `""` {
		list = append(list, anthropicMessage{"system", in.System})
	}
	for _, m := range in.Messages {
		list = append(list, m.split()...)
	}
	return readInput(event.Encode(list))
}

type anthropicBlock map[string]json.RawMessage

func (b anthropicBlock) kind() string {
	var kind string
	_ = json.Unmarshal(b["type"], &kind)
	return kind
}

// split takes an answer apart that holds results of tools which ran here: they
// are what the user's side has said between two messages of the model's.
func (m anthropicMessage) split() []anthropicMessage {
	var blocks []anthropicBlock
	if m.Role != "assistant" || json.Unmarshal(m.Content, &blocks) != nil {
		return []anthropicMessage{m}
	}
	var list []anthropicMessage
	var part []anthropicBlock
	role := "assistant"
	flush := func(next string) {
		if len(part) > 0 && role != next {
			list, part = append(list, anthropicMessage{role, event.Encode(part)}), nil
		}
		role = next
	}
	for _, b := range blocks {
		next := "assistant"
		switch b.kind() {
		case "server_tool_use":
			b["type"] = event.Encode("tool_use")
		case "mcp_tool_result":
			next, b["type"] = "user", event.Encode("tool_result")
		}
		delete(b, "cache_control")
		flush(next)
		part = append(part, b)
	}
	flush("")
	return list
}

// config offers the client's tools to the agent.
func (in *anthropicInput) config() (*event.RunConfig, error) {
	if len(in.Tools) == 0 {
		return nil, nil
	}
	config := &event.RunConfig{}
	for _, t := range in.Tools {
		if t.Type != "" && t.Type != "custom" {
			return nil, unsupported("tools", "tools of the type %q are the agent's business; send tools with an input_schema", t.Type)
		}
		config.ClientTools = append(config.ClientTools, event.ClientTool{Name: t.Name, Description: t.Description, Parameters: t.Schema})
	}
	return config, nil
}

// answers are commands for what the session's run waits for, if the last message
// brings results of the client's tools; id is that of the message that follows.
func (in *anthropicInput) answers(fold *event.Session) (list []event.Command, id string, err error) {
	last := in.Messages[len(in.Messages)-1]
	var blocks []anthropicBlock
	if last.Role != "user" || json.Unmarshal(last.Content, &blocks) != nil {
		return nil, "", nil
	}
	of := []string{fold.SessionID}
	for _, b := range blocks {
		if b.kind() != "tool_result" {
			continue
		}
		var c content
		if err := c.toolResult("messages", b); err != nil {
			return nil, "", err
		}
		r := c.results[0]
		t := fold.Call(r.callID)
		if t == nil || t.Executor != event.ByClient {
			continue
		}
		list = append(list, resultOf(t.CallID, r.content, nil, string(b["is_error"]) == "true"))
		of = append(of, t.CallID)
	}
	if len(list) == 0 {
		return nil, "", nil
	}
	return list, derivedID("msg", of...), nil
}
