package event

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// Kind says what a command asks for.
type Kind string

// Command kinds. Invoke and steer bring input and are taken in order; the
// others concern a run that is there and are taken first.
const (
	Invoke  Kind = "invoke"
	Cancel  Kind = "cancel"
	Steer   Kind = "steer"
	Stop    Kind = "stop"
	Resume  Kind = "resume"
	Approve Kind = "approve"
	Deny    Kind = "deny"
	Result  Kind = "tool_result"
	Expire  Kind = "expire"
)

// A Command is what a client wants of a session. It waits in the session's
// inbox until the event that answers it is committed; CommandID makes that
// idempotent.
type Command struct {
	V           int            `json:"v"`
	CommandID   string         `json:"command_id"`
	Kind        Kind           `json:"kind"`
	SessionID   string         `json:"session_id"`
	RunID       string         `json:"run_id"`
	TraceID     string         `json:"trace_id,omitempty"`
	Traceparent string         `json:"traceparent,omitempty"`
	Agent       string         `json:"agent,omitempty"`
	Messages    []InputMessage `json:"messages,omitempty"`
	Config      *RunConfig     `json:"config,omitempty"`
	Queue       Queue          `json:"queue,omitempty"`   // of an invoke
	Resumes     string         `json:"resumes,omitempty"` // an invoke that goes on where this run ended
	By          string         `json:"by,omitempty"`      // who asks: a key's name or "client"
	Reason      string         `json:"reason,omitempty"`
	Time        Time           `json:"time"`

	// Of what concerns one tool call.
	CallID     string          `json:"call_id,omitempty"`
	ArgsSHA256 string          `json:"args_sha256,omitempty"` // what the decision is about
	Content    []Part          `json:"content,omitempty"`     // a client tool's result
	Structured json.RawMessage `json:"structured,omitempty"`
	Failed     bool            `json:"failed,omitempty"` // the client's tool failed
}

// Queue says what a run does that finds its session busy.
type Queue string

// Queue policies. Enqueue is the default.
const (
	Enqueue   Queue = "enqueue"
	Reject    Queue = "reject"    // it fails: conflict
	Interrupt Queue = "interrupt" // the running one is cancelled
	SteerInto Queue = "steer"     // its messages go to the running one
)

// An InputMessage is a message that a client sends. One whose MessageID the
// session already holds is left out.
type InputMessage struct {
	MessageID string     `json:"message_id"`
	Role      Role       `json:"role"`
	Parts     []Part     `json:"parts,omitempty"`
	Calls     []PastCall `json:"calls,omitempty"` // of an assistant's message
}

// A PastCall is a tool call of a conversation that began elsewhere.
type PastCall struct {
	CallID  string `json:"call_id"`
	Name    string `json:"name"`
	Args    string `json:"args"`
	Content []Part `json:"content,omitempty"` // the answer, if there was one
}

// CheckJSON says which JSON of a command cannot be logged, or built into a request
// for a model. Arguments may be any text, but none that is nested without end.
func (c Command) CheckJSON() error {
	if err := CheckResult(c.Content, c.Structured); err != nil {
		return err
	}
	for _, m := range c.Messages {
		if err := m.CheckJSON(); err != nil {
			return err
		}
	}
	return nil
}

// CheckJSON is that of one message.
func (m InputMessage) CheckJSON() error {
	if err := checkParts(m.Parts); err != nil {
		return err
	}
	for _, call := range m.Calls {
		if Deep([]byte(call.Args)) {
			return fmt.Errorf("the arguments of the call %s: %w", call.CallID, errDeep)
		}
		if err := checkParts(call.Content); err != nil {
			return err
		}
	}
	return nil
}

// RunConfig narrows what the agent's file allows, never widens it.
type RunConfig struct {
	Emit   *Emit   `json:"emit,omitempty"`
	Limits *Limits `json:"limits,omitempty"`
	// ClientTools are offered to the model besides the agent's own tools and
	// run by the client.
	ClientTools []ClientTool `json:"client_tools,omitempty"`
}

// A ClientTool is run by the client. Parameters is a JSON Schema object.
type ClientTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
}

// Emit says what clients see of a run; the rest is internal.
type Emit struct {
	Tools     ToolNames `json:"tools,omitzero"`
	Reasoning *bool     `json:"reasoning,omitempty"`
	Subagents *bool     `json:"subagents,omitempty"`
}

// Limits of one run; zero means the agent's own.
type Limits struct {
	Steps     int     `json:"steps,omitempty"`
	ToolCalls int     `json:"tool_calls,omitempty"`
	Tokens    int64   `json:"tokens,omitempty"`
	CostUSD   float64 `json:"cost_usd,omitempty"`
	WallMS    int64   `json:"wall_ms,omitempty"`
}

// maxWallMS is a hundred years: with it a time.Duration does not wrap.
const maxWallMS int64 = 100 * 365 * 24 * 3600 * 1000

// Check says which limit is none: less than nothing, or more than is counted.
func (l Limits) Check() error {
	u := Usage{Steps: l.Steps, ToolCalls: l.ToolCalls, InputTokens: l.Tokens, CostUSD: l.CostUSD}
	if u.Check() != nil || l.WallMS < 0 || l.WallMS > maxWallMS {
		return fmt.Errorf("limits are from 0: counts to %d, cost_usd to %g, wall_ms to %d", MaxTokens, MaxCostUSD, maxWallMS)
	}
	return nil
}

// add adds to each limit, up to the most that is counted.
func (l *Limits) add(o Limits) {
	l.Steps = int(tokens(int64(l.Steps) + tokens(int64(o.Steps))))
	l.ToolCalls = int(tokens(int64(l.ToolCalls) + tokens(int64(o.ToolCalls))))
	l.Tokens = tokens(l.Tokens + tokens(o.Tokens))
	l.CostUSD = cost(l.CostUSD + cost(o.CostUSD))
	l.WallMS = min(l.WallMS+min(max(o.WallMS, 0), maxWallMS), maxWallMS)
}

// ToolNames is "all", "none" or a list of tool names.
type ToolNames struct {
	All   bool
	Names []string
	set   bool
}

// NoTools is "none".
var NoTools = ToolNames{set: true}

// SomeTools names tools.
func SomeTools(names ...string) ToolNames { return ToolNames{Names: names, set: true} }

// IsZero reports that nothing was said.
func (n ToolNames) IsZero() bool { return !n.set }

// Has reports whether the named tool is meant.
func (n ToolNames) Has(name string) bool {
	return n.All || slices.Contains(n.Names, name)
}

// MarshalJSON writes the word or the list.
func (n ToolNames) MarshalJSON() ([]byte, error) {
	switch {
	case n.All:
		return []byte(`"all"`), nil
	case len(n.Names) == 0:
		return []byte(`"none"`), nil
	}
	return json.Marshal(n.Names)
}

// UnmarshalJSON reads "all", "none" or a list.
func (n *ToolNames) UnmarshalJSON(b []byte) error {
	n.set = true
	var word string
	if json.Unmarshal(b, &word) == nil {
		switch word {
		case "all":
			n.All = true
			return nil
		case "none":
			return nil
		}
	}
	if err := json.Unmarshal(b, &n.Names); err != nil {
		return errToolNames
	}
	return nil
}

var errToolNames = errors.New(`expected "all", "none" or a list of tool names`)
