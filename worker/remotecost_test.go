package worker

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/agent"
	"github.com/runlog-dev/runlog/worker/remote"
)

// What an agent elsewhere says costs the same however much it has said: four times
// as much takes four times the memory, not sixteen times.
func TestSayingsCostTheSame(t *testing.T) {
	for name, sayings := range map[string]func(id string) []remote.Saying{
		"messages": func(string) []remote.Saying { return []remote.Saying{remote.Text{Delta: "x"}, remote.MessageEnd{}} },
		"calls": func(id string) []remote.Saying {
			return []remote.Saying{remote.Call{CallID: id, Name: "f"}, remote.Result{CallID: id, Content: []event.Part{event.TextPart("r")}}}
		},
		"usage": func(id string) []remote.Saying {
			return []remote.Saying{remote.Text{Delta: "x"}, remote.MessageEnd{}, remote.Usage{Usage: event.Usage{InputTokens: 1}}, remote.StatePatch{Patch: []byte(`[]`)}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 20*time.Second)
			few, many := make(chan uint64, 1), make(chan uint64, 1)
			b.remote(agent.Definition{}, elsewhere(func(ctx context.Context, task remote.Task, say func(remote.Saying) error) error {
				var before, between, after runtime.MemStats
				runtime.ReadMemStats(&before)
				for i := range 2000 {
					if i == 400 {
						runtime.ReadMemStats(&between)
					}
					if err := tells(sayings(fmt.Sprintf("c%d", i))...)(ctx, task, say); err != nil {
						return err
					}
				}
				runtime.ReadMemStats(&after)
				few <- between.TotalAlloc - before.TotalAlloc
				many <- after.TotalAlloc - between.TotalAlloc
				return nil
			}))
			b.invoke("run_1", "hi")
			if _, run := b.ended("run_1"); run.Status != event.Completed {
				t.Fatalf("run is %+v", run)
			}
			first, later := <-few, <-many
			t.Logf("%d KiB for 400, %d KiB for the next 1600", first>>10, later>>10)
			if later > 12*first { // 4 if each costs the same, 24 if each costs what all before it do
				t.Errorf("%d bytes for 400, %d for the next 1600", first, later)
			}
		})
	}
}
