package worker

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/agent"
	"github.com/runlog-dev/runlog/worker/model"
	"github.com/runlog-dev/runlog/worker/remote"
	"github.com/runlog-dev/runlog/worker/remote/agui"
	"github.com/runlog-dev/runlog/worker/remote/exec"
	"github.com/runlog-dev/runlog/worker/tool"
)

// chatterbox talks over AG-UI until it is hung up on.
func chatterbox(t *testing.T) (url string, hungUp chan struct{}) {
	hungUp = make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range []string{`"RUN_STARTED","threadId":"ses_1","runId":"run_1/leg-1"`, `"TEXT_MESSAGE_START","messageId":"m1","role":"assistant"`,
			`"TEXT_MESSAGE_CONTENT","messageId":"m1","delta":"so far"`, `"TOOL_CALL_START","toolCallId":"c1","toolCallName":"pay","parentMessageId":"m1"`} {
			fmt.Fprintf(w, "data: {\"type\":%s}\n\n", e)
		}
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(hungUp)
	}))
	t.Cleanup(s.Close)
	return s.URL, hungUp
}

// A stop ends an agent that would talk for ever, and what it has said stands: of a
// program its last words too.
func TestStopEndsAnAgentElsewhere(t *testing.T) {
	url, hungUp := chatterbox(t)
	const program = `trap 'echo "{\"type\":\"usage\",\"input_tokens\":7}"; exit 1' TERM
echo '{"type":"text.delta","delta":"so far"}'; echo '{"type":"tool.started","call_id":"c1","name":"pay"}'; sleep 600 & wait`
	for kind, r := range map[agent.Kind]remote.Agent{
		agent.Exec: exec.New(exec.Options{Command: []string{"/bin/sh", "-c", program}}),
		agent.AGUI: agui.New(agui.Options{URL: url}),
	} {
		t.Run(string(kind), func(t *testing.T) {
			b := newBench(t, 2*time.Second)
			b.ensemble(agent.NewRemote(agent.Definition{Name: "a", Kind: kind}, r, nil))
			b.invoke("run_1", "hi")
			b.until("the agent at work", func(s *event.Session) bool { return s.Call("c1") != nil })
			b.submit(event.Command{Kind: event.Stop, RunID: "run_1", By: "boss"})
			s, run := b.ended("run_1")
			const want = "user: text \"hi\"\nassistant: text \"so far\" tool_call \"\" pay() failed\nstate ; 0 activities, 0 artifacts"
			if got := told(s); got != want || run.Status != event.Completed || run.FinishReason != event.FinishStopped || run.Output.MessageID != s.Messages[1].MessageID {
				t.Errorf("run is %+v, the fold tells\n%s", run, got)
			}
			if c := s.Call("c1"); c.Outcome != event.OutcomeUnknown {
				t.Errorf("the call is %+v", c)
			}
			switch kind {
			case agent.Exec:
				if run.Usage.InputTokens != 7 {
					t.Errorf("usage is %+v", run.Usage)
				}
			case agent.AGUI:
				<-hungUp
			}
			b.events()
		})
	}
}

// The worker is lost between the stop and the agent's end. Nobody asks the agent
// anew to stop it then.
func TestAStoppedAgentElsewhereIsNotAskedAnew(t *testing.T) {
	const whole = `user: text "hi"
assistant: reasoning "let me see" text "I look it up." tool_call "" search({"q":"x"}) completed "found" tool_call "" fetch({}) failed "no"
state {"n":2}; 1 activities, 1 artifacts`
	for policy, want := range map[tool.OnCrash]string{
		tool.Retry: "user: text \"hi\"\nstate null; 1 activities, 1 artifacts",
		tool.Fail:  whole,
	} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, time.Second)
			begun, told1, lost := make(chan struct{}), make(chan struct{}), make(chan struct{})
			release := sync.OnceFunc(func() { close(lost) })
			t.Cleanup(release)
			d := agent.Definition{OnCrash: policy}
			a := b.remote(d, elsewhere(func(ctx context.Context, task remote.Task, say func(remote.Saying) error) error {
				if err := tells(story...)(ctx, task, say); err != nil {
					return err
				}
				close(begun)
				<-ctx.Done()
				close(told1)
				<-lost // stubborn
				return context.Cause(ctx)
			}))
			b.invoke("run_1", "hi")
			<-begun
			b.until("the last message", func(s *event.Session) bool { return len(s.Messages) == 3 })
			b.submit(event.Command{Kind: event.Stop, RunID: "run_1", By: "boss"})
			<-told1
			a.cut()
			release()
			var asked atomic.Int32
			b.remote(d, elsewhere(func(context.Context, remote.Task, func(remote.Saying) error) error { asked.Add(1); return nil }))
			s, run := b.ended("run_1")
			if got := told(s); got != want || run.Status != event.Completed || run.FinishReason != event.FinishStopped || asked.Load() != 0 {
				t.Errorf("asked %d times, run is %+v, the fold tells\n%s", asked.Load(), run, got)
			}
			b.events()
		})
	}
}

// A stop does not wait for the next attempt.
func TestStopBetweenTwoAttempts(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2*time.Second)
	b.remote(agent.Definition{}, elsewhere(func(_ context.Context, task remote.Task, say func(remote.Saying) error) error {
		if task.Retry > 1 {
			t.Error("it was asked again")
		}
		if err := say(remote.Text{Delta: "half"}); err != nil {
			return err
		}
		return &model.Error{Code: event.CodeUnavailable, Message: "busy", Retryable: true, RetryAfter: time.Minute}
	}))
	b.invoke("run_1", "hi")
	b.until("the retry", func(s *event.Session) bool {
		return len(s.Messages) == 1 && s.Messages[0].Role == event.RoleUser && s.Seq > 5
	})
	b.submit(event.Command{Kind: event.Stop, RunID: "run_1", By: "boss"})
	if s, run := b.ended("run_1"); run.FinishReason != event.FinishStopped || len(s.Messages) != 1 {
		t.Errorf("run is %+v, the fold tells %s", run, told(s))
	}
}
