package edge

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/runlog-dev/runlog/event"
)

// aisdkInput is what the AI SDK's chats send, and what an app may add to it with
// body: agent, tools of the client's, queue.
type aisdkInput struct {
	ID        string             `json:"id"`
	Messages  []aisdkMessage     `json:"messages"`
	Trigger   string             `json:"trigger"` // submit-message | regenerate-message
	MessageID string             `json:"messageId"`
	Agent     string             `json:"agent"`
	Tools     []event.ClientTool `json:"tools"`
	Queue     event.Queue        `json:"queue"`
}

type aisdkMessage struct {
	ID    string      `json:"id"`
	Role  string      `json:"role"`
	Parts []aisdkPart `json:"parts"`

	at string
}

type aisdkPart struct {
	Type             string          `json:"type"`
	Text             string          `json:"text"`
	URL              string          `json:"url"`
	MediaType        string          `json:"mediaType"`
	Filename         string          `json:"filename"`
	State            string          `json:"state"`
	ToolCallID       string          `json:"toolCallId"`
	ToolName         string          `json:"toolName"`
	Input            json.RawMessage `json:"input"`
	Output           json.RawMessage `json:"output"`
	ErrorText        string          `json:"errorText"`
	ProviderExecuted bool            `json:"providerExecuted"`
	Approval         *struct {
		ID       string `json:"id"`
		Approved *bool  `json:"approved"`
		Reason   string `json:"reason"`
	} `json:"approval"`
}

func readAISDK(body []byte) (*aisdkInput, error) {
	in := &aisdkInput{}
	if err := decodeOpen(body, in); err != nil {
		return nil, err
	}
	if in.ID != "" {
		if err := event.CheckID("id", in.ID); err != nil {
			return nil, bad("id", "%s", err)
		}
	}
	if len(in.Messages) == 0 {
		return nil, bad("messages", "messages is empty: send a message")
	}
	for i := range in.Messages {
		in.Messages[i].at = fmt.Sprintf("messages[%d]", i)
	}
	return in, nil
}

func (in *aisdkInput) last() *aisdkMessage { return &in.Messages[len(in.Messages)-1] }

func (p aisdkPart) tool() bool { return strings.HasPrefix(p.Type, "tool-") || p.Type == "dynamic-tool" }

// past is a call of a conversation that began elsewhere.
func (p aisdkPart) past() event.PastCall {
	name := p.ToolName
	if name == "" {
		name = strings.TrimPrefix(p.Type, "tool-")
	}
	past := event.PastCall{CallID: p.ToolCallID, Name: name, Args: string(p.Input)}
	if p.answered() {
		past.Content = p.content()
	}
	return past
}

func (p aisdkPart) answered() bool { return p.State == "output-available" || p.State == "output-error" }

// content is an output as parts: a text, or JSON as text.
func (p aisdkPart) content() []event.Part {
	var text string
	switch {
	case p.State == "output-error":
		text = p.ErrorText
	case json.Unmarshal(p.Output, &text) != nil:
		text = string(p.Output)
	}
	return []event.Part{event.TextPart(text)}
}

// structured is an output that is no text.
func (p aisdkPart) structured() json.RawMessage {
	if raw := p.Output; p.State == "output-available" && len(raw) > 0 && raw[0] != '"' && string(raw) != "null" {
		return raw
	}
	return nil
}

// brings reports whether a part is something that a run may have waited for.
func (p aisdkPart) brings() bool {
	return p.tool() && (p.State == "approval-responded" && p.Approval != nil && p.Approval.Approved != nil || p.answered() && !p.ProviderExecuted)
}

// answersText tells answers apart.
func (m *aisdkMessage) answersText() string {
	list := []aisdkPart{}
	for _, p := range m.Parts {
		if p.brings() {
			list = append(list, p)
		}
	}
	return m.ID + "\n" + string(event.Encode(list))
}

// answers are commands for all that the chat's run waits for.
func (m *aisdkMessage) answers(fold *event.Session) ([]event.Command, error) {
	run := fold.Parked()
	if run == nil {
		return nil, nothingWaits("chat")
	}
	var list []event.Command
	given := map[string]bool{}
	for _, p := range m.Parts {
		t := fold.Call(p.ToolCallID)
		if !p.brings() || t == nil || t.RunID != run.RunID || !t.Waits() || given[t.CallID] {
			continue
		}
		cmd, ok := p.command(t)
		if ok {
			given[t.CallID] = true
			list = append(list, cmd)
		}
	}
	return list, unanswered(fold, run, given)
}

func (p aisdkPart) command(t *event.ToolCall) (event.Command, bool) {
	if p.State != "approval-responded" {
		return resultOf(t.CallID, p.content(), p.structured(), p.State == "output-error"), t.Executor == event.ByClient
	}
	return decision(t, *p.Approval.Approved, p.Approval.Reason), t.Status == event.WaitingApproval
}
