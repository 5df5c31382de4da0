package worker

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/tool"
)

// Of more calls than run at once those that have to wait have not begun: not in a
// run that is cancelled meanwhile, and not when the worker is lost.
func TestCallsThatWaitForOthersHaveNotBegun(t *testing.T) {
	const all, atOnce = 20, 16
	for _, c := range []struct {
		name    string
		end     func(*bench, *running, tool.Tool)
		ran     int32 // in the end
		status  event.Status
		outcome event.Outcome // of those that ran first
	}{
		{"cancelled", func(b *bench, _ *running, _ tool.Tool) { b.cancelRun("run_1") }, atOnce, event.Cancelled, event.OutcomeCancelled},
		{"lost", func(b *bench, w *running, x tool.Tool) {
			w.cut()
			b.worker(calls(slices.Repeat([]string{"x"}, all)...), x)
		},
			all, event.Completed, event.OutcomeUnknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, time.Second)
			var ran atomic.Int32
			x := made{tool.Spec{Name: "x", OnCrash: tool.Fail}, func(ctx context.Context, _ tool.Call) (tool.Result, error) {
				if ran.Add(1) > atOnce {
					return tool.Text("done"), nil
				}
				<-ctx.Done()
				return tool.Result{}, ctx.Err()
			}}
			w := b.worker(calls(slices.Repeat([]string{"x"}, all)...), x)
			b.invoke("run_1", "hi")
			b.until("as many calls as run at once", func(*event.Session) bool { return ran.Load() == atOnce })
			c.end(b, w, x)
			s, run := b.ended("run_1")
			if run.Status != c.status || ran.Load() != c.ran {
				t.Errorf("the run is %s, %d calls ran, not %d", run.Status, ran.Load(), c.ran)
			}
			for i, call := range s.ToolCalls[:atOnce] {
				if call.Outcome != c.outcome {
					t.Errorf("call %d was running, and is %s (%s)", i, call.Status, call.Outcome)
				}
			}
		})
	}
}
