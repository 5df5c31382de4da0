package stream

import (
	"fmt"
	"sync/atomic"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// An entry is one event. It does not change.
type entry struct {
	event.Event
	line    []byte // as stored, without line end
	epoch   event.Epoch
	hidden  bool // this version cannot read it: nobody sees it
	private bool // read for one viewer: how it is encoded is not kept
	odd     bool // the line is not as this version writes it

	wires atomic.Pointer[wire] // one for each view that was asked for so far
}

// A view is what makes the bytes of two viewers the same.
type view struct {
	dialect   dialect.Dialect
	transport Transport
	audience  dialect.Audience
}

// A wire is an event as one view sends it: framed messages, none if the view
// does not show it.
type wire struct {
	view     view
	messages [][]byte
	telling  *telling // if they were encoded with a fold and are large
	next     *wire
}

// wire returns the entry's messages in a view, encoded once.
func (e *entry) wire(v view) [][]byte {
	if messages, ok := e.made(v); ok || e.hidden {
		return messages
	}
	messages := e.frame(v, v.dialect.Event(e.Event, e.line, v.audience))
	e.keep(v, messages)
	return messages
}

// made returns what was encoded for a view before.
func (e *entry) made(v view) (messages [][]byte, ok bool) {
	if w := e.wires.Load().of(v); w != nil {
		return w.messages, true
	}
	return nil, false
}

// of finds the one of a view in a list of wires; nil if it is not there.
func (w *wire) of(v view) *wire {
	for ; w != nil && w.view != v; w = w.next {
	}
	return w
}

// keep keeps framed messages for the next viewer of the view.
func (e *entry) keep(v view, messages [][]byte) {
	first := e.wires.Load()
	e.wires.CompareAndSwap(first, &wire{view: v, messages: messages, next: first}) // whoever loses has only worked in vain
}

func sizeOf(messages [][]byte) (n int) {
	for _, m := range messages {
		n += len(m)
	}
	return n
}

func (e *entry) frame(v view, list []dialect.Message) [][]byte {
	if len(list) == 0 {
		return nil
	}
	messages := make([][]byte, len(list))
	for i, m := range list {
		at := e.position(i, len(list))
		messages[i] = v.transport.Append(make([]byte, 0, frameSize(m)), at.String(), m)
	}
	return messages
}

// frameSize is enough for a message as most transports frame it.
func frameSize(m dialect.Message) int { return len(m.Event) + len(m.Data) + 64 }

// size is about what an entry keeps in memory: its line twice, as it was stored and
// encoded for one view, and itself with what tells it from the event before it.
func (e *entry) size() int { return 2*len(e.line) + entrySize }

// read decodes a line. An event that this version cannot read is a hidden one, so
// that the numbers go on; the error says why.
func (e *entry) read(d *event.Decoder, line []byte, seq event.Seq) error {
	decoded, err := d.Decode(line)
	if err == nil && decoded.Seq != seq {
		err = fmt.Errorf("the event says that it is number %d", decoded.Seq)
	}
	if err != nil {
		e.Seq, e.hidden = seq, true
		return err
	}
	e.Event, e.line, e.odd = decoded, line, !d.Plain()
	return nil
}

// again decodes a line of a ring for one viewer. There a line that cannot be read is
// empty, and an event that was hidden before is hidden again.
func (e *entry) again(read func([]byte) (event.Event, error), line []byte, seq event.Seq) {
	e.private, e.line = true, line
	var err error
	if e.Event, err = read(line); err != nil {
		e.Seq, e.hidden = seq, true
	}
}

// entries decodes a frame, one entry for each of its events.
func (t *topic) entries(d *event.Decoder, f eventlog.Frame) []*entry {
	list, all := make([]*entry, 0, f.Len()), make([]entry, f.Len())
	for seq, line := range f.Numbered() {
		e := &all[len(list)]
		e.epoch = f.Epoch
		if err := e.read(d, line, seq); err != nil {
			t.unreadable(seq, err)
		}
		list = append(list, e)
	}
	return list
}
