package worker

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/agent"
	"github.com/runlog-dev/runlog/worker/model"
	"github.com/runlog-dev/runlog/worker/tool"
)

func withFallback(t *testing.T, first, second model.Model, tools ...tool.Tool) *agent.Agent {
	t.Helper()
	config := func(name string) agent.ModelConfig { return agent.ModelConfig{Endpoint: model.Endpoint{Name: name}} }
	a := newAgent(t, agent.Definition{Name: "a", Model: config("first"), Fallback: []agent.ModelConfig{config("second")}}, first, tools...)
	a.Fallback = []model.Model{second}
	return a
}

func fails(fault model.Error, tries *atomic.Int32) play {
	return func(_ context.Context, _ model.Request, emit func(model.Chunk) error) (model.Result, error) {
		tries.Add(1)
		_ = emit(model.Chunk{Kind: model.Text, Text: "half"})
		return model.Result{}, &fault
	}
}

// asked lists the models that the log names, step by step.
func asked(t *testing.T, events []event.Event) string {
	t.Helper()
	var list []string
	for _, e := range events {
		if e.Type == event.StepStarted {
			var d event.StepStartedData
			if err := e.Into(&d); err != nil {
				t.Fatal(err)
			}
			list = append(list, d.Model)
		}
	}
	return strings.Join(list, " ")
}

func TestTheNextModelIsAskedWhereOneIsNotThere(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault model.Error
		tries int32
		code  event.Code // of the run if nobody else is asked
	}{
		{"after its retries", model.Error{Code: event.CodeModelError, Retryable: true}, 5, ""},
		{"at once", model.Error{Code: event.CodeModelError, Absent: true}, 1, ""},
		{"unavailable for good", model.Error{Code: event.CodeUnavailable}, 1, ""},
		{"not where it refuses", model.Error{Code: event.CodeModelRefused}, 1, event.CodeModelRefused},
		{"not where the request is wrong", model.Error{Code: event.CodeModelError}, 1, event.CodeModelError},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 2*time.Second)
			var tries atomic.Int32
			b.ensemble(withFallback(t, fails(c.fault, &tries), loops(1), quick("x")))
			b.invoke("run_1", "hi")
			s, run := b.ended("run_1")
			if tries.Load() != c.tries {
				t.Errorf("the first model was asked %d times, want %d", tries.Load(), c.tries)
			}
			if c.code != "" {
				if run.Status != event.Failed || run.Error.Code != c.code {
					t.Errorf("run is %+v", run)
				}
				return
			}
			if run.Status != event.Completed || len(s.Messages) != 3 || asked(t, b.events()) != "first second second" {
				t.Errorf("asked %s; the fold is %s", asked(t, b.events()), s.Encode())
			}
		})
	}
}

func TestBothModelsFail(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2*time.Second)
	var tries atomic.Int32
	down := model.Error{Code: event.CodeUnavailable, Message: "down", Retryable: true}
	b.ensemble(withFallback(t, fails(down, &tries), fails(down, &tries)))
	b.invoke("run_1", "hi")
	if s, run := b.ended("run_1"); run.Status != event.Failed || run.Error.Code != event.CodeUnavailable || tries.Load() != 10 || len(s.Messages) != 1 {
		t.Errorf("after %d tries the fold is %s", tries.Load(), s.Encode())
	}
}

// Which model is asked is in the log: another worker asks the same.
func TestATakeoverStaysWithTheFallback(t *testing.T) {
	t.Parallel()
	b := newBench(t, time.Second)
	var tries, started atomic.Int32
	down := model.Error{Code: event.CodeUnavailable}
	a := b.ensemble(withFallback(t, fails(down, &tries), hangs(&started, nil)))
	b.invoke("run_1", "hi")
	b.until("the fallback to speak", func(*event.Session) bool { return started.Load() == 1 })
	a.cut()
	b.ensemble(withFallback(t, fails(down, &tries), says("here")))
	_, run := b.ended("run_1")
	if run.Status != event.Completed || tries.Load() != 1 || asked(t, b.events()) != "first second" {
		t.Errorf("the first was asked %d times, the log says %s", tries.Load(), asked(t, b.events()))
	}
}
