package edge

import (
	"testing"

	"github.com/runlog-dev/runlog/edge/room"
)

// What is small of a body is free, the rest takes room, and who gets none is told so.
func TestRoomForBodies(t *testing.T) {
	refused := 0
	bodies := &room.Room{Most: 1 << 20}
	body := func(tenant string) *bodyShare {
		return &bodyShare{Share: room.Share{Room: bodies, Tenant: tenant}, refused: func(_ string, p *Problem) error { refused++; return p }}
	}
	alone, small := body("a"), body("b")
	if err := alone.grow(5 << 20); err != nil {
		t.Errorf("alone: %v", err)
	}
	if small.grow(freeBody) != nil || small.grow(1) == nil || refused != 1 {
		t.Error("what is small is free, and no more than that")
	}
	alone.GiveUp()
	if err := small.grow(1); err != nil {
		t.Errorf("there is room again: %v", err)
	}
}

func TestValuesAreCounted(t *testing.T) {
	for body, want := range map[string]int{``: 0, `{}`: 1, `[1,2,3]`: 3, `{"a":"x,y[{\",","b":[{}]}`: 4, `"\\",[`: 2} {
		if got := valuesIn([]byte(body)); got != want {
			t.Errorf("%s: %d, want %d", body, got, want)
		}
	}
}
