package event

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// FoldVersion changes when the same events fold to another Session, so that
// stored snapshots of an older fold are made anew.
const FoldVersion = 5

// keptCommands is how many command ids a session remembers, so that a command
// delivered again is known (its inbox entry outlives it by seconds, not by this).
const keptCommands = 1000

// A Session is the fold of a session's events 1..Seq: the whole conversation as
// a value. It is not safe for concurrent use.
type Session struct {
	V          int             `json:"v"`
	Seq        Seq             `json:"seq"`
	SessionID  string          `json:"session_id"`
	Agent      string          `json:"agent"`
	CreatedAt  Time            `json:"created_at"`
	Metadata   json.RawMessage `json:"metadata,omitempty"`
	Messages   []*Message      `json:"messages,omitempty"`
	ToolCalls  []*ToolCall     `json:"tool_calls,omitempty"`
	Artifacts  []*Artifact     `json:"artifacts,omitempty"`
	Approvals  []*Approval     `json:"approvals,omitempty"` // open ones
	Runs       []*Run          `json:"runs,omitempty"`
	State      json.RawMessage `json:"state,omitempty"`
	Activities []*Activity     `json:"activities,omitempty"`

	// Book is what workers need and clients do not see.
	Book *Book `json:"book,omitempty"`

	messages  map[string]*Message
	calls     map[string]*ToolCall
	artifacts map[string]*Artifact
	runs      map[string]*Run
}

// Book is the worker's part of a fold.
type Book struct {
	Fold      int       `json:"fold"`            // FoldVersion
	Epoch     Epoch     `json:"epoch,omitempty"` // of the last event
	Commands  []string  `json:"commands,omitempty"`
	Queue     []*Queued `json:"queue,omitempty"`     // runs that wait their turn, in order
	Reasoning []*Part   `json:"reasoning,omitempty"` // of the message that has not started yet
	Thinking  string    `json:"thinking,omitempty"`  // the run whose reasoning it is
	Claim     *Claim    `json:"claim,omitempty"`     // the last one
	// Claims counts claims since the last step or tool result: a session that
	// kills its workers never makes progress.
	Claims int `json:"claims,omitempty"`
	// Raised is what was added to the budget of the whole session.
	Raised Limits `json:"raised,omitzero"`
}

// A Claim says which worker took the session over, and whether it let go.
type Claim struct {
	Worker   string `json:"worker"`
	Attempt  int    `json:"attempt"`
	Seq      Seq    `json:"seq"`
	Released bool   `json:"released,omitempty"`
}

// Queued is a run that was accepted while another one was going on.
type Queued struct {
	RunID   string `json:"run_id"`
	TraceID string `json:"trace_id,omitempty"`
	RunQueuedData
}

// A Message of the conversation. Parts of a streaming one grow.
type Message struct {
	MessageID string  `json:"message_id"`
	RunID     string  `json:"run_id,omitempty"`
	Role      Role    `json:"role"`
	Status    Status  `json:"status"` // streaming | completed
	Parts     []*Part `json:"parts"`
}

// A ToolCall with its state. Args is the model's raw text.
type ToolCall struct {
	CallID     string          `json:"call_id"`
	RunID      string          `json:"run_id,omitempty"`
	MessageID  string          `json:"message_id"`
	Name       string          `json:"name"`
	Executor   Executor        `json:"executor"`
	Args       string          `json:"args"`
	Status     Status          `json:"status"` // pending | waiting_approval | running | completed | failed
	Attempt    int             `json:"attempt,omitempty"`
	Progress   *Progress       `json:"progress,omitempty"`
	Content    []Part          `json:"content,omitempty"`
	Structured json.RawMessage `json:"structured,omitempty"`
	Truncated  bool            `json:"truncated,omitempty"`
	Artifact   *Part           `json:"artifact,omitempty"`
	Code       Code            `json:"code,omitempty"`
	Message    string          `json:"message,omitempty"`
	Outcome    Outcome         `json:"outcome,omitempty"`
	Redacted   bool            `json:"redacted,omitempty"`
	Decision   *Decided        `json:"decision,omitempty"` // of a call that needed approval
	Internal   bool            `json:"internal,omitempty"`
	Streaming  bool            `json:"streaming,omitempty"` // its arguments are not complete

	growing []byte
}

// Decided is what somebody said to a call that needed approval.
type Decided struct {
	Decision Decision `json:"decision"`
	By       string   `json:"by"`
	Reason   string   `json:"reason,omitempty"`
}

// Waits reports that the call waits for somebody outside: an approval, or the
// client that runs it.
func (c *ToolCall) Waits() bool {
	return !c.Done() && (c.Executor == ByClient || c.Status == WaitingApproval)
}

// InDoubt reports that a worker was lost while the tool ran, and that somebody was
// asked what is to become of the call.
func (c *ToolCall) InDoubt() bool { return c.Status == WaitingApproval && c.Attempt > 0 }

// Done reports whether the call has its result.
func (c *ToolCall) Done() bool { return c.Status == Completed || c.Status == Failed }

// An Artifact of the session.
type Artifact struct {
	ArtifactID string `json:"artifact_id"`
	RunID      string `json:"run_id,omitempty"`
	CallID     string `json:"call_id,omitempty"` // not public
	Name       string `json:"name"`
	MediaType  string `json:"media_type"`
	Bytes      int64  `json:"bytes"`
	SHA256     string `json:"sha256,omitempty"`
	URL        string `json:"url,omitempty"`
	Status     Status `json:"status"` // writing | completed | abandoned
	Internal   bool   `json:"internal,omitempty"`
}

// An Approval that somebody must give.
type Approval struct {
	RunID string `json:"run_id"`
	ApprovalRequestedData
}

// An Activity is an opaque piece of user interface that an agent keeps current.
type Activity struct {
	ActivityData
	Internal bool `json:"internal,omitempty"`
}

// NewSession returns the fold of no events.
func NewSession(id string) *Session {
	s := &Session{V: Version, SessionID: id, Book: &Book{Fold: FoldVersion}}
	s.index()
	return s
}

// DecodeSession reads a snapshot written by Encode. One of another fold version
// gives ErrOtherFold: fold the events anew.
func DecodeSession(b []byte) (*Session, error) {
	s := &Session{}
	if err := json.Unmarshal(b, s); err != nil {
		return nil, fmt.Errorf("decode snapshot: %w", err)
	}
	if s.V != Version || s.Book == nil || s.Book.Fold != FoldVersion {
		return nil, ErrOtherFold
	}
	for _, r := range s.Runs {
		if r.Book == nil {
			r.Book = &RunBook{}
		}
	}
	s.index()
	return s, nil
}

// ErrOtherFold is returned for a snapshot made by another version of the fold.
var ErrOtherFold = errors.New("snapshot of another fold version")

// Encode writes the whole fold, the worker's part included.
func (s *Session) Encode() []byte {
	s.settle()
	return Encode(s)
}

// MessageByID, Call, ArtifactByID and Run find one by id, or nil.
func (s *Session) MessageByID(id string) *Message   { return s.messages[id] }
func (s *Session) Call(id string) *ToolCall         { return s.calls[id] }
func (s *Session) ArtifactByID(id string) *Artifact { return s.artifacts[id] }
func (s *Session) Run(id string) *Run               { return s.runs[id] }

// Active returns the run that was started and has not ended, or nil. There is
// at most one besides its sub-agents' runs.
func (s *Session) Active() *Run {
	for i := len(s.Runs) - 1; i >= 0; i-- {
		r := s.Runs[i]
		if r.StartedAt != nil && !r.Status.Terminal() && r.ParentRunID == "" {
			return r
		}
	}
	return nil
}

// Free reports that a new run could start at once.
func (s *Session) Free() bool { return s.Active() == nil && len(s.Book.Queue) == 0 }

// Parked returns the active run if all it can do is wait for somebody outside:
// for a larger budget, or because each of its open calls does, and there is one.
func (s *Session) Parked() *Run {
	if run := s.Active(); run != nil && s.parked(run) {
		return run
	}
	return nil
}

func (s *Session) parked(run *Run) bool {
	if run.Status != WaitingApproval && run.Status != WaitingTool {
		return false
	}
	if run.Paused() {
		return true
	}
	waits := false
	for _, c := range s.ToolCalls {
		if c.RunID == run.RunID && !c.Done() {
			if !s.Waits(c) {
				return false
			}
			waits = true
		}
	}
	return waits
}

// Waits reports that the call waits for somebody outside, or that the run under
// it does.
func (s *Session) Waits(c *ToolCall) bool {
	if c.Waits() || c.Status != Running {
		return c.Waits()
	}
	for _, r := range s.Runs {
		if r.ParentRunID == c.RunID && r.ParentCallID == c.CallID && !r.Status.Terminal() {
			return s.parked(r)
		}
	}
	return false
}

// Within reports that a run is another one, or works for it.
func (s *Session) Within(runID, above string) bool {
	for range len(s.Runs) + 1 {
		r := s.runs[runID]
		if r == nil || runID == above {
			return r != nil
		}
		runID = r.ParentRunID
	}
	return false
}

// Idle reports that nothing in the log asks for a worker: runs in the queue wait
// for the active one, and that one for somebody outside.
func (s *Session) Idle() bool { return s.Free() || s.Parked() != nil }

// Knows reports whether a command was already answered by an event.
func (s *Session) Knows(commandID string) bool {
	return slices.Contains(s.Book.Commands, commandID)
}

// Asked returns the text that the user said last in a run.
func (s *Session) Asked(runID string) string {
	for _, m := range slices.Backward(s.Messages) {
		if m.RunID != runID || m.Role != RoleUser {
			continue
		}
		var texts []string
		for _, p := range m.Parts {
			if p.Type == PartText {
				texts = append(texts, p.Text)
			}
		}
		return strings.Join(texts, "\n")
	}
	return ""
}

// CallsOf returns the calls of one message in their order.
func (s *Session) CallsOf(messageID string) []*ToolCall {
	var calls []*ToolCall
	for _, c := range s.ToolCalls {
		if c.MessageID == messageID {
			calls = append(calls, c)
		}
	}
	return calls
}

// CallIndex is the ordinal of a call among those of its message.
func (s *Session) CallIndex(c *ToolCall) int {
	n := 0
	for _, other := range s.ToolCalls {
		if other == c {
			return n
		}
		if other.MessageID == c.MessageID {
			n++
		}
	}
	return -1
}

func (s *Session) index() {
	s.messages, s.calls = map[string]*Message{}, map[string]*ToolCall{}
	s.artifacts, s.runs = map[string]*Artifact{}, map[string]*Run{}
	for _, m := range s.Messages {
		s.messages[m.MessageID] = m
	}
	for _, c := range s.ToolCalls {
		s.calls[c.CallID] = c
	}
	for _, a := range s.Artifacts {
		s.artifacts[a.ArtifactID] = a
	}
	for _, r := range s.Runs {
		s.runs[r.RunID] = r
	}
}
