package worker

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
	"github.com/runlog-dev/runlog/worker/agent"
)

// A run that waits behind another one for too long fails, whether that one is at
// work or waits for a person; what comes after it is not held up.
func TestAQueuedRunExpires(t *testing.T) {
	limited := agent.Definition{Name: "a", Limits: agent.Limits{Queued: 200 * time.Millisecond}}
	t.Run("behind one at work", func(t *testing.T) {
		b := newBench(t, 2*time.Second)
		var started atomic.Int32
		b.defined(limited, hangs(&started, nil), Options{})
		b.invoke("run_1", "hi")
		waitFor(t, &started, 1)
		b.expires("run_2")
		b.cancelRun("run_1")
		b.ended("run_1")
	})
	t.Run("behind one that is parked", func(t *testing.T) {
		b := newBench(t, 2*time.Second)
		var ran atomic.Int32
		b.defined(limited, calls("x"), Options{}, asking("x", &ran, time.Hour))
		b.invoke("run_1", "hi")
		call := b.parked().Call("call_0")
		b.expires("run_2")
		b.decide(event.Approve, call.CallID, event.ArgsHash(call.Args))
		if _, run := b.ended("run_1"); run.Status != event.Completed {
			t.Errorf("the run before it is %s", run.Status)
		}
	})
	t.Run("in time", func(t *testing.T) {
		b := newBench(t, 2*time.Second)
		b.defined(agent.Definition{Name: "a", Limits: agent.Limits{Queued: time.Hour}}, says("hi"), Options{})
		b.invoke("run_1", "hi")
		b.invoke("run_2", "hi")
		if _, run := b.ended("run_2"); run.Status != event.Completed {
			t.Errorf("the run is %s", run.Status)
		}
	})
}

func (b *bench) expires(runID string) {
	b.t.Helper()
	b.invoke(runID, "are you there?")
	if _, run := b.ended(runID); run.Status != event.Failed || run.Error.Code != event.CodeExpired {
		b.t.Errorf("the run that waits is %s: %+v", run.Status, run.Error)
	}
}

// It is the server's clock that says when it is time: this one may be behind.
func TestAQueuedRunExpiresByTheServersClock(t *testing.T) {
	s := event.NewSession("ses_1")
	s.Book.Queue = []*event.Queued{{RunID: "run_2"}}
	due := eventlog.Waiting{Command: event.Command{Kind: event.Expire, RunID: "run_2"}, Stored: time.Now().Add(time.Minute)}
	if got := expireQueued(s, due); len(got) != 1 || got[0].Type != event.RunFailed {
		t.Errorf("the run is not ended: %+v", got)
	}
}
