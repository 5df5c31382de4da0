package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/artifacts"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/model"
	"github.com/runlog-dev/runlog/worker/tool"
)

func TestARunFromCommandToRelease(t *testing.T) {
	b := newBench(t, 2*time.Second)
	b.worker(says("Hello ", "world."))
	b.invoke("run_1", "hi")
	s, run := b.ended("run_1")
	if run.Status != event.Completed || run.Usage.InputTokens != 10 || run.Usage.Steps != 1 {
		t.Errorf("run is %+v", run)
	}
	if got := s.Messages[1].Parts[0].Text; got != "Hello world." {
		t.Errorf("the answer is %q", got)
	}
	b.until("the release", func(s *event.Session) bool { return s.Book.Claim.Released })
	events := b.events()
	want := "session.created session.claimed run.started message.completed run.status step.started message.started message.completed step.completed run.completed session.released"
	if got := types(events); got != want {
		t.Errorf("events are\n%s\nwant\n%s", got, want)
	}
	if waiting, _ := b.log.Inbox(t.Context(), key); len(waiting) != 0 {
		t.Errorf("the inbox still holds %+v", waiting)
	}
	if err := b.log.Ticket(t.Context(), key); err != nil {
		t.Errorf("the ticket was not released: %v", err)
	}
}

func TestRunsOfASessionNeverInterleave(t *testing.T) {
	b := newBench(t, 2*time.Second)
	var busy atomic.Int32
	slow := play(func(ctx context.Context, req model.Request, emit func(model.Chunk) error) (model.Result, error) {
		if busy.Add(1) != 1 {
			t.Error("two runs at once")
		}
		defer busy.Add(-1)
		time.Sleep(20 * time.Millisecond)
		return says("ok")(ctx, req, emit)
	})
	for range 2 {
		b.worker(slow)
	}
	for i := range 10 {
		b.invoke(fmt.Sprint("run_", i), "go")
	}
	for i := range 10 {
		if _, run := b.ended(fmt.Sprint("run_", i)); run.Status != event.Completed {
			t.Errorf("run %d is %s", i, run.Status)
		}
	}
	current := ""
	for _, e := range b.events() {
		if e.Type == event.RunStarted {
			if current != "" {
				t.Errorf("%s started inside %s", e.RunID, current)
			}
			current = e.RunID
		}
		if e.Type.Terminal() {
			current = ""
		}
	}
}

func TestTheSameCommandTwiceIsOneRun(t *testing.T) {
	b := newBench(t, 2*time.Second)
	b.worker(says("once"))
	b.invoke("run_1", "hi")
	b.ended("run_1")
	// Delivered again after the deduplication window of the inbox: under
	// another message id, with the same command id.
	b.submit(event.Command{Kind: event.Invoke, RunID: "run_1", CommandID: "cmd_run_1invoke", Agent: "a"})
	b.submit(event.Command{Kind: event.Invoke, RunID: "run_1", CommandID: "another", Agent: "a"})
	b.until("an empty inbox", func(*event.Session) bool {
		waiting, err := b.log.Inbox(context.Background(), key)
		return err == nil && len(waiting) == 0
	})
	if n := countType(b.events(), event.RunStarted); n != 1 {
		t.Errorf("%d runs were started", n)
	}
}

func TestToolsRunSideBySideAndKeepTheirArguments(t *testing.T) {
	b := newBench(t, 2*time.Second)
	var both sync.WaitGroup
	both.Add(2)
	meet := func(_ context.Context, c tool.Call) (tool.Result, error) {
		both.Done()
		both.Wait() // only if they run at the same time
		c.Progress(event.Progress{Progress: 1, Total: 2})
		return tool.Result{Content: []event.Part{event.TextPart(c.Args + c.IdempotencyKey)}}, nil
	}
	b.worker(calls("x", "y"), made{tool.Spec{Name: "x"}, meet}, made{tool.Spec{Name: "y"}, meet})
	b.invoke("run_1", "hi")
	s, run := b.ended("run_1")
	if run.Status != event.Completed || run.Usage.ToolCalls != 2 || run.Usage.Steps != 2 {
		t.Errorf("run is %+v", run)
	}
	if got := s.Call("call_0").Content[0].Text; got != `{"n":9007199254740993}run_1/call_0` {
		t.Errorf("the tool saw %q", got)
	}
}

func TestAModelThatBreaksOffIsAskedAgain(t *testing.T) {
	b := newBench(t, 2*time.Second)
	var tries atomic.Int32
	b.worker(play(func(ctx context.Context, req model.Request, emit func(model.Chunk) error) (model.Result, error) {
		if tries.Add(1) < 3 {
			_ = emit(model.Chunk{Kind: model.Reasoning, Text: "hm"})
			for range 20 {
				_ = emit(model.Chunk{Kind: model.Text, Text: "lost "})
			}
			_ = emit(model.Chunk{Kind: model.CallStart, CallID: "call_x", Name: "x"})
			return model.Result{}, &model.Error{Code: event.CodeModelError, Message: "broken", Retryable: true}
		}
		return says("clean")(ctx, req, emit)
	}))
	b.invoke("run_1", "hi")
	s, run := b.ended("run_1")
	if run.Status != event.Completed || len(s.Messages) != 2 || len(s.ToolCalls) != 0 || s.Messages[1].Parts[0].Text != "clean" {
		t.Errorf("the fold shows %s", s.Encode())
	}
	if n := countType(b.events(), event.MessageDiscarded); n != 2 {
		t.Errorf("%d attempts were taken back", n)
	}
}

func TestModelFaultsThatEndTheRun(t *testing.T) {
	for name, fault := range map[string]*model.Error{
		"for good":   {Code: event.CodeModelRefused, Message: "no"},
		"once again": {Code: event.CodeUnavailable, Message: "down", Retryable: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 2*time.Second)
			b.worker(play(func(_ context.Context, _ model.Request, emit func(model.Chunk) error) (model.Result, error) {
				_ = emit(model.Chunk{Kind: model.Text, Text: "half"})
				return model.Result{}, fault
			}))
			b.invoke("run_1", "hi")
			s, run := b.ended("run_1")
			if run.Status != event.Failed || run.Error.Code != fault.Code || len(s.Messages) != 1 {
				t.Errorf("the fold shows %s", s.Encode())
			}
		})
	}
}

func TestNoCallOfATruncatedAnswerRuns(t *testing.T) {
	b := newBench(t, 2*time.Second)
	b.worker(play(func(_ context.Context, _ model.Request, emit func(model.Chunk) error) (model.Result, error) {
		_ = emit(model.Chunk{Kind: model.CallStart, CallID: "c", Name: "x"})
		_ = emit(model.Chunk{Kind: model.CallArgs, Text: `{}`})
		return model.Result{FinishReason: event.FinishLength}, nil
	}), made{tool.Spec{Name: "x"}, func(context.Context, tool.Call) (tool.Result, error) {
		t.Error("the tool ran")
		return tool.Result{}, nil
	}})
	b.invoke("run_1", "hi")
	if _, run := b.ended("run_1"); run.Status != event.Failed || run.Error.Code != event.CodeModelTruncated {
		t.Errorf("run is %+v", run)
	}
}

func TestALargeResultGoesToAnArtifact(t *testing.T) {
	b := newBench(t, 2*time.Second)
	big := strings.Repeat("北京 and more\n", 220_000) // 3 MB and a bit
	b.worker(calls("big"), made{tool.Spec{Name: "big"}, func(context.Context, tool.Call) (tool.Result, error) {
		return tool.Result{Content: []event.Part{event.TextPart(big)}}, nil
	}})
	b.invoke("run_1", "hi")
	s, run := b.ended("run_1")
	c := s.Call("call_0")
	if run.Status != event.Completed || !c.Truncated || c.Artifact == nil || c.Artifact.Bytes != int64(len(big)) {
		t.Fatalf("run %s, call %+v", run.Status, c)
	}
	if !strings.HasPrefix(big, c.Content[0].Text) || len(c.Content[0].Text) < 1000 || !json.Valid(event.Encode(c.Content)) {
		t.Errorf("kept %d bytes of it", len(c.Content[0].Text))
	}
	info, err := b.store.Stat(t.Context(), artifacts.Key{Tenant: "default", ID: c.Artifact.ArtifactID})
	if err != nil || info.Bytes != int64(len(big)) {
		t.Errorf("artifact %+v, %v", info, err)
	}
	if countType(b.events(), event.ArtifactProgress) == 0 {
		t.Log("no artifact.progress: it was written faster than progress is told")
	}
}

func TestSecretsStayOutOfTheLog(t *testing.T) {
	b := newBench(t, 2*time.Second)
	secret := "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"
	var saw atomic.Value
	b.worker(play(func(ctx context.Context, req model.Request, emit func(model.Chunk) error) (model.Result, error) {
		if len(req.Session.ToolCalls) > 0 {
			return says("use ", secret[:9], secret[9:], " now")(ctx, req, emit)
		}
		_ = emit(model.Chunk{Kind: model.CallStart, CallID: "call_0", Name: "x"})
		for _, c := range `{"api_key":"` + secret + `"}` {
			_ = emit(model.Chunk{Kind: model.CallArgs, Text: string(c)})
		}
		return model.Result{FinishReason: event.FinishToolCalls}, nil
	}), made{tool.Spec{Name: "x"}, func(_ context.Context, c tool.Call) (tool.Result, error) {
		saw.Store(c.Args)
		return tool.Result{Content: []event.Part{event.TextPart("key is " + secret)}}, nil
	}})
	b.invoke("run_1", "my key is "+secret)
	s, run := b.ended("run_1")
	if run.Status != event.Completed {
		t.Errorf("run is %+v", run)
	}
	if saw.Load() != `{"api_key":"`+secret+`"}` {
		t.Errorf("the tool got %v, not the model's arguments", saw.Load())
	}
	for _, e := range b.events() {
		if strings.Contains(string(e.Data), secret[9:30]) {
			t.Errorf("%s holds the secret: %s", e.Type, e.Data)
		}
	}
	if c := s.Call("call_0"); !c.Redacted {
		t.Errorf("call is %+v", c)
	}
}
