package worker

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
	"github.com/runlog-dev/runlog/worker/agent"
	"github.com/runlog-dev/runlog/worker/model"
)

// A tenant that has filled its slots leaves the others to others, whose runs are done
// while its own wait; and all of its runs are done in the end.
func TestATenantDoesNotTakeAllSlots(t *testing.T) {
	b := newBench(t, 5*time.Second)
	var now, most, held atomic.Int32
	goOn := make(chan struct{})
	m := play(func(ctx context.Context, req model.Request, emit func(model.Chunk) error) (model.Result, error) {
		if req.Session.Messages[0].Parts[0].Text == "hold" {
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer now.Add(-1)
			select {
			case <-goOn:
			case <-ctx.Done():
			}
		}
		return says("ok")(ctx, req, emit)
	})
	running := b.defined(agent.Definition{Name: "a"}, m, Options{Slots: 4, PerTenant: 2, Observe: Observer{Full: func() { held.Add(1) }}})

	in := func(tenant string, i int) eventlog.Key {
		return eventlog.Key{Tenant: tenant, Session: fmt.Sprint(tenant, i)}
	}
	start := func(tenant, text string, n int) {
		for i := range n {
			b.submitTo(in(tenant, i), event.Command{Kind: event.Invoke, RunID: fmt.Sprint("run_", tenant, i), TraceID: "t", Agent: "a", Messages: []event.InputMessage{
				{MessageID: "m", Role: event.RoleUser, Parts: []event.Part{event.TextPart(text)}}}})
		}
	}
	ended := func(tenant string, n int) {
		for i := range n {
			run := fmt.Sprint("run_", tenant, i)
			b.untilIn(in(tenant, i), "the end of "+run, func(s *event.Session) bool {
				r := s.Run(run)
				return r != nil && r.Status == event.Completed
			})
		}
	}
	start("hog", "hold", 8)
	waitFor(t, &now, 2)
	waitFor(t, &held, 6) // each of the others was looked at
	start("other", "go", 6)
	ended("other", 6)
	if now.Load() != 2 {
		t.Errorf("%d of the hog's runs are going on", now.Load())
	}
	close(goOn)
	ended("hog", 8)
	if most.Load() != 2 {
		t.Errorf("%d of the hog's runs went on at once, 2 may", most.Load())
	}
	running.drain()
	if len(running.of) != 0 {
		t.Errorf("slots are still counted: %v", running.of)
	}
}
