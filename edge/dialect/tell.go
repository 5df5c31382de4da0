package dialect

import "github.com/runlog-dev/runlog/event"

// Data that is not as its type says is not told of: what follows decodes an event's data
// for functions that tell of it.

// Decoded gives an event's data to what tells of it.
func Decoded[D any](e event.Event, tell func(D) []Message) []Message {
	var data D
	if e.Into(&data) != nil {
		return nil
	}
	return tell(data)
}

// On makes a function of an event out of one that takes its data as well.
func On[D any](tell func(event.Event, D) []Message) func(event.Event) []Message {
	return func(e event.Event) []Message {
		return Decoded(e, func(data D) []Message { return tell(e, data) })
	}
}

// Tell is On for methods.
func Tell[E, D any](tell func(E, event.Event, D) []Message) func(E, event.Event) []Message {
	return func(x E, e event.Event) []Message {
		return Decoded(e, func(data D) []Message { return tell(x, e, data) })
	}
}

// Take is Tell for encoders that gather what they have to say.
func Take[E, D any](take func(E, event.Event, D)) func(E, event.Event) {
	return func(x E, e event.Event) {
		var data D
		if e.Into(&data) == nil {
			take(x, e, data)
		}
	}
}
