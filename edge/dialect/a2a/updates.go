package a2a

import (
	"encoding/json"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
)

// A statusUpdate says where a task stands now.
type statusUpdate struct {
	TaskID    string    `json:"taskId"`
	ContextID string    `json:"contextId"`
	Status    Status    `json:"status"`
	Metadata  *metadata `json:"metadata,omitempty"`
}

func status(e event.Event, state State, m *Message, more *metadata) []dialect.Message {
	return said("statusUpdate", statusUpdate{e.RunID, e.SessionID, Status{state, m, at(&e.Time)}, more})
}

// An artifactUpdate brings an artifact, or more of it.
type artifactUpdate struct {
	TaskID    string   `json:"taskId"`
	ContextID string   `json:"contextId"`
	Artifact  Artifact `json:"artifact"`
	Append    bool     `json:"append,omitempty"`
	LastChunk bool     `json:"lastChunk,omitempty"`
}

func whole(e event.Event, a Artifact) []dialect.Message {
	return said("artifactUpdate", artifactUpdate{e.RunID, e.SessionID, a, false, true})
}

// runStarted tells the task, or that it has begun.
func (x *encoder) runStarted(e event.Event, d event.RunStartedData) []dialect.Message {
	known := x.task == e.RunID
	x.task, x.text, x.parked, x.calls = e.RunID, "", false, nil
	if known {
		return status(e, Working, nil, nil)
	}
	return said("task", Task{ID: e.RunID, ContextID: e.SessionID, Status: Status{State: Working, Timestamp: at(&e.Time)},
		Metadata: &metadata{about{Agent: d.Agent, TraceID: e.TraceID}}})
}

// runStatus tells of a run that is parked, and of one that goes on.
func (x *encoder) runStatus(e event.Event, d event.RunStatusData) []dialect.Message {
	parks := d.ExpiresAt != nil
	if !parks && !x.parked {
		return nil
	}
	x.parked = parks
	if !parks {
		return status(e, Working, nil, nil)
	}
	return status(e, InputRequired, asking(e.SessionID, e.RunID, *d.ExpiresAt, d.Status == event.WaitingApproval && !waiting(x.calls), x.calls), nil)
}

func (x *encoder) runCompleted(e event.Event, d event.RunCompletedData) []dialect.Message {
	return status(e, Completed, nil, &metadata{about{FinishReason: d.FinishReason, Usage: &d.Usage}})
}

func (x *encoder) runFailed(e event.Event, d event.RunFailedData) []dialect.Message {
	return status(e, Failed, saying(e.SessionID, e.RunID, string(d.Code)+": "+d.Message), &metadata{about{Usage: d.Usage}})
}

func (x *encoder) runCancelled(e event.Event, d event.RunCancelledData) []dialect.Message {
	return status(e, Canceled, saying(e.SessionID, e.RunID, d.Reason), &metadata{about{Usage: d.Usage}})
}

// textDelta begins an artifact, or adds to it.
func (x *encoder) textDelta(e event.Event) []dialect.Message {
	id, text, ok := dialect.Delta(e.Data)
	if !ok || e.Agent != "" || len(text) == len(`""`) {
		return nil
	}
	more := dialect.Quotes(id, x.text)
	if !more {
		x.text = dialect.Unquoted(id)
	}
	o := dialect.NewObject(len(e.Data)+len(e.RunID)+len(e.SessionID)+128).Open("artifactUpdate").
		Text("taskId", e.RunID).Text("contextId", e.SessionID).Open("artifact").Raw("artifactId", id)
	if !more {
		o = o.Text("name", answerName)
	}
	o = append(append(append(o, `,"parts":[{"text":`...), text...), `}]}`...)
	if more {
		o = append(o, `,"append":true`...)
	}
	return o.Close().One("")
}

// messageCompleted ends an answer's artifact. What is no text comes with it.
func (x *encoder) messageCompleted(e event.Event, d event.MessageCompletedData) []dialect.Message {
	if d.Role != event.RoleAssistant || e.CommandID != "" {
		return nil
	}
	begun := x.text == d.MessageID
	x.text = ""
	u := artifactUpdate{e.RunID, e.SessionID, Artifact{ArtifactID: d.MessageID, Name: answerName, Parts: spoken(d.Parts, x.Base)}, false, true}
	if begun {
		u.Append, u.Artifact.Name, u.Artifact.Parts = true, "", besides(u.Artifact.Parts)
	}
	if len(u.Artifact.Parts) == 0 {
		return nil
	}
	x.said[d.MessageID] = e.Agent == ""
	return said("artifactUpdate", u)
}

// besides are the parts that are no text, or an empty text: there is no artifact
// without a part.
func besides(list []Part) []Part {
	var kept []Part
	for _, p := range list {
		if p.Text == nil {
			kept = append(kept, p)
		}
	}
	if kept == nil {
		return []Part{textPart("")}
	}
	return kept
}

// messageDiscarded empties the artifact of an attempt that is taken back.
func (x *encoder) messageDiscarded(e event.Event, d event.MessageDiscardedData) []dialect.Message {
	x.dropCallsOf(d.MessageID)
	if d.MessageID != x.text && !x.said[d.MessageID] || e.Agent != "" {
		return nil
	}
	if d.MessageID == x.text {
		x.text = ""
	}
	delete(x.said, d.MessageID)
	return whole(e, Artifact{d.MessageID, answerName, []Part{textPart("")}, &metadata{about{Discarded: d.Reason}}})
}

func (x *encoder) artifactCompleted(e event.Event, d event.ArtifactCompletedData) []dialect.Message {
	return whole(e, fileOf(x.Base, d.ArtifactID, d.Name, d.MediaType, d.Bytes, d.SHA256, d.URL))
}

func (x *encoder) stateSnapshot(e event.Event, d event.StateSnapshotData) []dialect.Message {
	x.state = d.State
	return whole(e, stateOf(d.State))
}

// stateDelta tells the whole state: A2A has no word for a change of it.
func (x *encoder) stateDelta(e event.Event, d event.StateDeltaData) []dialect.Message {
	state, err := event.Patch(x.state, d.Patch)
	if err != nil {
		return nil
	}
	return x.stateSnapshot(e, event.StateSnapshotData{State: state})
}

func (x *encoder) activitySnapshot(e event.Event, d event.ActivityData) []dialect.Message {
	x.keep(d)
	return whole(e, activityOf(d))
}

func (x *encoder) keep(d event.ActivityData) {
	if x.acts == nil {
		x.acts = dialect.Activities{}
	}
	x.acts[d.ActivityID] = d
}

func (x *encoder) activityDelta(e event.Event, d event.ActivityDeltaData) []dialect.Message {
	a, ok := x.acts.Patched(d)
	if !ok {
		return nil
	}
	return x.activitySnapshot(e, a)
}

func (x *encoder) budgetExceeded(e event.Event, d event.BudgetExceededData) []dialect.Message {
	return x.happens(e, "budget_exceeded", d)
}

func (x *encoder) custom(e event.Event, d event.CustomData) []dialect.Message {
	return x.happens(e, "custom", d)
}

// happens tells of what has no word of its own: as data in a message of the status.
func (x *encoder) happens(e event.Event, kind string, d any) []dialect.Message {
	state := Working
	if x.parked {
		state = InputRequired
	}
	return status(e, state, &Message{e.ID, e.SessionID, e.RunID, "ROLE_AGENT", []Part{dataPart(kind, d)}}, nil)
}

// dataPart is {type: kind, …the members of d}.
func dataPart(kind string, d any) Part {
	raw := event.Encode(d)
	data := dialect.NewObject(len(raw)).Text("type", kind)
	if len(raw) > len("{}") {
		data = append(append(data, ','), raw[1:len(raw)-1]...)
	}
	return Part{Data: json.RawMessage(data.Close()), MediaType: "application/json"}
}
