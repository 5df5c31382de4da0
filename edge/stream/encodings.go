package stream

import "github.com/runlog-dev/runlog/event"

// encodings is a cache of what was encoded with a fold. Other encodings are kept with the
// topic's decoded entries (entry.keep); but a viewer that is further behind decodes
// entries of its own, and to encode them with a fold is too dear to do for each viewer.
type encodings struct {
	of    map[event.Seq]*encoding
	order []*encoding // the oldest first
	size  int         // about how many bytes they keep in memory
}

// An encoding is one event as several views send it.
type encoding struct {
	seq   event.Seq
	wires *wire
	size  int
}

const wireSize = 200 // of an event's messages in one view, besides their bytes

// find returns an event as a view sends it; nil if that is not kept.
func (all *encodings) find(seq event.Seq, v view) *wire {
	if t := all.of[seq]; t != nil {
		return t.wires.of(v)
	}
	return nil
}

// add keeps an event as a view sends it. The oldest go until all come to most bytes, but
// for the last one.
func (all *encodings) add(seq event.Seq, w *wire, most int) {
	t := all.of[seq]
	if t == nil {
		t = &encoding{seq: seq}
		if all.of == nil {
			all.of = map[event.Seq]*encoding{}
		}
		all.of[seq] = t
		all.order = append(all.order, t)
	}
	w.next, t.wires = t.wires, w
	n := wireSize + sizeOf(w.messages)
	t.size += n
	all.size += n
	for all.size > most && len(all.order) > 1 {
		first := all.order[0]
		all.order[0], all.order = nil, all.order[1:]
		all.size -= first.size
		delete(all.of, first.seq)
	}
}
