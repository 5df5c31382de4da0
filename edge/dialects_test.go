package edge

import (
	"bytes"
	"testing"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/edge/dialect/dialecttest"
	"github.com/runlog-dev/runlog/edge/dialect/mcp"
	"github.com/runlog-dev/runlog/edge/dialect/scenarios"
	"github.com/runlog-dev/runlog/event"
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

// What a message has for auditors alone no client sees, be it a sub-agent's.
func TestNoDialectShowsInternalParts(t *testing.T) {
	hush := event.TextPart("hush")
	hush.Internal = true
	for _, d := range append([]dialect.Dialect{mcp.Dialect{ID: "1", Token: "1"}}, dialects...) {
		for _, agent := range []string{"", "summarizer"} {
			sc, _ := scenarios.Named("text")
			log := sc.Log()
			for i := range log {
				if log[i].Type == event.MessageCompleted {
					log[i].Data, log[i].Agent = event.Encode(event.MessageCompletedData{MessageID: "m", Role: event.RoleAssistant, Parts: []event.Part{hush}}), agent
				}
			}
			for _, m := range dialecttest.Encode(t, d, log, nil) {
				if bytes.Contains(m.Data, []byte("hush")) {
					t.Errorf("%s, of %q: %s", d.Name(), agent, m.Data)
				}
			}
		}
	}
}
