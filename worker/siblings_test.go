package worker

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/model"
	"github.com/runlog-dev/runlog/worker/tool"
)

// meeting lets nobody go on before n have come, or ctx ends.
func meeting(n int) func(context.Context) error {
	var mu sync.Mutex
	come, all := 0, make(chan struct{})
	return func(ctx context.Context) error {
		mu.Lock()
		if come++; come == n {
			close(all)
		}
		mu.Unlock()
		select {
		case <-all:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// part is a sub-agent that thinks, speaks, calls its tool once, and answers.
func part(between func(context.Context) error) play {
	return func(ctx context.Context, req model.Request, emit func(model.Chunk) error) (model.Result, error) {
		for _, c := range req.Session.ToolCalls {
			if c.RunID == req.RunID {
				return says("the answer to ", inputOfRun(req))(ctx, req, emit)
			}
		}
		chunks := []model.Chunk{
			{Kind: model.Reasoning, Text: "about "}, {Kind: model.Reasoning, Text: inputOfRun(req)}, {Kind: model.ReasoningEnd},
			{Kind: model.Text, Text: "I look at "}, {Kind: model.Text, Text: inputOfRun(req)},
			{Kind: model.CallStart, CallID: "call_0", Name: "x"}, {Kind: model.CallArgs, Text: `{}`},
		}
		for _, c := range chunks {
			if err := between(ctx); err != nil {
				return model.Result{}, err
			}
			if err := emit(c); err != nil {
				return model.Result{}, err
			}
		}
		return model.Result{FinishReason: event.FinishToolCalls, Usage: usage}, nil
	}
}

func inputOfRun(req model.Request) string {
	for _, m := range req.Session.Messages {
		if m.RunID == req.RunID && m.Role == event.RoleUser {
			return m.Parts[0].Text
		}
	}
	return ""
}

// spoken is what each of the sub-agents said, in the order of their calls.
func spoken(s *event.Session) string {
	var b strings.Builder
	for _, c := range s.ToolCalls {
		if c.RunID != "run_1" {
			continue
		}
		fmt.Fprintf(&b, "%s %s:", c.Args, c.Status)
		for _, r := range s.Runs {
			if r.ParentCallID != c.CallID {
				continue
			}
			for _, m := range s.Messages {
				if m.RunID != r.RunID {
					continue
				}
				for _, p := range m.Parts {
					fmt.Fprintf(&b, " %s %q", p.Type, p.Text)
				}
			}
		}
		fmt.Fprintf(&b, " -> %q\n", c.Content[0].Text)
	}
	return b.String()
}

func spokenBy(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{\"input\":\"part %d\"} completed: text \"part %d\" reasoning \"about part %d\" text \"I look at part %d\" tool_call \"\" text \"the answer to part %d\" -> \"the answer to part %d\"\n", i, i, i, i, i, i)
	}
	return b.String()
}

// Sub-agents that are called in one step work at the same time: their models are
// heard while one speaks, and their tools run side by side. In the log one speaks
// after the other.
func TestSubAgentsSideBySide(t *testing.T) {
	t.Parallel()
	const n = 3
	b := newBench(t, 2*time.Second)
	work := meeting(n)
	between := func(context.Context) error { return nil }
	x := made{tool.Spec{Name: "x", OnCrash: tool.Retry}, func(ctx context.Context, _ tool.Call) (tool.Result, error) {
		return tool.Result{}, work(ctx)
	}}
	first := meeting(n)
	inner := play(func(ctx context.Context, req model.Request, emit func(model.Chunk) error) (model.Result, error) {
		if err := first(ctx); err != nil { // all are asked before any answers
			return model.Result{}, err
		}
		return part(between)(ctx, req, emit)
	})
	b.ensemble(named1(t, "a", delegates(n), subB()), named1(t, "b", inner, x))
	b.invoke("run_1", "hi")
	s, run := b.ended("run_1")
	if got := spoken(s); run.Status != event.Completed || got != spokenBy(n) {
		t.Errorf("run is %+v; they said\n%s", run, got)
	}
	open := "" // who speaks
	for _, e := range b.events() {
		switch e.Type {
		case event.ReasoningStarted, event.MessageStarted:
			if open != "" && open != e.RunID {
				t.Errorf("%s: %s begins while %s speaks", e.ID, e.RunID, open)
			}
			open = e.RunID
		case event.MessageCompleted:
			if open != "" && open != e.RunID {
				t.Errorf("%s: a message of %s while %s speaks", e.ID, e.RunID, open)
			}
			open = ""
		}
	}
}

// The worker is lost wherever the sub-agents are; they go on where they were.
func TestSubAgentsSideBySideOutliveTheirWorker(t *testing.T) {
	for _, at := range []int{2, 5, 7, 9, 12, 14} {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, time.Second)
			var chunks atomic.Int32
			reached := make(chan struct{})
			slow := func(ctx context.Context) error { // until so many chunks were said by both
				if n := chunks.Add(1); int(n) == at {
					close(reached)
				} else if int(n) < at {
					return nil
				}
				<-ctx.Done()
				return context.Cause(ctx)
			}
			x := made{tool.Spec{Name: "x", OnCrash: tool.Retry}, func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{}, nil }}
			a := b.ensemble(named1(t, "a", delegates(2), subB()), named1(t, "b", part(slow), x))
			b.invoke("run_1", "hi")
			<-reached
			a.cut()
			free := func(context.Context) error { return nil }
			b.ensemble(named1(t, "a", delegates(2), subB()), named1(t, "b", part(free), x))
			s, run := b.ended("run_1")
			if got := spoken(s); run.Status != event.Completed || got != spokenBy(2) {
				t.Errorf("run is %+v; they said\n%s", run, got)
			}
		})
	}
}

// One that waits for people does not keep the others from going on.
func TestOneSubAgentWaitsAndAnotherGoesOn(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2*time.Second)
	var ran atomic.Int32
	gated := made{tool.Spec{Name: "x", NeedsApproval: func(args string) bool { return strings.Contains(args, "0") }}, func(context.Context, tool.Call) (tool.Result, error) {
		ran.Add(1)
		return tool.Result{}, nil
	}}
	inner := play(func(ctx context.Context, req model.Request, emit func(model.Chunk) error) (model.Result, error) {
		for _, c := range req.Session.ToolCalls {
			if c.RunID == req.RunID {
				return says("done")(ctx, req, emit)
			}
		}
		_ = emit(model.Chunk{Kind: model.CallStart, CallID: "call_" + req.RunID, Name: "x"})
		_ = emit(model.Chunk{Kind: model.CallArgs, Text: fmt.Sprintf(`{"of":%q}`, inputOfRun(req))})
		return model.Result{FinishReason: event.FinishToolCalls}, nil
	})
	b.ensemble(named1(t, "a", delegates(2), subB()), named1(t, "b", inner, gated))
	b.invoke("run_1", "hi")
	s := b.parked()
	if ran.Load() != 1 || len(s.Approvals) != 1 || !s.Call("run_1_ask_1").Done() || s.Call("run_1_ask_0").Done() {
		t.Fatalf("%d tools ran; the fold is %s", ran.Load(), s.Encode())
	}
	b.decide(event.Approve, s.Approvals[0].CallID, "")
	if s, run := b.ended("run_1"); run.Status != event.Completed || ran.Load() != 2 {
		t.Errorf("the fold is %s", s.Encode())
	}
}
