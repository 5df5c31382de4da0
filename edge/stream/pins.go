package stream

import (
	"container/list"
	"sync"
	"time"

	"github.com/runlog-dev/runlog/edge/room"
)

// Pins are large events that viewers send as they came, live. A client that does not take
// one keeps it in memory when the ring has long moved on: once, however many clients do,
// but each session, and each client that has stopped elsewhere, has another one. So they
// are counted; and where they are too many, those who have sent theirs for longest are
// broken off. They lose nothing, and who reads is not kept waiting for who does not.
type pins struct {
	room room.Room

	mu  sync.Mutex
	of  map[*entry]*list.Element
	all list.List // of *pin, those that were begun first are first
	cut int64     // bytes of those that were broken off and have not gone yet
}

type pin struct {
	event *entry
	share room.Share
	by    map[*output]bool
	cut   bool
}

// hold counts a viewer in that sends an event, which takes size bytes; release counts it
// out.
func (p *pins) hold(tenant string, e *entry, size int, out *output) (release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.of[e]
	if at == nil {
		at = p.all.PushBack(&pin{event: e, share: room.Share{Room: &p.room, Tenant: tenant}, by: map[*output]bool{}})
		p.of[e] = at
		at.Value.(*pin).share.Set(int64(size))
	}
	at.Value.(*pin).by[out] = true
	p.shed(at)
	return func() { p.release(at, out) }
}

func (p *pins) release(at *list.Element, out *output) {
	p.mu.Lock()
	defer p.mu.Unlock()
	it := at.Value.(*pin)
	delete(it.by, out)
	if len(it.by) > 0 {
		return
	}
	if it.cut {
		p.cut -= it.share.Size()
	}
	it.share.GiveUp()
	p.all.Remove(at)
	delete(p.of, it.event)
}

// shed breaks off those that were begun first until there is room for what is left, but
// not the last one. The caller holds mu.
func (p *pins) shed(last *list.Element) {
	for at := p.all.Front(); at != last && p.room.Used()-p.cut > p.room.Most; at = at.Next() {
		it := at.Value.(*pin)
		if it.cut {
			continue
		}
		it.cut = true
		p.cut += it.share.Size()
		for out := range it.by {
			out.endWithin(-time.Second)
		}
	}
}
