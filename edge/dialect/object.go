package dialect

import (
	"encoding/json"
	"unicode/utf8"

	"github.com/runlog-dev/runlog/event"
)

// An Object is a JSON object in the making, still open. A member that is absent
// is left out, never null.
type Object []byte

// NewObject opens an object; size is about how long it gets.
func NewObject(size int) Object { return append(make(Object, 0, 64+size), '{') }

func (o Object) name(name string) Object {
	if len(o) > 0 && o[len(o)-1] != '{' {
		o = append(o, ',')
	}
	o = append(append(o, '"'), name...)
	return append(o, '"', ':')
}

// Text adds a string.
func (o Object) Text(name, value string) Object { return appendText(o.name(name), value) }

// Some adds a string if there is one.
func (o Object) Some(name, value string) Object {
	if value == "" {
		return o
	}
	return o.Text(name, value)
}

// Raw adds JSON if there is any.
func (o Object) Raw(name string, value json.RawMessage) Object {
	if len(value) == 0 {
		return o
	}
	return append(o.name(name), value...)
}

// Value adds anything.
func (o Object) Value(name string, v any) Object { return append(o.name(name), event.Encode(v)...) }

// Open begins a member that is an object; Close ends it.
func (o Object) Open(name string) Object { return append(o.name(name), '{') }

// Close ends what Open began.
func (o Object) Close() Object { return append(o, '}') }

// Message closes the object and makes a message of it.
func (o Object) Message(event string) Message { return Message{Event: event, Data: o.Close()} }

// One is Message where it is the only one.
func (o Object) One(event string) []Message { return []Message{o.Message(event)} }

// appendText takes the short way for plain text.
func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c >= utf8.RuneSelf || c == '"' || c == '\\' {
			return append(b, event.Encode(s)...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}
