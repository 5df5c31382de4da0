package event

import (
	"encoding/json"
	"maps"
)

// OnceEvent is the name of the custom event, internal, by which a tool written
// in Go journals a step that must happen once. Its value is a Once.
const OnceEvent = "once"

// A Once is a step of a tool call. Result is what it gave, once it is done.
type Once struct {
	Key    string          `json:"key"` // call id / name
	State  OnceState       `json:"state"`
	Result json.RawMessage `json:"result,omitempty"`
}

// OnceState says how far a step is.
type OnceState string

// States. A step that failed has had no effect, and may be tried again; one that
// has begun and has no end may have had it.
const (
	OnceBegun  OnceState = "begun"
	OnceDone   OnceState = "done"
	OnceFailed OnceState = "failed"
)

func (b *RunBook) once(o Once) {
	m := maps.Clone(b.Once) // views share it
	if m == nil {
		m = map[string]Once{}
	}
	m[o.Key] = o
	b.Once = m
}
