package stream

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// sum is what size should be.
func (r *ring) sum() int {
	n := 0
	for i := range r.blocks {
		n += cap(r.blocks[i].data) + blockSize
	}
	for _, e := range r.decoded {
		n += e.size()
	}
	return n
}

// Whatever comes in whatever frames, from each position that the ring has the next
// events are found, the same for those who are near the end and those who are not.
func TestARingHasWhatFollowsEachPosition(t *testing.T) {
	for range 20 {
		h := New(nil, nil, Options{RingBytes: 20_000, RingEvents: 1000})
		tp := &topic{hub: h, key: key}
		start := event.Seq(rand.IntN(3))
		first := frame(key, start, 1)
		first.Prev = 7
		tp.begin([]eventlog.Frame{first})
		for range 100 {
			tp.Frame(frame(key, tp.head.Seq, 1+rand.IntN(1+rand.IntN(30))))
			checkRing(t, tp)
			tp.mu.Lock()
			switch rand.IntN(20) {
			case 0, 1:
				tp.dropDecoded()
			case 2:
				tp.trim(rand.IntN(1000))
			}
			tp.mu.Unlock()
			checkRing(t, tp)
		}
		if tp.ring.base == start {
			t.Error("nothing was trimmed")
		}
	}
}

// What is cut to the last frame has that frame, and nothing else in memory.
func TestARingIsCutToItsLastFrame(t *testing.T) {
	h := New(nil, nil, Options{})
	tp := &topic{hub: h, key: key}
	last := eventlog.Frame{}
	for i := range 1000 {
		last = frame(key, tp.head.Seq, 1+i%3)
		last.Prev = uint64(i)
		tp.Frame(last)
	}
	old := tp.ring.blocks[len(tp.ring.blocks)-1] // as a viewer that is about to decode has it
	tp.mu.Lock()
	tp.trim(0)
	tp.dropDecoded()
	tp.mu.Unlock()
	checkRing(t, tp)
	if most := len(last.Data) + blockSize; tp.ring.size > most || tp.ring.base != last.First-1 {
		t.Errorf("%d bytes from %d on, the last frame has %d from %d on", tp.ring.size, tp.ring.base+1, most, last.First)
	}
	if before, known := tp.ring.before(); !known || before.Pos != last.Prev || before.Seq != last.First-1 {
		t.Errorf("before it comes %+v, %v", before, known)
	}
	var into [aFew]*entry
	if list := old.decode(old.first-1, into[:]); list[0].Seq != old.first || list[0].hidden {
		t.Errorf("a viewer that was about to look finds %+v", list[0])
	}
}

func checkRing(t *testing.T, tp *topic) {
	t.Helper()
	if tp.ring.sum() != tp.ring.size || tp.ring.end() != tp.head.Seq {
		t.Fatalf("%d bytes to %d, counted as %d, head is %d", tp.ring.sum(), tp.ring.end(), tp.ring.size, tp.head.Seq)
	}
	for after := tp.ring.base; after < tp.head.Seq; after += event.Seq(1 + rand.IntN(20)) {
		var into [5]*entry
		list := tp.look(after, into[:1+rand.IntN(5)]).entries
		if len(list) == 0 {
			t.Fatalf("nothing after %d of %d", after, tp.head.Seq)
		}
		for i, e := range list {
			want := bytes.TrimSuffix(frame(key, after+event.Seq(i), 1).Data, []byte("\n"))
			if e.hidden || e.Seq != after+event.Seq(i)+1 || !bytes.Equal(e.line, want) {
				t.Fatalf("event %d after %d is %d: %s", i, after, e.Seq, e.line)
			}
		}
	}
	if o := tp.look(tp.ring.base-1, nil); tp.ring.base > 0 && (!o.behind || o.through.Seq != tp.ring.base) {
		t.Fatalf("before %d: %+v", tp.ring.base, o)
	}
}

// A frame that holds fewer lines than it says, or what is no event, takes its numbers.
func TestARingGoesOnOverWhatCannotBeRead(t *testing.T) {
	h := New(nil, nil, Options{})
	tp := &topic{hub: h, key: key}
	tp.Frame(frame(key, 0, 2))
	tp.Frame(eventlog.Frame{Key: key, First: 3, Last: 5, Data: append([]byte("{\n"), frame(key, 3, 1).Data...)})
	tp.Frame(frame(key, 5, 1))
	short := frame(key, 6, 1) // of many more, it says
	short.Last = 2000
	tp.Frame(short)
	if tp.ring.sum() != tp.ring.size {
		t.Errorf("%d bytes, counted as %d", tp.ring.sum(), tp.ring.size)
	}
	for _, decoded := range []bool{true, false} {
		var into [9]*entry
		var seqs, hidden []event.Seq
		for at := event.Seq(0); at < tp.head.Seq; {
			for _, e := range tp.look(at, into[:]).entries {
				if at = e.Seq; e.hidden {
					hidden = append(hidden, at)
				}
				seqs = append(seqs, at)
			}
		}
		if len(seqs) != 2000 || len(hidden) != 2+1993 || hidden[0] != 3 || hidden[1] != 5 || hidden[2] != 8 {
			t.Errorf("decoded %v: %d events, hidden %v …", decoded, len(seqs), hidden[:min(len(hidden), 5)])
		}
		tp.mu.Lock()
		tp.dropDecoded()
		tp.mu.Unlock()
	}
}

// A line may have members that this version does not know, where this version writes
// none: it means the same each time it is decoded.
func TestARingKeepsTheMeaningOfOddLines(t *testing.T) {
	h := New(nil, nil, Options{})
	tp := &topic{hub: h, key: key}
	f := frame(key, 0, 4)
	f.Data = bytes.ReplaceAll(f.Data, []byte("}}\n"), []byte(`},"later":{"a":1},"run_id":"r"}`+"\n"))
	tp.Frame(f)
	var first, again [9]*entry
	n := len(tp.look(0, first[:]).entries)
	tp.mu.Lock()
	tp.dropDecoded()
	tp.mu.Unlock()
	if m := len(tp.look(0, again[:]).entries); n != 4 || m != n {
		t.Fatalf("%d events, and then %d, want 4", n, m)
	}
	for i, e := range first[:n] {
		if want := e.Event; e.hidden || !reflect.DeepEqual(again[i].Event, want) {
			t.Errorf("%+v is\n%+v when it is decoded again", want, again[i].Event)
		}
	}
}
