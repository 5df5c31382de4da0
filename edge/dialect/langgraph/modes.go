package langgraph

import "strings"

// Modes is a set of stream modes.
type Modes uint8

// The modes that are told.
const (
	Values   Modes = 1 << iota // values
	Tuples                     // messages-tuple
	Messages                   // messages
	Updates                    // updates
	Custom                     // custom
	Tools                      // tools
	Events                     // events
)

// Usual is what is told to who names no mode and may want any: all, but for the
// older way to tell messages.
const Usual = Values | Tuples | Updates | Custom | Tools | Events

var names = []string{"values", "messages-tuple", "messages", "updates", "custom", "tools", "events"}

// Known are the names of the modes.
func Known() string { return strings.Join(names, ", ") }

// Mode is the mode of a name; 0 if it is not told.
func Mode(name string) Modes {
	for i, n := range names {
		if n == name {
			return 1 << i
		}
	}
	return 0
}

// Names are the names of a set's modes.
func (m Modes) Names() []string {
	var list []string
	for i, n := range names {
		if m&(1<<i) != 0 {
			list = append(list, n)
		}
	}
	return list
}
