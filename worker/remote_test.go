package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/agent"
	"github.com/runlog-dev/runlog/worker/model"
	"github.com/runlog-dev/runlog/worker/remote"
	"github.com/runlog-dev/runlog/worker/tool"
)

// elsewhere is an agent that does what the function says.
type elsewhere func(ctx context.Context, task remote.Task, say func(remote.Saying) error) error

func (e elsewhere) Run(ctx context.Context, task remote.Task, say func(remote.Saying) error) error {
	return e(ctx, task, say)
}
func (elsewhere) Close() error { return nil }

func (b *bench) remote(d agent.Definition, r remote.Agent) *running {
	d.Name, d.Kind = "a", agent.Exec
	return b.ensemble(agent.NewRemote(d, r, nil))
}

// tells says these things, one after the other.
func tells(list ...remote.Saying) elsewhere {
	return func(_ context.Context, _ remote.Task, say func(remote.Saying) error) error {
		for _, s := range list {
			if err := say(s); err != nil {
				return err
			}
		}
		return nil
	}
}

// story has one of each, over several messages.
var story = []remote.Saying{
	remote.Reasoning{Delta: "let me "}, remote.Reasoning{Delta: "see"}, remote.ReasoningEnd{},
	remote.Text{MessageID: "m1", Delta: "I look "}, remote.Text{MessageID: "m1", Delta: "it up."},
	remote.Call{MessageID: "m1", CallID: "c1", Name: "search"}, remote.Args{CallID: "c1", Delta: `{"q":`},
	remote.Call{MessageID: "m1", CallID: "c2", Name: "fetch"}, remote.Args{CallID: "c1", Delta: `"x"}`}, remote.Args{CallID: "c2", Delta: `{}`},
	remote.State{State: json.RawMessage(`{"n":1}`)},
	remote.Progress{CallID: "c1", Progress: event.Progress{Progress: 1, Total: 2}},
	remote.Result{CallID: "c1", Content: []event.Part{event.TextPart("found")}},
	remote.Usage{Usage: event.Usage{InputTokens: 10, OutputTokens: 5}},
	remote.Result{CallID: "c2", Content: []event.Part{event.TextPart("no")}, Failed: true},
	remote.StatePatch{Patch: json.RawMessage(`[{"op":"replace","path":"/n","value":2}]`)},
	remote.Activity{ID: "act", Kind: "a2ui", Content: json.RawMessage(`{"rows":[]}`)},
	remote.ActivityPatch{ID: "act", Patch: json.RawMessage(`[{"op":"add","path":"/rows/-","value":1}]`)},
	remote.Artifact{Name: "a.txt", MediaType: "text/plain", Data: []byte("hello")},
	remote.Custom{Name: "mine", Value: json.RawMessage(`{"x":1}`)},
	remote.Raw{Source: "test", Event: json.RawMessage(`{"type":"STEP"}`)},
	remote.Text{MessageID: "m2", Delta: "It is "}, remote.Text{MessageID: "m2", Delta: "found."},
}

// told is what stands of the conversation, whatever it went through.
func told(s *event.Session) string {
	var b strings.Builder
	for _, m := range s.Messages {
		fmt.Fprintf(&b, "%s:", m.Role)
		for _, p := range m.Parts {
			fmt.Fprintf(&b, " %s %q", p.Type, p.Text)
			if c := s.Call(p.CallID); c != nil {
				fmt.Fprintf(&b, " %s(%s) %s", c.Name, c.Args, c.Status)
				for _, p := range c.Content {
					fmt.Fprintf(&b, " %q", p.Text)
				}
			}
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "state %s; %d activities, %d artifacts", s.State, len(s.Activities), len(s.Artifacts))
	return b.String()
}

func TestAnAgentThatLivesElsewhere(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2*time.Second)
	b.remote(agent.Definition{}, tells(story...))
	b.invoke("run_1", "hi")
	s, run := b.ended("run_1")
	const want = `user: text "hi"
assistant: reasoning "let me see" text "I look it up." tool_call "" search({"q":"x"}) completed "found" tool_call "" fetch({}) failed "no"
assistant: text "It is found."
state {"n":2}; 1 activities, 1 artifacts`
	if got := told(s); got != want {
		t.Errorf("the fold tells\n%s\nwant\n%s", got, want)
	}
	if run.Status != event.Completed || run.Usage.InputTokens != 10 || run.Usage.Steps != 1 || run.Output.MessageID != "m2" {
		t.Errorf("run is %+v", run)
	}
	if s.Call("c1").Executor != event.ByRemote || string(s.Activities[0].Content) != `{"rows":[1]}` {
		t.Errorf("the fold is %s", s.Encode())
	}
	log := b.events()
	if n := countType(log, event.Custom); n != 3 { // two marks
		t.Errorf("%d custom events", n)
	}
}

// An attempt that breaks off, wherever it does, leaves nothing behind.
func TestAnAttemptThatBreaksOffIsTakenBack(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2*time.Second)
	b.remote(agent.Definition{}, tells(story...))
	b.invoke("run_1", "hi")
	s, _ := b.ended("run_1")
	want := told(s)
	for cut := range len(story) + 1 {
		t.Run(fmt.Sprint(cut), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 2*time.Second)
			var keys atomic.Value
			keys.Store([]string{})
			b.remote(agent.Definition{}, elsewhere(func(ctx context.Context, task remote.Task, say func(remote.Saying) error) error {
				keys.Store(append(keys.Load().([]string), task.Key))
				if task.Retry > 2 {
					return tells(story...)(ctx, task, say)
				}
				if err := tells(story[:cut]...)(ctx, task, say); err != nil {
					return err
				}
				return &model.Error{Code: event.CodeModelTruncated, Message: "broke off", Retryable: true}
			}))
			b.invoke("run_1", "hi")
			s, run := b.ended("run_1")
			if got := told(s); got != want || run.Status != event.Completed {
				t.Errorf("the fold tells\n%s\nwant\n%s", got, want)
			}
			if got := keys.Load().([]string); !slices.Equal(got, []string{"run_1/leg-1", "run_1/leg-1", "run_1/leg-1"}) {
				t.Errorf("keys were %q", got)
			}
		})
	}
}

// The worker is lost with the agent at work; the next one asks anew.
func TestAnAgentElsewhereOutlivesItsWorker(t *testing.T) {
	for _, policy := range []tool.OnCrash{tool.Retry, tool.Fail} {
		for _, how := range []string{"cut", "drain"} {
			t.Run(string(policy)+" "+how, func(t *testing.T) {
				t.Parallel()
				b := newBench(t, time.Second)
				var begun atomic.Int32
				d := agent.Definition{OnCrash: policy}
				first := elsewhere(func(ctx context.Context, task remote.Task, say func(remote.Saying) error) error {
					if err := tells(story[:len(story)-1]...)(ctx, task, say); err != nil {
						return err
					}
					begun.Add(1)
					<-ctx.Done()
					return context.Cause(ctx)
				})
				a := b.remote(d, first)
				b.invoke("run_1", "hi")
				b.until("the agent at work", func(s *event.Session) bool { return begun.Load() == 1 && len(s.Messages) == 3 })
				if how == "cut" {
					a.cut()
				} else {
					go a.drain() // waits for its grace
				}
				b.remote(d, tells(remote.Text{MessageID: "m1", Delta: "anew"}))
				s, run := b.ended("run_1")
				if policy == tool.Fail {
					if run.Status != event.Failed || run.Error.Code != event.CodeInterrupted || len(s.Messages) != 2 || s.Call("c1") == nil {
						t.Errorf("run is %+v, the fold tells %s", run, told(s))
					}
					return
				}
				want := "user: text \"hi\"\nassistant: text \"anew\"\nstate null; 1 activities, 1 artifacts"
				if got := told(s); run.Status != event.Completed || got != want {
					t.Errorf("run is %+v, the fold tells\n%s", run, got)
				}
			})
		}
	}
}

// What was said before a checkpoint stands, and the agent has it back.
func TestACheckpointStands(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2*time.Second)
	b.remote(agent.Definition{}, elsewhere(func(ctx context.Context, task remote.Task, say func(remote.Saying) error) error {
		n := 0
		if task.Checkpoint != nil {
			_ = json.Unmarshal(task.Checkpoint, &n)
		}
		for ; n < 3; n++ {
			err := tells(remote.Text{Delta: fmt.Sprint("part ", n)}, remote.State{State: json.RawMessage(fmt.Sprint(n))}, remote.Checkpoint{Value: json.RawMessage(fmt.Sprint(n + 1))},
				remote.Text{Delta: "draft"}, remote.State{State: json.RawMessage(`"draft"`)})(ctx, task, say)
			if err != nil {
				return err
			}
			if task.Retry == n+1 {
				return &model.Error{Code: event.CodeUnavailable, Message: "gone", Retryable: true}
			}
			if err := say(remote.MessageEnd{}); err != nil {
				return err
			}
		}
		return nil
	}))
	b.invoke("run_1", "hi")
	s, run := b.ended("run_1")
	want := "user: text \"hi\"\nassistant: text \"part 0\"\nassistant: text \"part 1\"\nassistant: text \"part 2\"\nstate 2; 0 activities, 0 artifacts"
	if got := told(s); got != want || run.Status != event.Completed {
		t.Errorf("the fold tells\n%s\nrun is %+v", got, run)
	}
}

// Approvals, questions and tools of the client park the run; the next leg has the
// answers, whoever asks for it.
func TestAnAgentElsewhereWaits(t *testing.T) {
	for _, end := range []string{"approve", "deny"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, time.Second)
			second := make(chan remote.Task, 1)
			r := elsewhere(func(ctx context.Context, task remote.Task, say func(remote.Saying) error) error {
				if task.Leg == 1 {
					return tells(remote.Text{Delta: "May I?"}, remote.Call{CallID: "pay", Name: "pay"}, remote.Args{CallID: "pay", Delta: `{"n":1}`},
						remote.Call{CallID: "where", Name: "locate"}, remote.Ask{ID: "i1", CallID: "pay"},
						remote.Ask{ID: "i2", Name: "input_required", Question: json.RawMessage(`{"message":"how many?"}`)})(ctx, task, say)
				}
				second <- task
				if end == "approve" {
					if err := say(remote.Result{CallID: "pay", Content: []event.Part{event.TextPart("paid")}}); err != nil {
						return err
					}
				}
				return say(remote.Text{Delta: "Done."})
			})
			d := agent.Definition{Name: "a", Kind: agent.Exec}
			ensemble := func() *running {
				return b.ensemble(agent.NewRemote(d, r, []tool.Source{tool.Fixed{tool.Client{ClientTool: event.ClientTool{Name: "locate"}}}}))
			}
			a := ensemble()
			b.invoke("run_1", "hi")
			s := b.parked()
			if len(s.Approvals) != 1 || s.Call("where").Executor != event.ByClient || s.Call("i2").Executor != event.ByClient {
				t.Fatalf("the fold is %s", s.Encode())
			}
			a.cut()
			ensemble()
			b.decide(event.Kind(end), "pay", "")
			for _, id := range []string{"where", "i2"} {
				b.submit(event.Command{CommandID: id + ".result", Kind: event.Result, RunID: "run_1", CallID: id, Content: []event.Part{event.TextPart("here")}})
			}
			task := <-second
			if n := len(task.Answers); n != 2 || task.Answers[0].ID != "i1" || task.Answers[0].Approved != (end == "approve") || !task.Answers[0].Approval ||
				task.Answers[1].ID != "i2" || task.Answers[1].Content[0].Text != "here" || task.Key != "run_1/leg-2" {
				t.Errorf("the second leg has %+v", task)
			}
			s, run := b.ended("run_1")
			want := map[string]event.Status{"approve": event.Completed, "deny": event.Failed}[end]
			if c := s.Call("pay"); run.Status != event.Completed || c.Status != want || len(s.Messages) != 4 {
				t.Errorf("run is %+v, the fold tells %s", run, told(s))
			}
		})
	}
}

func TestAnAgentElsewhereThatFails(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2*time.Second)
	b.remote(agent.Definition{}, elsewhere(func(ctx context.Context, task remote.Task, say func(remote.Saying) error) error {
		if err := tells(append(slices.Clone(story), remote.Call{CallID: "c3", Name: "pay"})...)(ctx, task, say); err != nil {
			return err
		}
		return &model.Error{Code: event.CodeModelError, Message: "exit status 1"}
	}))
	b.invoke("run_1", "hi")
	s, run := b.ended("run_1")
	// The results of its calls stand, the message in the making does not.
	if run.Status != event.Failed || run.Error.Message != "exit status 1" || s.Call("c1") == nil || s.Call("c3") != nil {
		t.Errorf("run is %+v, the fold tells %s", run, told(s))
	}
}

func TestSayingsThatDoNotFit(t *testing.T) {
	for name, s := range map[string]remote.Saying{
		"a call that is open":  remote.Call{CallID: "open", Name: "f"},
		"arguments of no call": remote.Args{CallID: "x", Delta: "{}"},
		"result of no call":    remote.Result{CallID: "x"},
		"progress of no call":  remote.Progress{CallID: "x"},
		"approval of no call":  remote.Ask{ID: "i", CallID: "x"},
		"patch of no state":    remote.StatePatch{Patch: json.RawMessage(`[{"op":"remove","path":"/a"}]`)},
		"patch of no activity": remote.ActivityPatch{ID: "x", Patch: json.RawMessage(`[{"op":"remove","path":"/a"}]`)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 2*time.Second)
			b.remote(agent.Definition{}, elsewhere(func(_ context.Context, _ remote.Task, say func(remote.Saying) error) error {
				if err := say(remote.Call{CallID: "open", Name: "f"}); err != nil {
					return err
				}
				if err := say(s); !errors.Is(err, remote.ErrMisfit) {
					t.Errorf("say gives %v", err)
				}
				return say(remote.Text{Delta: "goes on"})
			}))
			b.invoke("run_1", "hi")
			if s, run := b.ended("run_1"); run.Status != event.Completed || len(s.Messages) != 2 {
				t.Errorf("run is %+v", run)
			}
		})
	}
	for name, s := range map[string]remote.Saying{
		"a name of runlog's own": remote.Custom{Name: event.RemoteEvent, Value: json.RawMessage(`{"leg":9}`)},
		"a state too large":      remote.State{State: event.Encode(strings.Repeat("x", event.MaxEncoded))},
		"usage below zero":       remote.Usage{Usage: event.Usage{InputTokens: -1}},
		"a call without a name":  remote.Call{CallID: "x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 2*time.Second)
			b.remote(agent.Definition{}, tells(s))
			b.invoke("run_1", "hi")
			if _, run := b.ended("run_1"); run.Status != event.Failed || run.Error.Code != event.CodeModelError {
				t.Errorf("run is %+v", run)
			}
		})
	}
}

func TestAnAgentElsewhereIsCancelled(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2*time.Second)
	var begun atomic.Int32
	b.remote(agent.Definition{}, elsewhere(func(ctx context.Context, task remote.Task, say func(remote.Saying) error) error {
		if err := tells(story[:10]...)(ctx, task, say); err != nil {
			return err
		}
		begun.Add(1)
		<-ctx.Done()
		return context.Cause(ctx)
	}))
	b.invoke("run_1", "hi")
	b.until("the agent at work", func(*event.Session) bool { return begun.Load() == 1 })
	b.cancelRun("run_1")
	s, run := b.ended("run_1")
	if run.Status != event.Cancelled || s.Call("c1").Outcome != event.OutcomeCancelled || s.Messages[1].Parts[1].Text != "I look it up." {
		t.Errorf("run is %+v, the fold tells %s", run, told(s))
	}
}

func TestAnAgentElsewhereHasABudget(t *testing.T) {
	spends := elsewhere(func(ctx context.Context, task remote.Task, say func(remote.Saying) error) error {
		return tells(remote.Text{Delta: "one"}, remote.MessageEnd{}, remote.Usage{Usage: event.Usage{InputTokens: 60}},
			remote.Text{Delta: "two"}, remote.Usage{Usage: event.Usage{OutputTokens: 60}}, remote.Text{Delta: "three"})(ctx, task, say)
	})
	var spoke atomic.Bool // in time, which a busy machine may not leave
	waits := elsewhere(func(ctx context.Context, _ remote.Task, say func(remote.Saying) error) error {
		if err := say(remote.Text{Delta: "one"}); err != nil {
			return err
		}
		spoke.Store(true)
		<-ctx.Done()
		return context.Cause(ctx)
	})
	for name, c := range map[string]struct {
		limits agent.Limits
		agent  elsewhere
		stands int
	}{
		"tokens":        {agent.Limits{Tokens: 100}, spends, 3},
		"time":          {agent.Limits{Wall: time.Second}, waits, 2},
		"tokens paused": {agent.Limits{Tokens: 100, Pause: true}, spends, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 2*time.Second)
			b.remote(agent.Definition{Limits: c.limits}, c.agent)
			b.invoke("run_1", "hi")
			if c.limits.Pause {
				if s := b.parked(); len(s.Messages) != 1 || s.Run("run_1").Usage.OutputTokens != 60 {
					t.Fatalf("the fold is %s", s.Encode())
				}
				b.resume("r1", &event.Limits{Tokens: 1000})
			}
			s, run := b.ended("run_1")
			if c.limits.Pause {
				if run.Status != event.Completed || len(s.Messages) != c.stands || run.Usage.InputTokens != 120 {
					t.Errorf("run is %+v, the fold tells %s", run, told(s))
				}
				return
			}
			if name == "time" && !spoke.Load() {
				c.stands = 1
			}
			if run.Status != event.Failed || run.Error.Code != event.CodeBudget || len(s.Messages) != c.stands {
				t.Errorf("run is %+v, the fold tells %s", run, told(s))
			}
		})
	}
}

// A message that steers comes after the leg, which the agent then begins anew; a
// stop ends the run after the leg.
func TestAnAgentElsewhereIsSteeredAndStopped(t *testing.T) {
	for _, kind := range []event.Kind{event.Steer, event.Stop} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 2*time.Second)
			begun, goOn := make(chan struct{}), make(chan struct{})
			b.remote(agent.Definition{}, elsewhere(func(_ context.Context, task remote.Task, say func(remote.Saying) error) error {
				if task.Leg == 1 {
					close(begun)
					<-goOn
				}
				last := task.Session.Messages[len(task.Session.Messages)-1]
				return say(remote.Text{Delta: "heard " + last.Parts[0].Text})
			}))
			b.invoke("run_1", "hi")
			<-begun
			b.submit(event.Command{Kind: kind, RunID: "run_1", By: "boss", Messages: []event.InputMessage{{MessageID: "more", Role: event.RoleUser, Parts: []event.Part{event.TextPart("more")}}}})
			b.looksAtAll("run_1")
			close(goOn)
			s, run := b.ended("run_1")
			want, reason := "user: text \"hi\"\nassistant: text \"heard hi\"\n", event.FinishStopped
			if kind == event.Steer {
				want, reason = want+"user: text \"more\"\nassistant: text \"heard more\"\n", event.FinishStop
			}
			if got := told(s); !strings.HasPrefix(got, want+"state") || run.Status != event.Completed || run.FinishReason != reason {
				t.Errorf("run is %+v, the fold tells\n%s", run, got)
			}
		})
	}
}

// An agent that lives elsewhere works for another one.
func TestASubAgentElsewhere(t *testing.T) {
	t.Parallel()
	b := newBench(t, 2*time.Second)
	inner := elsewhere(func(ctx context.Context, task remote.Task, say func(remote.Saying) error) error {
		if n := len(task.Session.Messages); task.RunID == "run_1" || n == 0 {
			t.Errorf("the task is %+v", task)
		}
		return tells(story...)(ctx, task, say)
	})
	b.ensemble(named1(t, "a", delegates(1), subB()), agent.NewRemote(agent.Definition{Name: "b", Kind: agent.AGUI}, inner, nil))
	b.invoke("run_1", "hi")
	s, run := b.ended("run_1")
	if c := child(s, 0); run.Status != event.Completed || c.Status != event.Completed || s.ToolCalls[0].Content[0].Text != "It is found." {
		t.Errorf("the fold is %s", s.Encode())
	}
	if p := s.Public(); len(p.Messages) != 3 || len(p.Runs) != 1 {
		t.Errorf("clients see %s", s.EncodePublic())
	}
}

// What an agent says it has used counts however its leg ends, also that of attempts
// which were taken back.
func TestWhatAnAgentElsewhereUsedCounts(t *testing.T) {
	for name, c := range map[string]struct {
		ends error // nil: it goes on until it is told to end
		kind event.Kind
		want event.Status
	}{
		"fails":     {&model.Error{Code: event.CodeModelError, Message: "no luck"}, "", event.Failed},
		"cancelled": {nil, event.Cancel, event.Cancelled},
		"stopped":   {nil, event.Stop, event.Completed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 2*time.Second)
			begun := make(chan struct{})
			b.remote(agent.Definition{}, elsewhere(func(ctx context.Context, task remote.Task, say func(remote.Saying) error) error {
				if err := tells(remote.Text{Delta: "x"}, remote.Usage{Usage: event.Usage{InputTokens: 10}})(ctx, task, say); err != nil {
					return err
				}
				switch {
				case task.Retry == 1:
					return &model.Error{Code: event.CodeUnavailable, Message: "busy", Retryable: true}
				case c.ends != nil:
					return c.ends
				}
				close(begun)
				<-ctx.Done()
				return context.Cause(ctx)
			}))
			b.invoke("run_1", "hi")
			if c.ends == nil {
				<-begun
				b.submit(event.Command{Kind: c.kind, RunID: "run_1", By: "boss"})
			}
			if _, run := b.ended("run_1"); run.Status != c.want || run.Usage.InputTokens != 20 || run.Usage.Steps != 1 {
				t.Errorf("run is %+v", run)
			}
		})
	}
}
