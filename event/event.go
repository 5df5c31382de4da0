// Package event holds runlog's nouns: the events of a session's log, their one
// JSON form, the commands that ask for them, and the pure fold from events to a
// Session. It imports only the standard library and does no I/O, so that every
// other room can share it.
package event

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"
)

// Version is the version of the canonical JSON form.
const Version = 1

// Limits of what is stored. An encoded event over MaxEncoded does not fit a
// frame: its content goes to an artifact first.
const (
	MaxEncoded = 640 << 10
	MaxFrame   = 900 << 10
)

// Seq is an event's position in its session: 1, 2, 3 … without gaps. It is the
// cursor of every client; 0 stands for "before the first event".
type Seq uint64

func (s Seq) String() string { return strconv.FormatUint(uint64(s), 10) }

// An Event is one immutable record of a session's log.
type Event struct {
	V         int             `json:"v"`
	Seq       Seq             `json:"seq"`
	ID        string          `json:"id"` // <session>-<seq>, see NameIn
	Type      Type            `json:"type"`
	Time      Time            `json:"time"`
	SessionID string          `json:"session_id"`
	RunID     string          `json:"run_id,omitempty"`
	TraceID   string          `json:"trace_id,omitempty"`
	CommandID string          `json:"command_id,omitempty"` // the command this event answers
	Agent     string          `json:"agent,omitempty"`
	Internal  bool            `json:"internal,omitempty"` // shown to auditors only
	Data      json.RawMessage `json:"data"`
}

// New returns an event with its data encoded. Seq, ID and SessionID are given
// by the log's writer when it takes the event.
func New(t Type, data any) Event {
	return Event{V: Version, Type: t, Data: Encode(data)}
}

// Validate says what keeps an event from being stored or read.
func (e Event) Validate() error {
	switch {
	case e.V != Version:
		return fmt.Errorf("version %d, this program reads version %d", e.V, Version)
	case e.Seq == 0:
		return errors.New("no seq")
	case e.Type == "":
		return errors.New("no type")
	case e.SessionID == "":
		return errors.New("no session_id")
	case len(e.Data) == 0 || e.Data[0] != '{':
		return fmt.Errorf("data of %s is not an object", e.Type)
	}
	return nil
}

// Into decodes the event's data.
func (e Event) Into(data any) error {
	if err := json.Unmarshal(e.Data, data); err != nil {
		return fmt.Errorf("data of %s %s: %w", e.Type, e.ID, err)
	}
	return nil
}

// AppendLine appends the event's canonical line, LF included. The line holds no
// other line break, is valid UTF-8, and escapes U+2028 and U+2029.
func (e Event) AppendLine(b []byte) []byte {
	b = append(b, `{"v":`...)
	b = strconv.AppendInt(b, int64(e.V), 10)
	b = append(b, `,"seq":`...)
	b = strconv.AppendUint(b, uint64(e.Seq), 10)
	b = appendMember(b, "id", e.ID)
	b = appendMember(b, "type", string(e.Type))
	b = append(b, `,"time":"`...)
	b = e.Time.append(b)
	b = append(b, '"')
	b = appendMember(b, "session_id", e.SessionID)
	b = appendOptional(b, "run_id", e.RunID)
	b = appendOptional(b, "trace_id", e.TraceID)
	b = appendOptional(b, "command_id", e.CommandID)
	b = appendOptional(b, "agent", e.Agent)
	if e.Internal {
		b = append(b, `,"internal":true`...)
	}
	b = append(b, `,"data":`...)
	b = appendRaw(b, e.Data)
	return append(b, '}', '\n')
}

// MarshalJSON gives the canonical form without the line end.
func (e Event) MarshalJSON() ([]byte, error) {
	line := e.AppendLine(nil)
	return line[:len(line)-1], nil
}

func appendOptional(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	return appendMember(b, name, value)
}

func appendMember(b []byte, name, value string) []byte {
	b = append(b, ',', '"')
	b = append(b, name...)
	b = append(b, '"', ':')
	return appendString(b, value)
}

// appendString takes the short way for the plain ids that nearly all are.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c >= utf8.RuneSelf || c == '"' || c == '\\' {
			return append(b, Encode(s)...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// appendRaw appends JSON that somebody else wrote: compacted, with the two
// Unicode line ends escaped (they are line breaks to some readers).
func appendRaw(b, raw []byte) []byte {
	if bytes.ContainsAny(raw, "\n\r\t ") {
		var compact bytes.Buffer
		if json.Compact(&compact, raw) == nil {
			raw = compact.Bytes()
		}
	}
	for {
		i := bytes.Index(raw, []byte("\u2028"[:2]))
		if i < 0 || i+2 >= len(raw) {
			return append(b, raw...)
		}
		b = append(b, raw[:i]...)
		switch raw[i+2] {
		case 0xA8:
			b = append(b, `\u2028`...)
		case 0xA9:
			b = append(b, `\u2029`...)
		default:
			b = append(b, raw[i:i+3]...)
		}
		raw = raw[i+3:]
	}
}

// Encode is the one JSON encoder of the house: no HTML escaping, invalid UTF-8
// replaced. It panics on values that cannot be JSON, which are programming errors.
func Encode(v any) json.RawMessage {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(fmt.Sprintf("encode %T: %v", v, err))
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
}

// Time is an instant in the log's form: RFC 3339, UTC, microseconds.
type Time struct{ time.Time }

const timeLayout = "2006-01-02T15:04:05.000000Z07:00"

// At cuts t to what the log keeps.
func At(t time.Time) Time { return Time{t.UTC().Truncate(time.Microsecond)} }

// append writes times that RFC 3339 has no form for, beyond the years 0 to 9999,
// as the nearest that it has: an offset takes others there.
func (t Time) append(b []byte) []byte {
	u := t.UTC()
	switch {
	case u.Year() > 9999:
		u = time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC)
	case u.Year() < 0:
		u = time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	return u.AppendFormat(b, timeLayout)
}

// MarshalJSON always writes six digits of a second.
func (t Time) MarshalJSON() ([]byte, error) {
	return append(t.append([]byte{'"'}), '"'), nil
}

// UnmarshalJSON reads any RFC 3339 time.
func (t *Time) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	return t.Time.UnmarshalJSON(b)
}
