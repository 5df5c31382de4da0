package stream

import (
	"sync"

	"github.com/runlog-dev/runlog/edge/room"
)

// A telling is a large message that was encoded with a fold. While viewers send it, it
// counts as a conversation that is told: once, however many they are.
type telling struct {
	size int64

	mu    sync.Mutex
	share room.Share
	by    int // viewers that send it
}

// telling returns one for messages; nil if they are small.
func (h *Hub) telling(tenant string, messages [][]byte) *telling {
	n := sizeOf(messages)
	if n <= smallFold {
		return nil
	}
	return &telling{size: int64(n), share: room.Share{Room: &h.loads.told, Tenant: tenant}}
}

// begin counts a viewer in that sends it.
func (t *telling) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.by++
	t.share.Set(t.size)
}

// end counts it out.
func (t *telling) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.by--; t.by == 0 {
		t.share.GiveUp()
	}
}

// tells notes which large message the viewer sends from now on; nil: none that is counted.
func (v *Viewer) tells(t *telling) {
	if t == v.telling {
		return
	}
	if v.telling != nil {
		v.telling.end()
	}
	if v.telling = t; t != nil {
		t.begin()
	}
}
