package a2a

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
)

// A call is a tool call that is open.
type call struct {
	id, message, name, args string
	client                  bool // the client runs it
	asked                   *event.ApprovalRequestedData
	hidden                  bool // of a sub-agent
}

func (c *call) waits() bool { return c.client || c.asked != nil }

func waiting(list []*call) bool { return slices.ContainsFunc(list, (*call).waits) }

// openCalls are the calls of a run, and of those that work for it, that have no
// result.
func openCalls(s *event.Session, run *event.Run) []*call {
	var list []*call
	for _, t := range s.ToolCalls {
		if t.Done() || t.Internal || !s.Within(t.RunID, run.RunID) {
			continue
		}
		c := &call{t.CallID, t.MessageID, t.Name, t.Args, t.Executor == event.ByClient, nil, t.RunID != run.RunID}
		for _, a := range s.Approvals {
			if a.CallID == t.CallID {
				c.asked = &a.ApprovalRequestedData
			}
		}
		list = append(list, c)
	}
	return list
}

func (x *encoder) call(id string) *call {
	for _, c := range x.calls {
		if c.id == id {
			return c
		}
	}
	return nil
}

func (x *encoder) dropCallsOf(message string) {
	x.calls = slices.DeleteFunc(x.calls, func(c *call) bool { return c.message == message })
}

// toolStarted notes a call of the model's; those of a conversation that the client
// has sent it knows.
func (x *encoder) toolStarted(e event.Event, d event.ToolStartedData) []dialect.Message {
	if e.CommandID == "" {
		x.calls = append(x.calls, &call{id: d.CallID, message: d.MessageID, name: d.Name, client: d.Executor == event.ByClient, hidden: e.Agent != ""})
	}
	return nil
}

type toolCall struct {
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

func (x *encoder) toolArgs(e event.Event, d event.ToolArgsData) []dialect.Message {
	c := x.call(d.CallID)
	if c == nil {
		return nil
	}
	c.args = d.Args
	return x.happens(e, "tool_call", toolCall{d.CallID, d.Name, dialect.Arguments(d.Args)})
}

func (x *encoder) toolProgress(e event.Event, d event.ToolProgressData) []dialect.Message {
	return x.happens(e, "tool_progress", d)
}

type toolResult struct {
	CallID    string        `json:"call_id"`
	Name      string        `json:"name"`
	Status    event.Status  `json:"status"`
	Result    string        `json:"result"`
	Outcome   event.Outcome `json:"outcome,omitempty"` // of a failure: failed, unknown, denied, cancelled
	Truncated bool          `json:"truncated,omitempty"`
	Whole     string        `json:"whole,omitempty"` // where what was cut is
}

// toolEnded tells what a call has returned; of one that clients do not see, nothing.
func (x *encoder) toolEnded(e event.Event, d dialect.Result) []dialect.Message {
	known := x.call(d.CallID) != nil
	x.calls = slices.DeleteFunc(x.calls, func(c *call) bool { return c.id == d.CallID })
	if !known {
		return nil
	}
	r := toolResult{CallID: d.CallID, Name: d.Name, Status: event.Completed, Result: d.Text(), Outcome: d.Outcome, Truncated: d.Truncated}
	if e.Type == event.ToolFailed {
		r.Status = event.Failed
	}
	if d.Artifact != nil {
		r.Whole = absolute(x.Base, d.Artifact.URL)
	}
	x.answered()
	return x.happens(e, "tool_result", r)
}

// approvalRequested is told when the run is parked: what else it waits for is
// known then.
func (x *encoder) approvalRequested(_ event.Event, d event.ApprovalRequestedData) []dialect.Message {
	if c := x.call(d.CallID); c != nil {
		c.asked = &d
	}
	return nil
}

func (x *encoder) approvalResolved(e event.Event, d event.ApprovalResolvedData) []dialect.Message {
	if c := x.call(d.CallID); c != nil {
		c.asked = nil
		x.answered()
	}
	return x.happens(e, "approval", d)
}

// answered: a task that has all it has asked for works again.
func (x *encoder) answered() { x.parked = x.parked && waiting(x.calls) }

// An approvalWanted is data of what a task waits for, as a toolWanted is.
type approvalWanted struct {
	toolCall
	ArgsSHA256 string     `json:"args_sha256"`
	ExpiresAt  event.Time `json:"expires_at"`
}

type toolWanted struct {
	toolCall
	ExpiresAt event.Time `json:"expires_at"`
}

// asking says what a parked run waits for: in words, and as data for each call.
func asking(session, run string, expires event.Time, paused bool, calls []*call) *Message {
	m := &Message{fmt.Sprintf("%s.%d", run, expires.UnixMicro()), session, run, "ROLE_AGENT", nil}
	var words []string
	var data []Part
	for _, c := range calls {
		wanted := toolCall{c.id, c.name, dialect.Arguments(c.args)}
		switch {
		case c.asked != nil:
			words = append(words, fmt.Sprintf("an approval of %s(%s): answer approve, or deny and why", c.name, c.args))
			data = append(data, dataPart("approval_request", approvalWanted{wanted, c.asked.ArgsSHA256, c.asked.ExpiresAt}))
		case c.client:
			words = append(words, fmt.Sprintf("the result of %s(%s): answer with it", c.name, c.args))
			data = append(data, dataPart("tool_request", toolWanted{wanted, expires}))
		}
	}
	switch {
	case len(words) > 0:
	case paused:
		words = []string{"a larger budget: resume it by POST /v1/runs/" + run + "/resume"}
	default:
		words = []string{"somebody else's decision"}
	}
	m.Parts = append([]Part{textPart("The task waits for " + strings.Join(words, "; and for ") + ".")}, data...)
	return m
}
