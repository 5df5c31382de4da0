package dialect

import (
	"encoding/json"
	"strings"

	"github.com/runlog-dev/runlog/event"
)

// A Result is the data of tool.completed or tool.failed, so that both can be told by one
// function: Code, Message and Outcome are of a failure, Structured is of a success.
type Result struct {
	event.ToolFailedData
	Structured json.RawMessage `json:"structured"`
}

// ResultOf is the result of a call that has one.
func ResultOf(c *event.ToolCall) Result {
	return Result{Structured: c.Structured, ToolFailedData: event.ToolFailedData{CallID: c.CallID, Name: c.Name, Args: c.Args,
		Code: c.Code, Message: c.Message, Outcome: c.Outcome, Content: c.Content, Truncated: c.Truncated, Artifact: c.Artifact}}
}

// Text is what the tool has said: its texts, and the other parts as JSON, one to a line;
// or else why it failed, or what it returned as a value.
func (r Result) Text() string {
	var said []string
	for _, p := range r.Content {
		switch {
		case p.Internal:
		case p.Type == event.PartText:
			said = append(said, p.Text)
		case p.Type == event.PartJSON:
			said = append(said, string(p.Value))
		default:
			said = append(said, string(event.Encode(p)))
		}
	}
	switch text := strings.Join(said, "\n"); {
	case text != "":
		return text
	case r.Message != "":
		return r.Message
	}
	return string(r.Structured)
}
