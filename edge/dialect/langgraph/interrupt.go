package langgraph

import (
	"bytes"
	"encoding/json"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
)

// interruptKey is the member of values that says what a thread waits for.
const interruptKey = "__interrupt__"

// An Interrupt is something that a run waits for. Its value is a review, a tool
// or a budget.
type Interrupt struct {
	ID    string `json:"id"`
	Value any    `json:"value"`
	Kind  Kind   `json:"-"`
	// Calls are those that the answer is about, in order.
	Calls []string `json:"-"`
}

// Kind of an interrupt.
type Kind int

// What a run may wait for: decisions about calls, as LangChain's human-in-the-loop
// middleware asks for them; the result of a tool of the client's, as its headless
// tools do; or a larger budget.
const (
	Review Kind = iota
	ClientTool
	Budget
)

type (
	review struct {
		Actions []action       `json:"action_requests"`
		Configs []reviewConfig `json:"review_configs"`
	}
	action struct {
		Name        string          `json:"name"`
		Args        json.RawMessage `json:"args"`
		Description string          `json:"description"`
		CallID      string          `json:"call_id"`
		ArgsSHA256  string          `json:"args_sha256"`
		ExpiresAt   event.Time      `json:"expires_at"`
	}
	reviewConfig struct {
		Action  string   `json:"action_name"`
		Allowed []string `json:"allowed_decisions"`
	}
	clientTool struct {
		Type string   `json:"type"` // tool
		Call toolCall `json:"toolCall"`
	}
	toolCall struct {
		ID   string          `json:"id"`
		Name string          `json:"name"`
		Args json.RawMessage `json:"args"`
	}
	budget struct {
		Type string `json:"type"` // budget
		event.BudgetExceededData
	}
)

// Interrupts is what a run waits for: one for all approvals, one for each tool of
// the client's.
func Interrupts(s *event.Session, runID string) []Interrupt {
	list := []Interrupt{}
	if r := reviewOf(s, runID); r != nil {
		list = append(list, *r)
	}
	for _, c := range s.ToolCalls {
		if c.Executor == event.ByClient && !c.Done() && !c.Streaming && c.Status != event.WaitingApproval && s.Within(c.RunID, runID) {
			list = append(list, Interrupt{c.CallID, clientTool{"tool", toolCall{c.CallID, c.Name, dialect.Arguments(c.Args)}}, ClientTool, []string{c.CallID}})
		}
	}
	if r := s.Run(runID); r != nil && r.Book != nil && r.Book.Exceeded != nil && len(list) == 0 {
		list = append(list, Interrupt{runID, budget{"budget", *r.Book.Exceeded}, Budget, nil})
	}
	return list
}

func reviewOf(s *event.Session, runID string) *Interrupt {
	var v review
	var calls []string
	for _, p := range s.Approvals {
		if !s.Within(p.RunID, runID) {
			continue
		}
		a := action{CallID: p.CallID, ArgsSHA256: p.ArgsSHA256, ExpiresAt: p.ExpiresAt, Name: "tool", Args: json.RawMessage("{}")}
		if c := s.Call(p.CallID); c != nil && !c.Internal {
			a.Name, a.Args = c.Name, dialect.Arguments(c.Args)
		}
		a.Description = "Allow " + a.Name + "?"
		v.Actions = append(v.Actions, a)
		v.Configs = append(v.Configs, reviewConfig{a.Name, []string{"approve", "reject"}})
		calls = append(calls, p.CallID)
	}
	if calls == nil {
		return nil
	}
	return &Interrupt{calls[0], v, Review, calls}
}

// withInterrupts adds what is waited for to an object.
func withInterrupts(values json.RawMessage, list []Interrupt) json.RawMessage {
	values = append(bytes.TrimSuffix(values, []byte("}")), `,"`+interruptKey+`":`...)
	return append(append(values, event.Encode(list)...), '}')
}

// WithInterrupts is the state of a thread with what its run waits for, if it does.
func WithInterrupts(s *event.Session, runID string) json.RawMessage {
	return withInterrupts(State(s), Interrupts(s, runID))
}
