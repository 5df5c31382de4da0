// Package remote is the seam between the agent loop and an agent that lives
// elsewhere: a program, or a server. It decides by itself what it says and which
// tools it calls; what it tells goes into the log. Kinds of them live in its
// subfolders.
//
// A Task goes in, and Sayings come out, one after the other, until the agent has
// said all of it. That is one leg of a run. If the agent has asked for something,
// the run waits for the answer, and the next leg has it.
package remote

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/runlog-dev/runlog/event"
)

// An Agent lives elsewhere. Run asks it once and calls say for what it tells, in
// order, from one goroutine; say blocks while the log takes no more, so the
// agent is not read faster. An error of say ends Run and is returned as it is,
// but for ErrMisfit, by which the saying was left out. Run returns soon after ctx
// ends, having told the other side to stop. A failure of the agent is a
// *model.Error; an agent that ends without having said that it is done has
// failed.
type Agent interface {
	Run(ctx context.Context, task Task, say func(Saying) error) error
	Close() error
}

// ErrMisfit is what say returns for a saying that does not fit what was said
// before: a patch of another state, a result of a call that nobody knows.
var ErrMisfit = errors.New("it does not fit what was said before")

// A Task is one leg of a run, asked for once or several times.
type Task struct {
	// Session is the conversation as it stands, read only. What was said by an
	// attempt that was lost is no part of it.
	Session *event.Session
	Tenant  string
	RunID   string
	TraceID string
	Agent   string
	Leg     int    // 1, 2, …
	Key     string // of the leg, the same however often it is asked for
	Retry   int    // 1 for the first time that this worker asks
	Tools   []event.ClientTool
	Answers []Answer // to what the last leg asked
	// Checkpoint is the last one of this leg; nil: there is none.
	Checkpoint json.RawMessage
}

// An Answer is what somebody said to an Ask.
type Answer struct {
	ID       string // the agent's own of the ask
	CallID   string
	Approval bool // it was about a call of the agent's; else Content is the answer
	Approved bool
	By       string
	Reason   string
	Content  []event.Part
	Expired  bool // nobody answered in time
}

// A Saying is one of the types below.
type Saying interface{ saying() }

type (
	// Text is a piece of a message. With another MessageID than the last one, or
	// after a result, it begins a message; without one it goes on.
	Text struct{ MessageID, Delta string }
	// Reasoning is a piece of what the agent thinks.
	Reasoning struct{ Delta string }
	// ReasoningEnd ends the thought.
	ReasoningEnd struct{}
	// MessageEnd says that what follows is another message.
	MessageEnd struct{}
	// Call begins a call of a tool: one that the agent runs, or that of the client
	// if Task.Tools has it.
	Call struct{ MessageID, CallID, Name string }
	// Args is a piece of a call's arguments.
	Args struct{ CallID, Delta string }
	// Progress tells how far a call is.
	Progress struct {
		CallID string
		event.Progress
	}
	// Result is what a call gave.
	Result struct {
		CallID     string
		Content    []event.Part
		Structured json.RawMessage
		Failed     bool
	}
	// State is the whole state of the session.
	State struct{ State json.RawMessage }
	// StatePatch changes it (RFC 6902).
	StatePatch struct{ Patch json.RawMessage }
	// Activity is a piece of user interface.
	Activity struct {
		ID, Kind string
		Content  json.RawMessage
	}
	// ActivityPatch changes it (RFC 6902).
	ActivityPatch struct {
		ID    string
		Patch json.RawMessage
	}
	// Artifact is a file.
	Artifact struct {
		Name, MediaType string
		Data            []byte
	}
	// Custom is an event with a name of the agent's own.
	Custom struct {
		Name  string
		Value json.RawMessage
	}
	// Raw is for auditors: the log has no better word for it.
	Raw struct {
		Source string
		Event  json.RawMessage
	}
	// Usage adds to what the run has spent.
	Usage struct{ event.Usage }
	// Checkpoint makes what was said so far stand, and Value is what the agent
	// gets back if it is asked anew.
	Checkpoint struct{ Value json.RawMessage }
	// Ask asks people: to approve the call CallID of the agent's, or, without a
	// CallID, to answer. The leg ends without the answer.
	Ask struct {
		ID, CallID string
		Name       string // of the question, as clients see it
		Question   json.RawMessage
		ExpiresAt  *event.Time
	}
)

func (Text) saying()          {}
func (Reasoning) saying()     {}
func (ReasoningEnd) saying()  {}
func (MessageEnd) saying()    {}
func (Call) saying()          {}
func (Args) saying()          {}
func (Progress) saying()      {}
func (Result) saying()        {}
func (State) saying()         {}
func (StatePatch) saying()    {}
func (Activity) saying()      {}
func (ActivityPatch) saying() {}
func (Artifact) saying()      {}
func (Custom) saying()        {}
func (Raw) saying()           {}
func (Usage) saying()         {}
func (Checkpoint) saying()    {}
func (Ask) saying()           {}

// SessionID is the session that the task's run is in.
func (t Task) SessionID() string { return t.Session.SessionID }
