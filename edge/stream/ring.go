package stream

import (
	"bytes"
	"slices"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// A ring keeps the latest events of a session as the lines that were stored. They lie
// in a few blocks of bytes, so that the garbage collector has little to walk, however
// many events they are. Only the very last events are kept decoded as well, once for
// all viewers that are about to show them. A viewer that is further behind decodes for
// itself. A ring has no lock: its topic has.
type ring struct {
	base    event.Seq // the event before the first one
	blocks  []block   // one follows the other
	decoded []*entry  // the last events
	size    int       // about how many bytes all this keeps in memory
}

// A block has the lines of whole frames, and room for more. Bytes that were written do
// not change, so that a copy of the block can be read without the topic's lock.
type block struct {
	first event.Seq // of the first line
	lines int       // each ends in LF; that of an event that cannot be read is empty
	prev  uint64    // position of the frame before the first one, 0 if there is none
	epoch event.Epoch
	odd   bool // a line is not as this version writes it
	data  []byte
}

// Sizes in bytes.
const (
	maxBlock  = 32 << 10 // what a block has room for, unless a frame is larger
	blockSize = 64       // a block without its data
	entrySize = 500      // a decoded event without its line
)

func (b *block) last() event.Seq { return b.first + event.Seq(b.lines) - 1 }

// end is the last event's seq.
func (r *ring) end() event.Seq {
	if n := len(r.blocks); n > 0 {
		return r.blocks[n-1].last()
	}
	return r.base
}

// add appends the frame that follows. A block gets at most so many events, unless a
// frame has more.
func (r *ring) add(f eventlog.Frame, list []*entry, most int) {
	need := 0
	for _, e := range list {
		need += len(e.line) + 1
	}
	if need > maxBlock && need == len(f.Data) { // it is a block as it came
		r.blocks = append(r.blocks, block{first: f.First, prev: f.Prev, epoch: f.Epoch, lines: len(list), odd: slices.ContainsFunc(list, isOdd), data: f.Data[:need:need]})
		r.size += need + blockSize
		return
	}
	b := r.room(f, need, len(list), most)
	for _, e := range list {
		b.data = append(append(b.data, e.line...), '\n')
		b.odd = b.odd || e.odd
	}
	b.lines += len(list)
}

func isOdd(e *entry) bool { return e.odd }

// room is the block that takes a frame of n lines in need bytes. A new block is as large
// as a quarter of the ring: when a ring is cut it gives back whole blocks.
func (r *ring) room(f eventlog.Frame, need, n, most int) *block {
	if i := len(r.blocks) - 1; i >= 0 {
		if b := &r.blocks[i]; cap(b.data)-len(b.data) >= need && b.lines+n <= most && b.epoch == f.Epoch {
			return b
		}
	}
	room := max(need, min(r.size/4, maxBlock))
	r.blocks = append(r.blocks, block{first: f.First, prev: f.Prev, epoch: f.Epoch, data: make([]byte, 0, room)})
	r.size += room + blockSize
	return &r.blocks[len(r.blocks)-1]
}

// keep adds the last frame's decoded events. Those before them are dropped until a few
// are left.
func (r *ring) keep(list []*entry, few int) {
	for _, e := range list {
		r.size += e.size()
	}
	r.decoded = append(r.decoded, list...)
	r.forget(len(r.decoded) - max(few, len(list)))
}

// forget lets go of the first n decoded events.
func (r *ring) forget(n int) {
	if n <= 0 {
		return
	}
	for _, e := range r.decoded[:n] {
		r.size -= e.size()
	}
	kept := copy(r.decoded, r.decoded[n:])
	clear(r.decoded[kept:])
	r.decoded = r.decoded[:kept]
}

// trim cuts the ring to size bytes and so many events, as far as that is possible
// without the last frame, which viewers are about to look for. First the decoded events
// before it go, then the oldest blocks, at last what the last block has besides it.
func (r *ring) trim(size, events int, last eventlog.Head) {
	if r.size > size {
		r.forget(len(r.decoded) - int(r.end()-last.First) - 1)
	}
	n := 0
	for n < len(r.blocks)-1 && r.blocks[n].last() < last.First && (r.size > size || int(r.end()-r.base) > events) {
		r.base = r.blocks[n].last()
		r.size -= cap(r.blocks[n].data) + blockSize
		n++
	}
	if n > 0 {
		clear(r.blocks[:n])
		r.blocks = r.blocks[n:] // append moves it to a new array now and then
	}
	if r.size > size && len(r.blocks) == 1 {
		r.narrow(last)
	}
}

// drop leaves nothing: who has not been shown the last frame reads it from the log.
func (r *ring) drop() { *r = ring{base: r.end()} }

// narrow cuts the only block to the last frame, and to its size: if the session is
// silent from then on, most of the ring's memory could be room for more.
func (r *ring) narrow(last eventlog.Head) {
	b := &r.blocks[0]
	lines := b.after(last.First - 1)
	if len(lines) == cap(b.data) {
		return
	}
	data := make([]byte, len(lines))
	copy(data, lines)
	r.size += len(data) - cap(b.data)
	r.base = last.First - 1
	r.blocks = []block{{first: last.First, lines: int(b.last() - r.base), prev: last.Prev, epoch: b.epoch, odd: b.odd, data: data}}
}

// before is the frame that ends where the ring begins, known if the first block begins
// there too.
func (r *ring) before() (h eventlog.Head, known bool) {
	if len(r.blocks) == 0 {
		return h, false
	}
	b := &r.blocks[0]
	return eventlog.Head{Seq: b.first - 1, Pos: b.prev}, b.first-1 == r.base
}

// recent fills into with decoded events after a position, if they are at hand.
func (r *ring) recent(after event.Seq, into []*entry) []*entry {
	if len(r.decoded) == 0 || after+1 < r.decoded[0].Seq {
		return nil
	}
	list := r.decoded[after+1-r.decoded[0].Seq:]
	size, n := 0, 0
	for n < min(len(into), len(list)) && size < atOnce {
		size += len(list[n].line)
		n++
	}
	return into[:copy(into, list[:n])]
}

// atOnce is about how many bytes of events a viewer takes from a ring at once. It has them
// in memory as long as its client does not take them.
const atOnce = flushAt

// holding is the block that has the event after a position. The ring must have it.
func (r *ring) holding(after event.Seq) block {
	low, high := 0, len(r.blocks)-1
	for low < high {
		if mid := (low + high) / 2; r.blocks[mid].last() <= after {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return r.blocks[low]
}

// after returns the lines after a position.
func (b *block) after(at event.Seq) []byte {
	data := b.data
	for seq := b.first; seq <= at; seq++ {
		data = data[bytes.IndexByte(data, '\n')+1:]
	}
	return data
}

// decode fills into with events after a position, for one viewer.
func (b *block) decode(after event.Seq, into []*entry) []*entry {
	data, first := b.after(after), max(after+1, b.first)
	n := min(len(into), int(b.last()-after))
	all := make([]entry, n)
	var d event.Decoder
	read := d.DecodeAgain
	if b.odd {
		read = d.Decode
	}
	size := 0
	for i := range all {
		if size >= atOnce {
			return into[:i]
		}
		all[i].epoch = b.epoch
		line := data[:bytes.IndexByte(data, '\n')]
		data = data[len(line)+1:]
		size += len(line)
		all[i].again(read, line, first+event.Seq(i))
		into[i] = &all[i]
	}
	return into[:n]
}
