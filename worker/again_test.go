package worker

import (
	"context"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/tool"
)

// A worker is lost after its tool has written a file and before it has answered.
// The attempt that follows writes the file again: the same one stays one, another
// one is another.
func TestAFileThatIsWrittenAgainIsOne(t *testing.T) {
	for name, c := range map[string]struct {
		texts     [2]string // of each attempt
		artifacts int
	}{
		"the same":    {[2]string{"hello", "hello"}, 1},
		"another one": {[2]string{"hello", "goodbye"}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, time.Second)
			var written, lost atomic.Bool
			write := made{tool.Spec{Name: "write", OnCrash: tool.Retry}, func(ctx context.Context, call tool.Call) (tool.Result, error) {
				part, err := store(ctx, call, c.texts[call.Attempt-1])
				if err != nil {
					return tool.Result{}, err
				}
				if !lost.Load() {
					written.Store(true)
					<-ctx.Done()
					return tool.Result{}, ctx.Err()
				}
				return tool.Result{Content: []event.Part{part}}, nil
			}}
			first := b.worker(calls("write"), write)
			b.invoke("run_1", "hi")
			b.until("the file", func(s *event.Session) bool {
				return written.Load() && len(s.Artifacts) == 1 && s.Artifacts[0].Status == event.Completed
			})
			lost.Store(true)
			first.cut()
			b.worker(calls("write"), write)
			s, run := b.ended("run_1")
			if run.Status != event.Completed || len(s.Artifacts) != c.artifacts {
				t.Fatalf("the run is %s with %d artifacts: %s", run.Status, len(s.Artifacts), s.Encode())
			}
			call := s.Call("call_0")
			if got, want := call.Content[0].ArtifactID, s.Artifacts[c.artifacts-1].ArtifactID; call.Attempt != 2 || got != want {
				t.Errorf("attempt %d has written %s, want %s", call.Attempt, got, want)
			}
			if n := countType(b.events(), event.ArtifactStarted); n != c.artifacts {
				t.Errorf("%d artifacts were begun, want %d", n, c.artifacts)
			}
		})
	}
}

func store(ctx context.Context, call tool.Call, text string) (event.Part, error) {
	w, err := call.Create(ctx, "note.txt", "text/plain")
	if err != nil {
		return event.Part{}, err
	}
	defer w.Abort()
	if _, err := io.WriteString(w, text); err != nil {
		return event.Part{}, err
	}
	return w.Commit(ctx)
}
