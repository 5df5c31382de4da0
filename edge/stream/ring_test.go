package stream

import (
	"bytes"
	"math/rand/v2"
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
	for _, e := range r.lately {
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
			if rand.IntN(10) == 0 {
				tp.mu.Lock()
				tp.rest()
				tp.mu.Unlock()
			}
		}
		if tp.ring.base == start {
			t.Error("nothing was trimmed")
		}
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
		if len(seqs) != 6 || len(hidden) != 2 || hidden[0] != 3 || hidden[1] != 5 {
			t.Errorf("decoded %v: %v, hidden %v", decoded, seqs, hidden)
		}
		tp.mu.Lock()
		tp.rest()
		tp.mu.Unlock()
	}
}
