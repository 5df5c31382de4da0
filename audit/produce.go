package audit

import (
	"encoding/json"

	"github.com/runlog-dev/runlog/event"
)

// file is an artifact as the log tells it.
type file struct {
	run, call string
	bytes     int64
	done      bool
}

// runs reports that the call is being run, as far as the log can know.
func (c *call) runs() bool { return c.held || c.executor == event.ByRemote }

// produce follows artifacts, state and activities.
func (c *Checker) produce(e event.Event) {
	switch e.Type {
	case event.ArtifactStarted:
		c.artifactStarted(e)
	case event.ArtifactProgress, event.ArtifactCompleted:
		c.artifactGrows(e)
	case event.StateSnapshot:
		data[event.StateSnapshotData](c, e)
	case event.StateDelta:
		if d, ok := data[event.StateDeltaData](c, e); ok && !c.broken {
			c.patch("state", c.fold.State, d.Patch)
		}
	case event.ActivitySnapshot:
		if d, ok := data[event.ActivityData](c, e); ok {
			c.acts[d.ActivityID] = true
		}
	case event.ActivityDelta:
		c.activityDelta(e)
	}
}

func (c *Checker) artifactStarted(e event.Event) {
	d, ok := data[event.ArtifactStartedData](c, e)
	if !ok {
		return
	}
	if c.files[d.ArtifactID] != nil {
		c.wrong(ArtifactPair, "artifact %s was begun before", d.ArtifactID)
	}
	if call := c.calls[d.CallID]; d.CallID != "" && (call == nil || !call.runs() || call.done || call.run != e.RunID) {
		c.wrong(ArtifactPair, "artifact %s is begun by call %s, which is not running", d.ArtifactID, d.CallID)
	}
	c.files[d.ArtifactID] = &file{run: e.RunID, call: d.CallID}
}

func (c *Checker) artifactGrows(e event.Event) {
	d, ok := data[event.ArtifactCompletedData](c, e)
	if !ok {
		return
	}
	f := c.files[d.ArtifactID]
	if f == nil || f.done || f.run != e.RunID {
		c.wrong(ArtifactPair, "artifact %s is not being written", d.ArtifactID)
		return
	}
	if call := c.calls[f.call]; call != nil && (!call.runs() || call.done) {
		c.wrong(ArtifactPair, "artifact %s is written by call %s, which is not running", d.ArtifactID, f.call)
	}
	if d.Bytes < f.bytes {
		c.wrong(ArtifactPair, "artifact %s shrinks from %d bytes to %d", d.ArtifactID, f.bytes, d.Bytes)
	}
	f.bytes = d.Bytes
	if e.Type == event.ArtifactCompleted {
		f.done = true
		if len(d.SHA256) != 64 || d.URL == "" || d.CallID != f.call {
			c.wrong(ArtifactPair, "artifact %s is completed by call %q with sha256 %q at %q", d.ArtifactID, d.CallID, d.SHA256, d.URL)
		}
	}
}

func (c *Checker) activityDelta(e event.Event) {
	d, ok := data[event.ActivityDeltaData](c, e)
	if !ok {
		return
	}
	if !c.acts[d.ActivityID] {
		c.wrong(PatchFits, "activity %s has no snapshot", d.ActivityID)
		return
	}
	for _, a := range c.fold.Activities {
		if a.ActivityID == d.ActivityID && !c.broken {
			c.patch("activity "+d.ActivityID, a.Content, d.Patch)
		}
	}
}

func (c *Checker) patch(what string, doc, patch json.RawMessage) {
	if _, err := event.Patch(doc, patch); err != nil {
		c.wrong(PatchFits, "of %s: %v", what, err)
	}
}
