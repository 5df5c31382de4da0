package a2a

import (
	"encoding/json"
	"strings"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
)

// A State is where a task stands.
type State string

// The states that runs have.
const (
	Submitted     State = "TASK_STATE_SUBMITTED"
	Working       State = "TASK_STATE_WORKING"
	InputRequired State = "TASK_STATE_INPUT_REQUIRED"
	Completed     State = "TASK_STATE_COMPLETED"
	Failed        State = "TASK_STATE_FAILED"
	Canceled      State = "TASK_STATE_CANCELED"
)

// A Task is what became of a run so far.
type Task struct {
	ID        string     `json:"id"`
	ContextID string     `json:"contextId"`
	Status    Status     `json:"status"`
	Artifacts []Artifact `json:"artifacts,omitempty"`
	History   []Message  `json:"history,omitempty"` // what clients have said to it
	Metadata  *metadata  `json:"metadata,omitempty"`
}

// A Status is a state, since when, and what there is to say about it.
type Status struct {
	State     State    `json:"state"`
	Message   *Message `json:"message,omitempty"`
	Timestamp string   `json:"timestamp,omitempty"` // RFC 3339, milliseconds
}

// A Message of a client's or of the agent's.
type Message struct {
	MessageID string `json:"messageId"`
	ContextID string `json:"contextId,omitempty"`
	TaskID    string `json:"taskId,omitempty"`
	Role      string `json:"role"` // ROLE_USER | ROLE_AGENT
	Parts     []Part `json:"parts"`
}

// A Part is a text, data or a file by its URL.
type Part struct {
	Text      *string         `json:"text,omitempty"`
	Data      json.RawMessage `json:"data,omitempty"`
	URL       string          `json:"url,omitempty"`
	Filename  string          `json:"filename,omitempty"`
	MediaType string          `json:"mediaType,omitempty"`
}

// An Artifact is something that a task makes.
type Artifact struct {
	ArtifactID string    `json:"artifactId"`
	Name       string    `json:"name,omitempty"`
	Parts      []Part    `json:"parts"`
	Metadata   *metadata `json:"metadata,omitempty"`
}

// metadata is what A2A has no member for.
type metadata struct {
	Runlog about `json:"runlog"`
}

type about struct {
	Agent        string             `json:"agent,omitempty"`
	TraceID      string             `json:"trace_id,omitempty"`
	FinishReason event.FinishReason `json:"finish_reason,omitempty"`
	Usage        *event.Usage       `json:"usage,omitempty"`
	Bytes        int64              `json:"bytes,omitempty"`
	SHA256       string             `json:"sha256,omitempty"`
	Discarded    string             `json:"discarded,omitempty"` // why an attempt was taken back
}

// AllHistory is no limit for the history of a task.
const AllHistory = -1

// Task makes the task of a run from the session around it, which may be that of
// no events. history is how many of the last messages are wanted.
func (d Dialect) Task(s *event.Session, run *event.Run, history int) Task {
	s = s.View()
	t := Task{ID: run.RunID, ContextID: s.SessionID, Status: d.Status(s, run), Artifacts: artifactsOf(s, run, d.Base)}
	more := about{Agent: run.Agent, TraceID: run.TraceID, FinishReason: run.FinishReason}
	if run.Status.Terminal() {
		more.Usage = &run.Usage
	}
	if more != (about{}) {
		t.Metadata = &metadata{more}
	}
	for _, m := range s.Messages {
		if m.RunID == run.RunID && m.Role == event.RoleUser {
			t.History = append(t.History, Message{m.MessageID, s.SessionID, run.RunID, "ROLE_USER", partsOf(event.Values(m.Parts), d.Base)})
		}
	}
	if n := len(t.History); history >= 0 && n > history {
		t.History = t.History[n-history:]
	}
	return t
}

// Status is where the task of a run stands.
func (d Dialect) Status(s *event.Session, run *event.Run) Status {
	switch {
	case run.Status == event.Pending || run.StartedAt == nil && !run.Status.Terminal():
		return Status{State: Submitted}
	case run.Status == event.Completed:
		return Status{State: Completed, Timestamp: at(run.EndedAt)}
	case run.Status == event.Failed:
		return Status{Failed, failure(s.SessionID, run), at(run.EndedAt)}
	case run.Status == event.Cancelled:
		return Status{Canceled, saying(s.SessionID, run.RunID, run.Reason), at(run.EndedAt)}
	case run.ExpiresAt != nil && s.Parked() != nil && s.Seq > d.Answered:
		since := run.StartedAt
		if run.Book != nil && run.Book.Parked != nil {
			since = run.Book.Parked
		}
		return Status{InputRequired, asking(s.SessionID, run.RunID, *run.ExpiresAt, run.Paused(), openCalls(s, run)), at(since)}
	}
	return Status{State: Working, Timestamp: at(run.StartedAt)}
}

func failure(session string, run *event.Run) *Message {
	if run.Error == nil {
		return nil
	}
	return saying(session, run.RunID, string(run.Error.Code)+": "+run.Error.Message)
}

// saying is what the agent says at a run's end, nil if that is nothing.
func saying(session, run, text string) *Message {
	if text == "" {
		return nil
	}
	return &Message{run + ".end", session, run, "ROLE_AGENT", []Part{textPart(text)}}
}

// artifactsOf are a run's answers, its files, and what the session keeps current.
func artifactsOf(s *event.Session, run *event.Run, base string) []Artifact {
	var list []Artifact
	for _, m := range s.Messages {
		if m.RunID != run.RunID || m.Role != event.RoleAssistant {
			continue
		}
		if parts := spoken(event.Values(m.Parts), base); len(parts) > 0 {
			list = append(list, Artifact{ArtifactID: m.MessageID, Name: answerName, Parts: parts})
		}
	}
	for _, a := range s.Artifacts {
		if s.Within(a.RunID, run.RunID) && a.Status == event.Completed && !a.Internal {
			list = append(list, fileOf(base, a.ArtifactID, a.Name, a.MediaType, a.Bytes, a.SHA256, a.URL))
		}
	}
	for _, a := range s.Activities {
		if !a.Internal {
			list = append(list, activityOf(a.ActivityData))
		}
	}
	if len(s.State) > 0 {
		list = append(list, stateOf(s.State))
	}
	return list
}

// Names of artifacts that have none of their own.
const (
	answerName = "answer"
	stateName  = "state"
)

func fileOf(base, id, name, mediaType string, size int64, sha256, url string) Artifact {
	return Artifact{id, name, []Part{{URL: absolute(base, url), Filename: name, MediaType: mediaType}}, &metadata{about{Bytes: size, SHA256: sha256}}}
}

func stateOf(state json.RawMessage) Artifact {
	return Artifact{ArtifactID: stateName, Name: stateName, Parts: []Part{{Data: state, MediaType: "application/json"}}}
}

// activityOf is a piece of user interface: A2UI as its extension to A2A has it,
// one operation to a part.
func activityOf(a event.ActivityData) Artifact {
	made := Artifact{ArtifactID: a.ActivityID, Name: a.Kind}
	var ui struct {
		Operations []json.RawMessage `json:"a2ui_operations"`
	}
	if json.Unmarshal(a.Content, &ui) != nil || len(ui.Operations) == 0 {
		made.Parts = []Part{{Data: a.Content, MediaType: "application/json"}}
	}
	for _, op := range ui.Operations {
		made.Parts = append(made.Parts, Part{Data: op, MediaType: "application/json+a2ui"})
	}
	return made
}

// partsOf are the parts of a message, but for what is no part of A2A's.
func partsOf(list []event.Part, base string) []Part {
	parts := []Part{}
	for _, p := range list {
		switch {
		case p.Internal, p.Type == event.PartReasoning, p.Type == event.PartToolCall:
		case p.Type == event.PartText:
			parts = append(parts, textPart(p.Text))
		case p.Type == event.PartJSON:
			parts = append(parts, Part{Data: p.Value, MediaType: "application/json"})
		default:
			parts = append(parts, Part{URL: absolute(base, p.URL+p.URI), Filename: p.Name, MediaType: p.MediaType})
		}
	}
	return parts
}

// spoken are the parts of an answer: none if it says nothing.
func spoken(list []event.Part, base string) []Part {
	parts := partsOf(list, base)
	kept := parts[:0]
	for _, p := range parts {
		if p.Text == nil || *p.Text != "" {
			kept = append(kept, p)
		}
	}
	return kept
}

func textPart(text string) Part { return Part{Text: &text} }

// streaming is the message of a run that is being written and has begun an
// artifact.
func streaming(s *event.Session, run *event.Run) string {
	for _, m := range s.View().Messages {
		if m.RunID == run.RunID && m.Status == event.Streaming && len(spoken(event.Values(m.Parts), "")) > 0 {
			return m.MessageID
		}
	}
	return ""
}

func absolute(base, url string) string {
	if strings.HasPrefix(url, "/") {
		return base + url
	}
	return url
}

func at(t *event.Time) string {
	if t == nil {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z")
}

// said is one StreamResponse.
func said(kind string, v any) []dialect.Message {
	return dialect.NewObject(512).Value(kind, v).One("")
}
