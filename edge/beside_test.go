package edge_test

import (
	"io"
	"slices"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/edge"
	"github.com/runlog-dev/runlog/event"
)

// How long a native viewer waits for an event, from before its append, beside
// twenty viewers of another dialect. Compare with native: as many, of its own.
func BenchmarkBesideADialect(b *testing.B) {
	for _, name := range edge.DialectNames() {
		b.Run(name, func(b *testing.B) { beside(b, name) })
	}
}

func beside(b *testing.B, dialect string) {
	s := newSite(b)
	e := s.edge(edge.Options{})
	w := s.scribe("default", "s")
	w.write(started("r"), of("r", event.MessageStarted, event.MessageStartedData{MessageID: "mr", Role: event.RoleAssistant}))
	for range 20 {
		l := e.listen("/v1/sessions/s/events?dialect=" + dialect)
		go func() { _, _ = io.Copy(io.Discard, l.resp.Body) }()
	}
	mine := e.listen("/v1/sessions/s/events")
	for range 2 {
		mine.must()
	}
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		w.write(said("r", "Hello, world, "))
		mine.must()
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(0, "ns/op")
}
