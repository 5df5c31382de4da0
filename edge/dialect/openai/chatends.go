package openai

import (
	"encoding/json"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
)

var chatTellers = map[event.Type]func(*Completion, event.Event) []dialect.Message{
	event.RunStarted:       dialect.Tell((*Completion).runStarted),
	event.RunStatus:        dialect.Tell((*Completion).runStatus),
	event.RunCompleted:     dialect.Tell((*Completion).runCompleted),
	event.RunFailed:        dialect.Tell((*Completion).runFailed),
	event.RunCancelled:     dialect.Tell((*Completion).runCancelled),
	event.TextDelta:        (*Completion).textDelta,
	event.MessageCompleted: dialect.Tell((*Completion).messageCompleted),
	event.MessageDiscarded: dialect.Tell((*Completion).discarded),
	event.ToolStarted:      dialect.Tell((*Completion).toolStarted),
	event.ToolArgsDelta:    dialect.Tell((*Completion).argsDelta),
}

func (c *Completion) runStarted(e event.Event, d event.RunStartedData) []dialect.Message {
	c.model = d.Agent
	if e.Seq <= c.d.From {
		return nil
	}
	return c.begin()
}

// runStatus ends the completion of a run that waits for the client's tools. For
// an approval it waits too: somebody gives it elsewhere.
func (c *Completion) runStatus(_ event.Event, d event.RunStatusData) []dialect.Message {
	if d.ExpiresAt == nil || d.Status != event.WaitingTool || len(c.calls) == 0 {
		return nil
	}
	return c.ends("tool_calls", nil)
}

func (c *Completion) runCompleted(_ event.Event, d event.RunCompletedData) []dialect.Message {
	reason := "stop"
	switch d.FinishReason {
	case event.FinishLength, event.FinishBudget:
		reason = "length"
	case event.FinishFilter:
		reason = "content_filter"
	}
	return c.ends(reason, &d.Usage)
}

func (c *Completion) runFailed(_ event.Event, d event.RunFailedData) []dialect.Message {
	return c.fails(d.Code, d.Message)
}

func (c *Completion) runCancelled(_ event.Event, d event.RunCancelledData) []dialect.Message {
	why := "the run was cancelled"
	if d.Reason != "" {
		why += ": " + d.Reason
	}
	return c.fails("cancelled", why)
}

func (c *Completion) ends(reason string, u *event.Usage) []dialect.Message {
	list := c.begin()
	c.over, c.finish, c.usage = true, reason, chatUsageOf(u)
	list = append(list, c.chunk("{}", reason))
	if c.d.Usage {
		b := append(append([]byte{}, c.head...), `],"usage":`...)
		b = append(append(b, event.Encode(c.usage)...), '}')
		list = append(list, dialect.Message{Data: b})
	}
	return append(list, done)
}

// fails ends with an error, which clients throw.
func (c *Completion) fails(code event.Code, message string) []dialect.Message {
	c.over, c.failed = true, &event.RunError{Code: code, Message: message}
	return dialect.NewObject(256).Open("error").Text("message", message).Text("type", "api_error").Text("code", string(code)).Close().One("")
}

// Over reports that the completion has ended.
func (c *Completion) Over() bool { return c.over }

// Failed is why it failed, if it did.
func (c *Completion) Failed() *event.RunError { return c.failed }

func chatUsageOf(u *event.Usage) *chatUsage {
	if u == nil {
		u = &event.Usage{}
	}
	out := &chatUsage{Prompt: u.InputTokens, Completion: u.OutputTokens, Total: u.InputTokens + u.OutputTokens}
	out.PromptDetails.Cached, out.CompletionDetails.Reasoning = u.CachedInputTokens, u.ReasoningTokens
	return out
}

// JSON is the completion as an object.
func (c *Completion) JSON() json.RawMessage {
	type said struct {
		Role    string      `json:"role"`
		Content *string     `json:"content"`
		Refusal *string     `json:"refusal"`
		Calls   []*toolCall `json:"tool_calls,omitempty"`
	}
	type choice struct {
		Index    int     `json:"index"`
		Message  said    `json:"message"`
		Finish   string  `json:"finish_reason"`
		Logprobs *string `json:"logprobs"`
	}
	m := said{Role: "assistant"}
	if text := string(c.text); text != "" || len(c.calls) == 0 {
		m.Content = &text
	}
	for _, t := range c.calls {
		m.Calls = append(m.Calls, &toolCall{nil, t.ID, t.Type, t.Function})
	}
	return event.Encode(struct {
		ID      string     `json:"id"`
		Object  string     `json:"object"`
		Created int64      `json:"created"`
		Model   string     `json:"model"`
		Choices []choice   `json:"choices"`
		Usage   *chatUsage `json:"usage"`
	}{c.id, "chat.completion", c.at, c.model, []choice{{0, m, c.finish, nil}}, c.usage})
}
