package worker

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
	"github.com/runlog-dev/runlog/worker/agent"
	"github.com/runlog-dev/runlog/worker/model"
	"github.com/runlog-dev/runlog/worker/remote"
	"github.com/runlog-dev/runlog/worker/tool"
)

// A panic fails its run, whichever part of it threw, and what was open is closed;
// the session takes the next run, and other sessions of the worker notice nothing.
func TestAPanicFailsItsRunAlone(t *testing.T) {
	for name, start := range map[string]func(*bench, chan struct{}){
		"model": func(b *bench, calm chan struct{}) {
			b.worker(play(func(ctx context.Context, req model.Request, emit func(model.Chunk) error) (model.Result, error) {
				if req.RunID != "run_1" {
					<-calm
					return says("fine")(ctx, req, emit)
				}
				_ = emit(model.Chunk{Kind: model.Text, Text: "I "})
				_ = emit(model.Chunk{Kind: model.Text, Text: "am"})
				panic("a model")
			}))
		},
		"tool": func(b *bench, calm chan struct{}) {
			b.worker(loops(1), made{tool.Spec{Name: "x"}, func(_ context.Context, c tool.Call) (tool.Result, error) {
				if c.RunID == "run_1" {
					panic("a tool")
				}
				<-calm
				return tool.Result{}, nil
			}})
		},
		"agent elsewhere": func(b *bench, calm chan struct{}) {
			b.remote(agent.Definition{}, elsewhere(func(_ context.Context, task remote.Task, say func(remote.Saying) error) error {
				if err := say(remote.Text{Delta: "I am"}); err != nil {
					return err
				}
				if task.RunID == "run_1" {
					panic("an agent")
				}
				<-calm
				return nil
			}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 20*time.Second)
			calm := make(chan struct{})
			start(b, calm)
			other := eventlog.Key{Tenant: key.Tenant, Session: "ses_2"}
			b.submitTo(other, event.Command{Kind: event.Invoke, CommandID: "cmd_o", SessionID: "ses_2", RunID: "run_o", Agent: "a",
				Messages: []event.InputMessage{{MessageID: "msg_o", Role: event.RoleUser, Parts: []event.Part{event.TextPart("hi")}}}})
			b.untilIn(other, "its start", func(s *event.Session) bool { return s.Run("run_o") != nil })
			b.invoke("run_1", "hi")
			_, run := b.ended("run_1")
			if run.Status != event.Failed || run.Error.Code != event.CodeInternal || run.Book.Attempt != 1 {
				t.Errorf("%s %+v in attempt %d", run.Status, run.Error, run.Book.Attempt)
			}
			close(calm)
			b.untilIn(other, "its end", func(s *event.Session) bool { return s.Run("run_o").Status == event.Completed })
			b.invoke("run_2", "hi")
			if _, run := b.ended("run_2"); run.Status != event.Completed {
				t.Errorf("the next run is %s", run.Status)
			}
			b.audit()
		})
	}
}

// The snapshot is encoded by a goroutine of nobody's: a fold that cannot be is
// not stored, and that is all.
func TestASnapshotThatCannotBeEncoded(t *testing.T) {
	fold := event.NewSession("ses_1")
	fold.State = json.RawMessage(`{`)
	var thrown *agent.Panic
	if err := (&journal{}).store(fold); !errors.As(err, &thrown) {
		t.Errorf("%v", err)
	}
}
