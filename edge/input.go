package edge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

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
	c, err := readParts("input", list)
	if err != nil {
		return nil, err
	}
	if len(c.parts) == 0 || len(c.calls)+len(c.results) > 0 {
		return nil, bad("input", "a list of parts is one message of the user's: text, image, audio or file; send messages for more")
	}
	return []inputMessage{userMessage(c.parts...)}, nil
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
		m, results, err := readMessage(at, fields)
		if err != nil {
			return nil, err
		}
		for _, r := range results {
			if err := answerMade(at, all, r); err != nil {
				return nil, err
			}
		}
		if len(m.Parts) > 0 || len(m.Calls) > 0 {
			all = append(all, m)
		}
	}
	if len(all) == 0 {
		return nil, bad(param, "%s holds no message", param)
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

// A pastResult is the answer to an earlier tool call.
type pastResult struct {
	callID  string
	content []event.Part
}

// answerCall gives the last such call that has no result yet its own. made: there
// is such a call.
func answerCall(at string, all []inputMessage, r pastResult) (made bool, err error) {
	for i := len(all) - 1; i >= 0; i-- {
		for j := range all[i].Calls {
			c := &all[i].Calls[j]
			if c.CallID != r.callID {
				continue
			}
			if c.Content == nil {
				c.Content = r.content
				return true, nil
			}
			if made = true; !sameContent(c.Content, r.content) {
				err = twoResults(at, r.callID)
			}
		}
	}
	return made, err
}

// answerMade refuses an answer to a call that nobody made.
func answerMade(at string, all []inputMessage, r pastResult) error {
	made, err := answerCall(at, all, r)
	if err == nil && !made {
		err = bad(at, "%s answers the tool call %q, which no earlier message makes", at, r.callID)
	}
	return err
}

// passed are members that vendors' SDKs add to messages and that say nothing to
// a model.
var passed = []string{"name", "refusal", "annotations", "audio", "function_call", "reasoning_content", "reasoning", "status", "type"}

// readMessage reads one message, and the results of tools that it brings.
func readMessage(at string, fields map[string]json.RawMessage) (m inputMessage, results []pastResult, err error) {
	var role, id, callID string
	for _, f := range []struct {
		name string
		into *string
	}{{"role", &role}, {"message_id", &id}, {"id", &id}, {"tool_call_id", &callID}} {
		if err := text(at, fields, f.name, f.into); err != nil {
			return m, nil, err
		}
	}
	if m, err = beginInput(at, role, id); err != nil {
		return m, nil, err
	}
	if (role == "tool") != (callID != "") {
		return m, nil, bad(at+".tool_call_id", "%s: role tool and tool_call_id go together", at)
	}
	content, err := readContent(at, fields)
	if err != nil {
		return m, nil, err
	}
	calls, err := readCalls(at, fields["tool_calls"])
	if err != nil {
		return m, nil, err
	}
	if role == "tool" {
		return m, []pastResult{{callID, orText(content.parts)}}, unknownMember(at, fields)
	}
	m.Parts, m.Calls = content.parts, append(calls, content.calls...)
	if err := checkRole(at, m, content.results); err != nil {
		return m, nil, err
	}
	return m, content.results, unknownMember(at, fields)
}

// checkRole refuses what a message of its role cannot hold, and one that holds nothing.
func checkRole(at string, m inputMessage, results []pastResult) error {
	switch {
	case len(m.Calls) > 0 && m.Role != event.RoleAssistant:
		return bad(at, "%s: only an assistant's message makes tool calls", at)
	case len(results) > 0 && m.Role != event.RoleUser:
		return bad(at, "%s: only a user's message brings tool results", at)
	case len(m.Parts)+len(m.Calls)+len(results) == 0:
		return bad(at+".content", "%s is empty", at)
	}
	return nil
}

// beginInput is a message before its content; its client may have an id for it.
func beginInput(at, role, id string) (m inputMessage, err error) {
	if m.Role, err = readRole(at, role); err != nil {
		return m, err
	}
	if m.MessageID = id; id != "" {
		if err := event.CheckID("message id", id); err != nil {
			return m, bad(at+".id", "%s: %s", at, err)
		}
	}
	return m, nil
}

// readRole reads the names that protocols have for roles.
func readRole(at, role string) (event.Role, error) {
	switch role {
	case "user", "tool": // what a tool says joins its call
		return event.RoleUser, nil
	case "assistant":
		return event.RoleAssistant, nil
	case "system", "developer":
		return event.RoleSystem, nil
	}
	return "", bad(at+".role", "%s: role %q is not known; use user, assistant, system or tool", at, role)
}

// orText is content that is not nothing.
func orText(parts []event.Part) []event.Part {
	if len(parts) == 0 {
		return []event.Part{event.TextPart("")}
	}
	return parts
}

// unknownMember refuses a message with a member that has no meaning here.
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
