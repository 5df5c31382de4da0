package edge

import "testing"

// Whoever comes second shares; a body that is alone has the room, what is small is
// free, and all of it is given back.
func TestRoomForBodies(t *testing.T) {
	refused := 0
	room := &bodyRoom{most: 1 << 20, refused: func(_ string, p *Problem) error { refused++; return p }}
	share := func(tenant string) *bodyShare { return &bodyShare{room: room, tenant: tenant} }
	alone := share("a")
	if err := alone.grow(5 << 20); err != nil {
		t.Errorf("alone: %v", err)
	}
	small := share("b")
	if small.grow(freeBody) != nil || small.grow(1) == nil {
		t.Error("what is small is free, and no more than that")
	}
	alone.giveUp()
	alone.giveUp()
	small.giveUp()
	const third = 300 << 10
	first, second, other := share("a"), share("a"), share("b")
	if first.grow(third) != nil || second.grow(third) == nil || other.grow(third) != nil {
		t.Error("a tenant has half of the room")
	}
	for _, s := range []*bodyShare{first, second, other} {
		s.giveUp()
	}
	if room.used != 0 || len(room.of) != 0 || refused != 2 {
		t.Errorf("left over: %d of %v, %d refused", room.used, room.of, refused)
	}
}

func TestValuesAreCounted(t *testing.T) {
	for body, want := range map[string]int{``: 0, `{}`: 1, `[1,2,3]`: 3, `{"a":"x,y[{\",","b":[{}]}`: 4, `"\\",[`: 2} {
		if got := valuesIn([]byte(body)); got != want {
			t.Errorf("%s: %d, want %d", body, got, want)
		}
	}
}
