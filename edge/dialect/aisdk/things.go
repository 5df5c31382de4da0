package aisdk

import (
	"encoding/json"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
)

// data tells of something that the protocol has no word for. With an id it
// replaces what was told with that id before.
func (x *encoder) data(kind, id string, value json.RawMessage) []dialect.Message {
	if len(value) == 0 {
		value = json.RawMessage("null")
	}
	key := ""
	if id != "" {
		key = kind + "\x00" + id
	}
	return x.place(key, dataChunk(kind, len(value)).Some("id", id).Raw("data", value).Message(""))
}

func dataChunk(kind string, size int) dialect.Object {
	return dialect.NewObject(size).Text("type", kind)
}

// place remembers what a discarded attempt takes along.
func (x *encoder) place(key string, m dialect.Message) []dialect.Message {
	if key == "" || !x.placed[key] {
		at := len(x.inStep)
		for i, d := range x.inStep {
			if key != "" && d.key == key {
				at = i
			}
		}
		x.inStep = append(x.inStep[:at:at], append([]datum{{key, m}}, x.inStep[min(at+1, len(x.inStep)):]...)...)
	}
	return []dialect.Message{m}
}

type artifact struct {
	ArtifactID string       `json:"artifact_id"`
	Status     event.Status `json:"status"`
	CallID     string       `json:"call_id,omitempty"`
	Name       string       `json:"name,omitempty"`
	MediaType  string       `json:"media_type,omitempty"`
	Bytes      int64        `json:"bytes,omitempty"`
	SHA256     string       `json:"sha256,omitempty"`
	URL        string       `json:"url,omitempty"`
}

func (x *encoder) artifactStarted(_ event.Event, d event.ArtifactStartedData) []dialect.Message {
	return x.artifact(artifact{ArtifactID: d.ArtifactID, Status: event.Writing, CallID: d.CallID, Name: d.Name, MediaType: d.MediaType})
}

func (x *encoder) artifactProgress(_ event.Event, d event.ArtifactProgressData) []dialect.Message {
	return x.artifact(artifact{ArtifactID: d.ArtifactID, Status: event.Writing, Bytes: d.Bytes})
}

// artifactCompleted is a file besides.
func (x *encoder) artifactCompleted(_ event.Event, d event.ArtifactCompletedData) []dialect.Message {
	list := x.artifact(artifact{d.ArtifactID, event.Completed, d.CallID, d.Name, d.MediaType, d.Bytes, d.SHA256, d.URL})
	file := chunk("file", 128).Text("url", d.URL).Text("mediaType", mediaType(d.MediaType)).Message("")
	return append(list, x.place("", file)...)
}

func (x *encoder) artifact(a artifact) []dialect.Message {
	return x.data("data-artifact", a.ArtifactID, event.Encode(a))
}

func (x *encoder) stateSnapshot(_ event.Event, d event.StateSnapshotData) []dialect.Message {
	x.state = d.State
	return x.data("data-state", "state", x.state)
}

// stateDelta tells the whole state: clients have no word for a change of it.
func (x *encoder) stateDelta(_ event.Event, d event.StateDeltaData) []dialect.Message {
	state, err := event.Patch(x.state, d.Patch)
	if err != nil {
		return nil
	}
	x.state = state
	return x.data("data-state", "state", state)
}

func (x *encoder) activitySnapshot(_ event.Event, d event.ActivityData) []dialect.Message {
	x.acts[d.ActivityID] = d
	return x.data("data-activity", d.ActivityID, event.Encode(d))
}

func (x *encoder) activityDelta(e event.Event, d event.ActivityDeltaData) []dialect.Message {
	a, ok := x.acts.Patched(d)
	if !ok {
		return nil
	}
	return x.activitySnapshot(e, a)
}

func (x *encoder) budgetExceeded(e event.Event) []dialect.Message {
	return x.data("data-budget", "", e.Data)
}

func (x *encoder) custom(_ event.Event, d event.CustomData) []dialect.Message {
	return x.data("data-"+d.Name, "", d.Value)
}

// subagent tells what a sub-agent does to those who look at the session: it is no
// part of the message.
func subagent(e event.Event) []dialect.Message {
	value := event.Encode(struct {
		RunID string          `json:"run_id"`
		Agent string          `json:"agent"`
		Type  event.Type      `json:"type"`
		Data  json.RawMessage `json:"data"`
	}{e.RunID, e.Agent, e.Type, dialect.PublicData(e)})
	return dataChunk("data-subagent", len(value)).Raw("data", value).Value("transient", true).One("")
}
