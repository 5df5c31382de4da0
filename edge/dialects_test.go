package edge

import (
	"testing"

	"github.com/runlog-dev/runlog/edge/dialect/dialecttest"
)

// Every type of event is told by every dialect, or listed as lost with a reason:
// a new type has to be decided about.
func TestEveryDialectDecidesAboutEveryType(t *testing.T) {
	names := map[string]bool{}
	for _, d := range dialects {
		if names[d.Name()] {
			t.Errorf("two dialects have the name %s", d.Name())
		}
		names[d.Name()] = true
		t.Run(d.Name(), func(t *testing.T) { dialecttest.Decided(t, d) })
	}
}
