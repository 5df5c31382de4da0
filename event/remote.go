package event

import (
	"encoding/json"
	"slices"
)

// RemoteEvent is the name of the custom event, internal, by which the run of an
// agent that lives elsewhere marks where it can be asked anew. Its value is a
// RemoteMark.
const RemoteEvent = "remote"

// ReservedName reports whether custom events of this name are runlog's own:
// nobody else may write them.
func ReservedName(name string) bool {
	return name == RemoteEvent || name == OnceEvent || name == CutEvent
}

// A RemoteMark says how far an agent that lives elsewhere has come: what it said
// before the mark stands, whoever dies.
type RemoteMark struct {
	Leg        int             `json:"leg"`                  // 1, 2, … of the run: it is asked again after each wait
	Checkpoint json.RawMessage `json:"checkpoint,omitempty"` // what it wants back if it is asked anew
	// Keep: what it has completed stands even so, since nobody will ask it anew.
	Keep bool `json:"keep,omitempty"`
	// Ended: it has said all of this leg, and waits for answers to Asks.
	Ended bool  `json:"ended,omitempty"`
	Asks  []Ask `json:"asks,omitempty"`
}

// An Ask is a question of such an agent, put to people as an approval of a call,
// or as a call that the client runs.
type Ask struct {
	ID        string `json:"id"` // the agent's own
	CallID    string `json:"call_id"`
	ExpiresAt *Time  `json:"expires_at,omitempty"`
}

// Remote is a run's last mark, and what has been said since. Each fold and each
// view has its own: a leg may have very many messages, and each of them is noted.
type Remote struct {
	RemoteMark
	Asked []Ask           `json:"asked,omitempty"` // by the leg before this one
	Said  []string        `json:"said,omitempty"`  // messages since the mark
	Gone  []string        `json:"gone,omitempty"`  // messages that were taken back: their ids are used up
	State json.RawMessage `json:"state,omitempty"` // of the session, at the mark
}

func (r *Remote) clone() *Remote {
	if r == nil {
		return nil
	}
	c := *r
	c.Said, c.Gone = slices.Clone(r.Said), slices.Clone(r.Gone)
	return &c
}

// marked folds a mark.
func (b *RunBook) marked(m RemoteMark, state json.RawMessage) {
	next := Remote{RemoteMark: m, State: state}
	if was := b.Remote; was != nil {
		next.Asked, next.Gone = was.Asked, was.Gone
		if m.Leg > was.Leg {
			next.Asked = was.Asks
		}
		if m.Ended {
			next.Said, next.State = was.Said, was.State
		}
	}
	b.Remote = &next
}

func (b *RunBook) said(messageID string) {
	if b.Remote != nil && b.InStep {
		b.Remote.Said = append(b.Remote.Said, messageID)
	}
}

func (b *RunBook) tookBack(messageID string) {
	if b.Answer == messageID {
		b.Answer = ""
	}
	if b.Remote == nil {
		return
	}
	for i, id := range slices.Backward(b.Remote.Said) { // the last one goes first
		if id == messageID {
			b.Remote.Said = slices.Delete(b.Remote.Said, i, i+1)
			break
		}
	}
	b.Remote.Gone = append(b.Remote.Gone, messageID)
}
