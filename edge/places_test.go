package edge

import (
	"strconv"
	"testing"

	"github.com/runlog-dev/runlog/eventlog"
)

func TestPlacesAreBoundedAndApart(t *testing.T) {
	var p places
	for i := range 2 * maxPlaces {
		name := runName{"a", strconv.Itoa(i)}
		p.put(name, eventlog.RunRef{SessionID: name.run})
		if ref, ok := p.get(name); !ok || ref.SessionID != name.run {
			t.Fatalf("%v: %v %v", name, ref, ok)
		}
		if _, ok := p.get(runName{"b", name.run}); ok {
			t.Fatalf("%s is another tenant's", name.run)
		}
	}
	if n := len(p.of); n > maxPlaces {
		t.Errorf("%d places", n)
	}
}
