package stream

import (
	"bytes"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// A ring has the latest events of a session as the lines that were stored, which
// to the garbage collector are a few blocks of bytes, however many events they are.
// The very last ones are there decoded too, once for all viewers that are about to
// show them; who looks further back decodes for itself.
type ring struct {
	base   event.Seq // the event before the first one
	blocks []block   // consecutive
	lately []*entry  // the last events, decoded
	size   int       // about what all this keeps in memory
}

// A block has the lines of whole frames, and room for more.
type block struct {
	first event.Seq
	lines int
	prev  uint64 // position of the frame before the first one, 0 if there is none
	odd   bool   // a line is not as this version writes it
	data  []byte
}

const (
	maxBlock  = 32 << 10 // what a block has room for, if its frames are not larger
	blockSize = 64       // of a block, besides its data
	entrySize = 500      // of a decoded event, besides its line
)

func (b *block) last() event.Seq { return b.first + event.Seq(b.lines) - 1 }

// end is the last event's seq.
func (r *ring) end() event.Seq {
	if n := len(r.blocks); n > 0 {
		return r.blocks[n-1].last()
	}
	return r.base
}

// add appends the frame that follows, of which an event that cannot be read is an
// empty line. Blocks get at most so many events, but for larger frames.
func (r *ring) add(f eventlog.Frame, list []*entry, most int) {
	need := 0
	for _, e := range list {
		need += len(e.line) + 1
	}
	b := r.room(f, need, len(list), most)
	for _, e := range list {
		b.data = append(append(b.data, e.line...), '\n')
		b.odd = b.odd || e.odd
	}
	b.lines += len(list)
}

// room is the block that takes a frame of n lines. A new one is a quarter of the
// ring, so that what the ring gives up soon gives its memory back.
func (r *ring) room(f eventlog.Frame, need, n, most int) *block {
	if i := len(r.blocks) - 1; i >= 0 {
		if b := &r.blocks[i]; cap(b.data)-len(b.data) >= need && b.lines+n <= most {
			return b
		}
	}
	room := max(need, min(r.size/4, maxBlock))
	r.blocks = append(r.blocks, block{first: f.First, prev: f.Prev, data: make([]byte, 0, room)})
	r.size += room + blockSize
	return &r.blocks[len(r.blocks)-1]
}

// keep has the last frame's events at hand, decoded, and of those before them as
// many as make a few.
func (r *ring) keep(list []*entry, few int) {
	for _, e := range list {
		r.size += e.size()
	}
	r.lately = append(r.lately, list...)
	r.forget(len(r.lately) - max(few, len(list)))
}

// forget lets go of the first n decoded events.
func (r *ring) forget(n int) {
	if n <= 0 {
		return
	}
	for _, e := range r.lately[:n] {
		r.size -= e.size()
	}
	kept := copy(r.lately, r.lately[n:])
	clear(r.lately[kept:])
	r.lately = r.lately[:kept]
}

// trim drops what is older than the last frame, which viewers are about to look
// for, until the ring is within its bounds: what is decoded, then the oldest blocks,
// and at last what the last one has besides that frame.
func (r *ring) trim(size, events int, last eventlog.Head) {
	if r.size > size {
		r.forget(len(r.lately) - int(r.end()-last.First) - 1)
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

// narrow leaves the last frame in the only block, and no room: of a session that is
// silent from then on, most of its ring could be that.
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
	r.blocks = []block{{first: last.First, lines: int(b.last() - r.base), prev: last.Prev, odd: b.odd, data: data}}
}

// before is the frame that ends where the ring begins, as far as it is known.
func (r *ring) before() (h eventlog.Head, known bool) {
	if len(r.blocks) == 0 {
		return h, false
	}
	b := &r.blocks[0]
	return eventlog.Head{Seq: b.first - 1, Pos: b.prev}, b.first-1 == r.base
}

// recent fills into with the decoded events after a position, if they are at hand.
func (r *ring) recent(after event.Seq, into []*entry) []*entry {
	if len(r.lately) == 0 || after+1 < r.lately[0].Seq {
		return nil
	}
	return into[:copy(into, r.lately[after+1-r.lately[0].Seq:])]
}

// holding is the block with the event after a position, which the ring has.
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

// after is the lines after a position.
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
	for i := range all {
		line := data[:bytes.IndexByte(data, '\n')]
		data = data[len(line)+1:]
		all[i].again(read, line, first+event.Seq(i))
		into[i] = &all[i]
	}
	return into[:n]
}
