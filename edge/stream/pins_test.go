package stream

import (
	"container/list"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/edge/room"
)

// Clients that do not take a large event count once. Those who were first are broken off for those who are too many, and
// who is told last never is.
func TestPinsAreCut(t *testing.T) {
	p := &pins{room: room.Room{Most: 1000}, of: map[*entry]*list.Element{}}
	cut := map[string]bool{}
	viewer := func(name string) *output {
		return &output{hurry: func(d time.Duration) { cut[name] = d < 0 }}
	}
	first, second, third := &entry{}, &entry{}, &entry{}
	releaseA := p.hold("t", first, 400, viewer("a"))
	releaseB := p.hold("t", first, 400, viewer("b"))
	releaseC := p.hold("t", second, 500, viewer("c"))
	if len(cut) > 0 || p.room.Used() != 900 {
		t.Fatalf("%v were cut, %d bytes are counted", cut, p.room.Used())
	}
	releaseD := p.hold("t", third, 5000, viewer("d"))
	if len(cut) != 3 || cut["d"] {
		t.Errorf("%v were cut", cut)
	}
	for _, release := range []func(){releaseB, releaseD, releaseC, releaseA} {
		release()
	}
	if p.room.Used() != 0 || p.cut != 0 || p.all.Len() != 0 || len(p.of) != 0 {
		t.Errorf("all have gone: %d bytes, %d cut, %d pins", p.room.Used(), p.cut, p.all.Len())
	}
}
