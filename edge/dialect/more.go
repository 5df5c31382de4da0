package dialect

import "github.com/runlog-dev/runlog/event"

// A Folding dialect cannot tell some types by their event alone: it needs what
// the session was before it. Those of its events are encoded with the fold of
// everything before them, which is the same on every edge; it costs a read of the
// log, so it is for what is rare.
type Folding interface {
	Dialect
	// Folds reports whether an event is to be encoded by EventAfter.
	Folds(event.Event) bool
	// EventAfter encodes an event that follows a session, which it does not change.
	EventAfter(before *event.Session, e event.Event, line []byte, to Audience) []Message
}

// A Closing dialect may hand on closers (message.completed, reasoning.completed,
// tool.args) without the deltas before them: its clients take the content from
// the closer, whether or not they have seen deltas.
type Closing interface {
	Dialect
	ClosersSayAll() bool
}

// A Lossy dialect says which types of event it has no word for, and why. What is not
// listed is told, or always internal: a test holds each dialect to it, so that a new type
// is decided about.
type Lossy interface {
	Lost() map[event.Type]string
}

// Encode encodes an event; before is called if the dialect needs it.
func Encode(d Dialect, e event.Event, line []byte, to Audience, before func() (*event.Session, error)) ([]Message, error) {
	f, ok := d.(Folding)
	if !ok || !f.Folds(e) {
		return d.Event(e, line, to), nil
	}
	s, err := before()
	if err != nil {
		return nil, err
	}
	return f.EventAfter(s, e, line, to), nil
}

// A Following dialect needs to know what it has said of a run before: how many
// items there are, which of them are open. Its messages depend on the log up to
// the event, and on nothing else, so that they are the same on every edge; but
// each viewer is encoded for from the run's first event on, whatever its
// position: what it has is left out. It is for protocols whose clients begin
// anew when they come back, or that number their items.
type Following interface {
	Dialect
	// Begin returns what encodes for one viewer.
	Begin() Encoder
}

// An Encoder takes the events of a log one after the other. It belongs to one
// goroutine.
type Encoder interface {
	// Next encodes the event that follows; see Dialect.Event.
	Next(e event.Event, line []byte, to Audience) []Message
	// Snapshot takes the place of everything before; see Dialect.Snapshot.
	Snapshot(kind Kind, s *event.Session, to Audience) []Message
}

// With is a dialect for a single viewer, encoded for by x: whoever has x sees what comes of it.
func With(d Dialect, x Encoder) Following { return &with{d, x} }

type with struct {
	Dialect
	encoder Encoder
}

func (w *with) Begin() Encoder { return w.encoder }

// A Keeping encoder keeps what it says, for whoever wants all of it at the end. Each viewer
// has an encoder of its own.
type Keeping interface {
	Encoder
	// Kept is about how much that is now, in bytes.
	Kept() int
}

// An Ending encoder has a client whose stream may end with a snapshot, though the run
// goes on.
type Ending interface {
	Encoder
	// Over reports whether it ends with the last snapshot.
	Over() bool
}
