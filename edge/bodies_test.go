package edge

import (
	"errors"
	"testing"

	"github.com/runlog-dev/runlog/edge/room"
	"github.com/runlog-dev/runlog/event"
)

// What is small of a body is free, the rest takes room, and who gets none is told so.
func TestRoomForBodies(t *testing.T) {
	bodies, counts := &room.Room{Most: 1 << 20}, newMetrics(nil)
	body := func(tenant string) *bodyShare {
		return &bodyShare{Share: room.Share{Room: bodies, Tenant: tenant}, metrics: counts}
	}
	alone, small := body("a"), body("b")
	if err := alone.grow(5 << 20); err != nil {
		t.Errorf("alone: %v", err)
	}
	if err := small.grow(freeBody); err != nil {
		t.Errorf("what is small: %v", err)
	}
	var full *Problem
	if err := small.grow(1); !errors.As(err, &full) || full.Code != event.CodeOverloaded {
		t.Errorf("what is more than small: %v", err)
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
