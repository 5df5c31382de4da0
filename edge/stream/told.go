package stream

import "github.com/runlog-dev/runlog/event"

// A told has what was encoded with a fold lately, as much as may be: each viewer that
// looks further back than the topic's last events has decoded its own, of which
// nothing is kept.
type told struct {
	of    map[event.Seq]*telling
	order []*telling // as they came
	size  int        // about what they keep in memory
}

// A telling is one event as several views send it.
type telling struct {
	seq   event.Seq
	wires *wire
	size  int
}

const wireSize = 200 // of an event's messages in one view, besides their bytes

// made returns an event's messages in a view, if they are at hand.
func (all *told) made(seq event.Seq, v view) (messages [][]byte, ok bool) {
	if t := all.of[seq]; t != nil {
		return t.wires.in(v)
	}
	return nil, false
}

// add has an event's messages in a view at hand, in most bytes altogether: those that
// came first go.
func (all *told) add(seq event.Seq, v view, messages [][]byte, most int) {
	t := all.of[seq]
	if t == nil {
		t = &telling{seq: seq}
		if all.of == nil {
			all.of = map[event.Seq]*telling{}
		}
		all.of[seq] = t
		all.order = append(all.order, t)
	}
	t.wires = &wire{view: v, messages: messages, next: t.wires}
	n := wireSize
	for _, m := range messages {
		n += len(m)
	}
	t.size += n
	all.size += n
	for all.size > most && len(all.order) > 0 {
		first := all.order[0]
		all.order[0], all.order = nil, all.order[1:]
		all.size -= first.size
		delete(all.of, first.seq)
	}
}
