// Package native is runlog's own dialect: events as they are stored.
package native

import (
	"bytes"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
)

// Dialect is the native dialect.
type Dialect struct{}

// Name is native.
func (Dialect) Name() string { return "native" }

// Event hands on the stored line, byte for byte, but for messages that have
// parts which clients do not see.
func (Dialect) Event(e event.Event, line []byte, to dialect.Audience) []dialect.Message {
	if to == dialect.Client {
		if e.Internal {
			return nil
		}
		if line = public(e, line); line == nil {
			return nil
		}
	}
	return []dialect.Message{{Event: string(e.Type), Data: line}}
}

// ClosersSayAll: a fold takes the content from the closer.
func (Dialect) ClosersSayAll() bool { return true }

// public leaves internal parts out of a completed message.
func public(e event.Event, line []byte) []byte {
	data := dialect.PublicData(e)
	switch {
	case data == nil:
		return nil
	case len(data) == len(e.Data): // as it is
		return line
	}
	e.Data = data
	return bytes.TrimSuffix(e.AppendLine(nil), []byte("\n"))
}

// Snapshot is the fold in its JSON form.
func (Dialect) Snapshot(kind dialect.Kind, s *event.Session, to dialect.Audience) []dialect.Message {
	return []dialect.Message{{Event: string(kind), Data: Fold(s, to), Bare: true}}
}

// Fold encodes a session on one line for its reader.
func Fold(s *event.Session, to dialect.Audience) []byte {
	if to == dialect.Auditor {
		return s.Encode()
	}
	return s.EncodePublic()
}

// Heartbeat has no id: it does not move the cursor.
func (Dialect) Heartbeat(h dialect.Heartbeat) []dialect.Message {
	return []dialect.Message{{Event: "heartbeat", Data: event.Encode(h), Bare: true}}
}

// Moved is a message that clients ignore but for its id.
func (Dialect) Moved(seq event.Seq) []dialect.Message {
	return []dialect.Message{{Event: "position", Data: []byte(`{"seq":` + seq.String() + `}`), Bare: true}}
}
