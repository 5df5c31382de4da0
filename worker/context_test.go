package worker

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/agent"
	"github.com/runlog-dev/runlog/worker/model"
	"github.com/runlog-dev/runlog/worker/tool"
)

// A run whose tools say more than its model can read, over a takeover, goes on
// with requests that fit.
func TestRequestsFitTheModel(t *testing.T) {
	const window = 4000
	t.Parallel()
	b := newBench(t, time.Second)
	big := made{tool.Spec{Name: "x", OnCrash: tool.Retry}, func(_ context.Context, c tool.Call) (tool.Result, error) {
		return tool.Result{Content: []event.Part{event.TextPart(c.CallID + strings.Repeat(" something", 200))}}, nil
	}}
	var mu sync.Mutex
	var sizes []int
	var last string
	m := play(func(ctx context.Context, req model.Request, emit func(model.Chunk) error) (model.Result, error) {
		text := string(req.Session.OpenAIView(event.View{RunID: req.RunID, System: req.System}))
		mu.Lock()
		sizes, last = append(sizes, len(text)), text
		mu.Unlock()
		return loops(20)(ctx, req, emit)
	})
	ag := func() *agent.Agent {
		return newAgent(t, agent.Definition{Name: "a", Model: agent.ModelConfig{Context: window, Endpoint: model.Endpoint{Name: "m", MaxTokens: 1000}}}, m, big)
	}
	a := b.ensemble(ag())
	b.invoke("run_1", "the task")
	b.until("some steps", func(s *event.Session) bool { return len(s.ToolCalls) > 5 })
	a.cut()
	b.ensemble(ag())
	_, run := b.ended("run_1")
	if run.Status != event.Completed || run.Usage.Steps != 21 {
		t.Fatalf("run is %+v", run)
	}
	mu.Lock()
	defer mu.Unlock()
	for i, n := range sizes {
		if n > (window-1000)*3 {
			t.Errorf("request %d has %d bytes", i, n)
		}
	}
	if !strings.Contains(last, "the task") || !strings.Contains(last, "run_1_19 something") {
		t.Errorf("the last request lacks the task or the last result: %s", last)
	}
	cuts := 0
	for _, e := range b.events() {
		if e.Type == event.Custom && e.Internal {
			cuts++
		}
	}
	if cuts == 0 || cuts > 10 {
		t.Errorf("it was cut %d times in 21 steps", cuts)
	}
}

func TestARequestThatCannotFitFailsTheRun(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2*time.Second)
	b.ensemble(newAgent(t, agent.Definition{Name: "a", Model: agent.ModelConfig{Context: 1000}}, says("never")))
	b.invoke("run_1", strings.Repeat("too long ", 1000))
	if _, run := b.ended("run_1"); run.Status != event.Failed || run.Error.Code != event.CodeTooLarge {
		t.Errorf("run is %+v", run)
	}
}

// The next run of the session begins where the last one's cut was.
func TestOldTurnsAreLeftOut(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2*time.Second)
	var last string
	b.ensemble(newAgent(t, agent.Definition{Name: "a", Model: agent.ModelConfig{Context: 2000, Endpoint: model.Endpoint{MaxTokens: 500}}},
		play(func(ctx context.Context, req model.Request, emit func(model.Chunk) error) (model.Result, error) {
			last = string(req.Session.OpenAIView(event.View{RunID: req.RunID, System: req.System}))
			return says("ok")(ctx, req, emit)
		})))
	for i := range 12 {
		id := fmt.Sprint("run_", i)
		b.invoke(id, fmt.Sprint("turn ", i, strings.Repeat(" word", 200)))
		b.ended(id)
	}
	if strings.Contains(last, "turn 1 ") || !strings.Contains(last, "turn 11 ") || !strings.Contains(last, "left out") {
		t.Errorf("the last request is %s", last)
	}
}
