// Package dialect says what a wire protocol of a stream is: a pure encoder from
// a stored event to the messages that a client of that protocol reads. How they
// travel is a transport's business (edge/stream).
package dialect

import "github.com/runlog-dev/runlog/event"

// A Message is one wire message. Data is JSON on a single line, at most.
type Message struct {
	Event string // its name where the transport has names; empty: none
	Data  []byte
	// Bare data does not say what it is: a transport without names adds the
	// member "type" with Event's value.
	Bare bool
}

// A Dialect encodes. Its methods are pure, so that what they return is made once
// and shared by all viewers: nobody changes a Message. Values must be comparable.
type Dialect interface {
	// Name is what clients ask for with ?dialect=.
	Name() string
	// Event encodes a stored event; line is the event as stored, without line
	// end. None if the audience does not see it.
	Event(e event.Event, line []byte, to Audience) []Message
	// Snapshot encodes the fold that replaces what the client has: kind is
	// event: snapshot (it asked) or reset (what it asked for is gone).
	Snapshot(kind Kind, s *event.Session, to Audience) []Message
	// Heartbeat says that a run is alive; none: the transport's ping must do.
	Heartbeat(Heartbeat) []Message
	// Moved takes the client's cursor past events that it does not see; none:
	// the transport's ping must do.
	Moved(event.Seq) []Message
}

// Quiet is for dialects to embed whose protocol has no word for signs of life: the
// transport's pings must do.
type Quiet struct{}

// Heartbeat is left to pings.
func (Quiet) Heartbeat(Heartbeat) []Message { return nil }

// Moved is left to pings.
func (Quiet) Moved(event.Seq) []Message { return nil }

// AsFold is for dialects to embed that tell a snapshot as the native dialect tells it to
// clients.
type AsFold struct{}

// Snapshot is the fold in its JSON form.
func (AsFold) Snapshot(kind Kind, s *event.Session, _ Audience) []Message {
	return []Message{{Event: string(kind), Data: s.EncodePublic(), Bare: true}}
}

// Audience says who reads.
type Audience bool

// Clients see what agents emit, auditors everything.
const (
	Client  Audience = false
	Auditor Audience = true
)

// Kind of a snapshot message.
type Kind string

// Snapshot and Reset carry the same fold.
const (
	Snapshot Kind = "snapshot"
	Reset    Kind = "reset"
)

// A Heartbeat is a sign of life of a run, or of its absence.
type Heartbeat struct {
	Status    event.Status `json:"status"`     // of the run, or Unattended
	ElapsedMS int64        `json:"elapsed_ms"` // since the run started
	Head      event.Seq    `json:"head"`       // last event there is

	// Of the stream: the cursor of what it has shown, and the time.
	At   string     `json:"-"`
	Time event.Time `json:"-"`
}

// Unattended is the status of a run whose owner has been silent for two leases;
// another worker will take it over.
const Unattended event.Status = "unattended"
