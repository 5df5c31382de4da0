package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/runlog-dev/runlog/artifacts"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
	"github.com/runlog-dev/runlog/worker/agent"
	"github.com/runlog-dev/runlog/worker/model"
	"github.com/runlog-dev/runlog/worker/tool"
)

// A bench is one event log with any number of workers on it.
type bench struct {
	t      *testing.T
	server *eventlog.Embedded
	lease  time.Duration
	log    *eventlog.Log
	store  artifacts.Store
}

func newBench(t *testing.T, lease time.Duration) *bench {
	t.Helper()
	srv, err := eventlog.StartEmbedded(t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = srv.Close() })
	store, err := artifacts.Open(t.Context(), "dir:"+t.TempDir(), artifacts.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	b := &bench{t: t, server: srv, lease: lease, store: store}
	b.log, _ = b.open()
	t.Cleanup(b.audit)
	return b
}

func (b *bench) open() (*eventlog.Log, *nats.Conn) {
	b.t.Helper()
	nc, err := b.server.Connect(nats.MaxReconnects(-1))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(nc.Close)
	l, err := eventlog.Open(b.t.Context(), nc, eventlog.Options{Lease: b.lease})
	if err != nil {
		b.t.Fatal(err)
	}
	return l, nc
}

// A running worker: cut takes its connection away, as a partition would; drain
// stops it politely.
type running struct {
	*Worker
	nc    *nats.Conn
	cut   func()
	drain func()
}

func (b *bench) worker(m model.Model, tools ...tool.Tool) *running {
	b.t.Helper()
	l, nc := b.open()
	return b.workerOn(l, nc, m, tools...)
}

// workerOn runs a worker on a log of its own, with the connection that cut takes
// away.
func (b *bench) workerOn(l *eventlog.Log, nc *nats.Conn, m model.Model, tools ...tool.Tool) *running {
	b.t.Helper()
	a, err := agent.New(agent.Definition{Name: "a"}, m, []tool.Source{source(tools)})
	if err != nil {
		b.t.Fatal(err)
	}
	w := New(l, b.store, map[string]*agent.Agent{"a": a}, Options{
		Slots: 8, Grace: 5 * time.Second, Logger: testLogger(b.t),
		Tunables: agent.Tunables{Backoff: time.Millisecond, Window: time.Millisecond},
	})
	return b.run(w, nc)
}

// run runs a worker until the test ends.
func (b *bench) run(w *Worker, nc *nats.Conn) *running {
	b.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = w.Run(ctx) }()
	drain := sync.OnceFunc(func() { cancel(); <-done })
	b.t.Cleanup(drain)
	return &running{w, nc, nc.Close, drain}
}

func testLogger(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(&testWriter{t: t}, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

type testWriter struct {
	t  *testing.T
	mu sync.Mutex
}

func (w *testWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.t.Context().Err() == nil {
		w.t.Log(strings.TrimSpace(string(p)))
	}
	return len(p), nil
}

type source []tool.Tool

func (s source) Tools(context.Context) ([]tool.Tool, error) { return s, nil }
func (s source) Close() error                               { return nil }

var key = eventlog.Key{Tenant: "default", Session: "ses_1"}

func (b *bench) submit(cmd event.Command) {
	b.t.Helper()
	b.submitTo(key, cmd)
}

func (b *bench) submitTo(k eventlog.Key, cmd event.Command) {
	b.t.Helper()
	cmd.SessionID, cmd.Time = k.Session, event.At(time.Now())
	if cmd.CommandID == "" {
		cmd.CommandID = "cmd_" + cmd.RunID + string(cmd.Kind)
	}
	if err := b.log.Submit(b.t.Context(), k, cmd); err != nil {
		b.t.Fatal(err)
	}
	if err := b.log.Wake(b.t.Context(), k); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) invoke(runID, text string) {
	b.t.Helper()
	b.invokes("a", runID, text)
}

func (b *bench) invokes(agent, runID, text string) {
	b.t.Helper()
	b.submit(event.Command{Kind: event.Invoke, RunID: runID, TraceID: "t1", Agent: agent, Messages: []event.InputMessage{
		{MessageID: "msg_" + runID, Role: event.RoleUser, Parts: []event.Part{event.TextPart(text)}}}})
}

func (b *bench) cancelRun(runID string) {
	b.t.Helper()
	b.submit(event.Command{Kind: event.Cancel, RunID: runID, By: "tester", Reason: "enough"})
}

// until waits for the session's fold to satisfy ok.
func (b *bench) until(what string, ok func(*event.Session) bool) *event.Session {
	b.t.Helper()
	return b.untilIn(key, what, ok)
}

func (b *bench) untilIn(k eventlog.Key, what string, ok func(*event.Session) bool) *event.Session {
	b.t.Helper()
	var s *event.Session
	deadline := time.Now().Add(30 * time.Second)
	for time.Now().Before(deadline) {
		var err error
		if s, _, err = b.log.Load(context.Background(), k); err != nil {
			b.t.Fatal(err)
		}
		if ok(s) {
			return s
		}
		time.Sleep(5 * time.Millisecond)
	}
	b.t.Fatalf("%s did not happen; the session is %s", what, s.Encode())
	return nil
}

func (b *bench) ended(runID string) (*event.Session, *event.Run) {
	b.t.Helper()
	s := b.until("the end of "+runID, func(s *event.Session) bool {
		r := s.Run(runID)
		return r != nil && r.Status.Terminal()
	})
	return s, s.Run(runID)
}

// events reads the whole log and checks that it is dense and that each run has
// one terminal event, after which nothing of it follows.
func (b *bench) events() []event.Event {
	b.t.Helper()
	head, err := b.log.Head(context.Background(), key)
	if err != nil {
		b.t.Fatal(err)
	}
	var all []event.Event
	over := map[string]bool{}
	for f, err := range b.log.Read(context.Background(), key, 0, head) {
		if err != nil {
			b.t.Fatal(err)
		}
		events, err := f.Events()
		if err != nil {
			b.t.Fatal(err)
		}
		for _, e := range events {
			if int(e.Seq) != len(all)+1 {
				b.t.Fatalf("event %d has seq %d", len(all)+1, e.Seq)
			}
			if e.RunID != "" && over[e.RunID] && !e.Internal {
				b.t.Errorf("%s of %s after the run's end", e.Type, e.RunID)
			}
			over[e.RunID] = over[e.RunID] || e.Type.Terminal()
			all = append(all, e)
		}
	}
	return all
}

func types(events []event.Event) string {
	var list []string
	for _, e := range events {
		if e.Type != event.TextDelta {
			list = append(list, string(e.Type))
		}
	}
	return strings.Join(list, " ")
}

func countType(events []event.Event, t event.Type) (n int) {
	for _, e := range events {
		if e.Type == t {
			n++
		}
	}
	return n
}

// play is a model that does what the function says.
type play func(ctx context.Context, req model.Request, emit func(model.Chunk) error) (model.Result, error)

func (p play) Stream(ctx context.Context, req model.Request, emit func(model.Chunk) error) (model.Result, error) {
	return p(ctx, req, emit)
}

var usage = event.Usage{InputTokens: 10, OutputTokens: 5}

// says answers with words, one chunk each.
func says(words ...string) play {
	return func(_ context.Context, _ model.Request, emit func(model.Chunk) error) (model.Result, error) {
		for _, w := range words {
			if err := emit(model.Chunk{Kind: model.Text, Text: w}); err != nil {
				return model.Result{}, err
			}
		}
		return model.Result{FinishReason: event.FinishStop, Usage: usage}, nil
	}
}

// calls the named tools, one call each, then, once they are answered, says done.
func calls(names ...string) play {
	return func(ctx context.Context, req model.Request, emit func(model.Chunk) error) (model.Result, error) {
		if len(req.Session.ToolCalls) > 0 {
			return says("done")(ctx, req, emit)
		}
		for i, name := range names {
			if err := errors.Join(emit(model.Chunk{Kind: model.CallStart, Index: i, CallID: fmt.Sprint("call_", i), Name: name}),
				emit(model.Chunk{Kind: model.CallArgs, Index: i, Text: `{"n":9007199254740993}`})); err != nil {
				return model.Result{}, err
			}
		}
		return model.Result{FinishReason: event.FinishToolCalls, Usage: usage}, nil
	}
}

// hangs says a word and then waits for its context.
func hangs(started *atomic.Int32, stopped chan<- struct{}) play {
	return func(ctx context.Context, _ model.Request, emit func(model.Chunk) error) (model.Result, error) {
		if err := emit(model.Chunk{Kind: model.Text, Text: "thinking "}); err != nil {
			return model.Result{}, err
		}
		started.Add(1)
		<-ctx.Done()
		if stopped != nil {
			stopped <- struct{}{}
		}
		return model.Result{}, ctx.Err()
	}
}

// made is a tool that does what call says.
type made struct {
	spec tool.Spec
	call func(context.Context, tool.Call) (tool.Result, error)
}

func (m made) Spec() tool.Spec                                            { return m.spec }
func (m made) Call(ctx context.Context, c tool.Call) (tool.Result, error) { return m.call(ctx, c) }

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

func TestCancelInTheModelStream(t *testing.T) {
	b := newBench(t, 2*time.Second)
	var started atomic.Int32
	stopped := make(chan struct{}, 1)
	b.worker(hangs(&started, stopped))
	b.invoke("run_1", "hi")
	b.until("the first word", func(*event.Session) bool { return started.Load() == 1 })
	b.cancelRun("run_1")
	select {
	case <-stopped:
	case <-time.After(10 * time.Second):
		t.Fatal("the model's context did not end")
	}
	s, run := b.ended("run_1")
	if run.Status != event.Cancelled || run.By != "tester" || run.Reason != "enough" {
		t.Errorf("run is %+v", run)
	}
	if m := s.Messages[1]; m.Status != event.Completed || m.Parts[0].Text != "thinking " {
		t.Errorf("what was said is %+v", m)
	}
	b.cancelRun("run_1") // again: a no-op
	b.until("an empty inbox", func(*event.Session) bool {
		waiting, err := b.log.Inbox(context.Background(), key)
		return err == nil && len(waiting) == 0
	})
	b.events()
}

func TestCancelInATool(t *testing.T) {
	b := newBench(t, 2*time.Second)
	quick := func(context.Context, tool.Call) (tool.Result, error) { return tool.Result{}, nil }
	slow := func(ctx context.Context, _ tool.Call) (tool.Result, error) {
		<-ctx.Done()
		return tool.Result{}, ctx.Err()
	}
	b.worker(calls("quick", "slow", "slow"), made{tool.Spec{Name: "quick"}, quick}, made{tool.Spec{Name: "slow"}, slow})
	b.invoke("run_1", "hi")
	b.until("one finished, two running", func(s *event.Session) bool {
		return s.Call("call_0") != nil && s.Call("call_0").Done() && s.Call("call_2").Status == event.Running
	})
	b.cancelRun("run_1")
	s, run := b.ended("run_1")
	if run.Status != event.Cancelled {
		t.Errorf("run is %+v", run)
	}
	for _, id := range []string{"call_1", "call_2"} {
		if c := s.Call(id); c.Status != event.Failed || c.Outcome != event.OutcomeCancelled {
			t.Errorf("%s is %+v", id, c)
		}
	}
	b.invoke("run_2", "go on") // the request is valid although calls were cut
	if _, run := b.ended("run_2"); run.Status != event.Completed {
		t.Errorf("the next run is %s", run.Status)
	}
}

func TestCancelOfARunThatWaits(t *testing.T) {
	b := newBench(t, 2*time.Second)
	var started atomic.Int32
	b.invoke("run_1", "never")
	b.cancelRun("run_1") // before any worker is there
	b.worker(hangs(&started, nil))
	if _, run := b.ended("run_1"); run.Status != event.Cancelled || run.StartedAt != nil {
		t.Errorf("run 1 is %+v", run)
	}
	b.invoke("run_2", "hi")
	b.until("the second to run", func(*event.Session) bool { return started.Load() == 1 })
	b.invoke("run_3", "hi")
	b.until("the third to be queued", func(s *event.Session) bool { return s.Run("run_3") != nil })
	b.cancelRun("run_3")
	if _, run := b.ended("run_3"); run.Status != event.Cancelled {
		t.Errorf("run 3 is %+v", run)
	}
	b.cancelRun("run_2")
	b.ended("run_2")
	b.events()
}

func TestARunGoesOnWhereItsWorkerWasCutOff(t *testing.T) {
	b := newBench(t, time.Second)
	var first atomic.Bool
	var started atomic.Int32
	m := play(func(ctx context.Context, req model.Request, emit func(model.Chunk) error) (model.Result, error) {
		if first.CompareAndSwap(false, true) {
			return hangs(&started, nil)(ctx, req, emit)
		}
		return says("second ", "try")(ctx, req, emit)
	})
	a := b.worker(m)
	b.invoke("run_1", "hi")
	b.until("the first word", func(s *event.Session) bool { return started.Load() == 1 && len(s.Messages) == 2 })
	a.cut()
	began := time.Now()
	b.worker(m)
	s, run := b.ended("run_1")
	if took := time.Since(began); took > 2*b.lease {
		t.Errorf("the takeover took %s, more than two leases", took)
	}
	if run.Status != event.Completed || len(s.Messages) != 2 || s.Messages[1].Parts[0].Text != "second try" {
		t.Errorf("the fold shows %s", s.Encode())
	}
	events := b.events()
	if countType(events, event.RunRecovered) != 1 || countType(events, event.MessageDiscarded) != 1 {
		t.Errorf("events are %s", types(events))
	}
}

func TestToolsOfALostWorkerFollowTheirPolicy(t *testing.T) {
	b := newBench(t, time.Second)
	var runs [2]atomic.Int32
	var lost atomic.Bool
	tools := func() []tool.Tool {
		mk := func(i int, policy tool.OnCrash) tool.Tool {
			return made{tool.Spec{Name: fmt.Sprint("t", i), OnCrash: policy}, func(ctx context.Context, c tool.Call) (tool.Result, error) {
				runs[i].Add(1)
				if !lost.Load() {
					<-ctx.Done()
					return tool.Result{}, ctx.Err()
				}
				return tool.Result{Content: []event.Part{event.TextPart(fmt.Sprint(c.Attempt, " ", c.IdempotencyKey))}}, nil
			}}
		}
		return []tool.Tool{mk(0, tool.Retry), mk(1, tool.Fail)}
	}
	a := b.worker(calls("t0", "t1"), tools()...)
	b.invoke("run_1", "hi")
	b.until("both tools to run", func(*event.Session) bool { return runs[0].Load() == 1 && runs[1].Load() == 1 })
	lost.Store(true)
	a.cut()
	b.worker(calls("t0", "t1"), tools()...)
	s, run := b.ended("run_1")
	if run.Status != event.Completed {
		t.Errorf("run is %+v", run)
	}
	if c := s.Call("call_0"); c.Status != event.Completed || c.Content[0].Text != "2 run_1/call_0" {
		t.Errorf("the retried call is %+v", c)
	}
	if c := s.Call("call_1"); c.Outcome != event.OutcomeUnknown || c.Code != event.CodeInterrupted {
		t.Errorf("the other call is %+v", c)
	}
	if runs[0].Load() != 2 || runs[1].Load() != 1 {
		t.Errorf("the tools ran %d and %d times", runs[0].Load(), runs[1].Load())
	}
}

func TestAStoppingWorkerHandsItsRunOver(t *testing.T) {
	b := newBench(t, 20*time.Second) // nothing here may wait for the lease
	var started atomic.Int32
	var first atomic.Bool
	m := play(func(ctx context.Context, req model.Request, emit func(model.Chunk) error) (model.Result, error) {
		if first.CompareAndSwap(false, true) {
			return hangs(&started, nil)(ctx, req, emit)
		}
		return says("elsewhere")(ctx, req, emit)
	})
	a := b.worker(m)
	b.invoke("run_1", "hi")
	b.until("the first word", func(*event.Session) bool { return started.Load() == 1 })
	b.worker(m)
	a.drain()
	s, run := b.ended("run_1")
	if run.Status != event.Completed || s.Messages[1].Parts[0].Text != "elsewhere" {
		t.Errorf("the fold shows %s", s.Encode())
	}
	if took := run.EndedAt.Sub(run.StartedAt.Time); took > 10*time.Second {
		t.Errorf("the hand-over took %s", took)
	}
}

// What a model said last is gathered for a moment: it must not come after the release.
func TestNothingIsAppendedAfterTheRelease(t *testing.T) {
	b := newBench(t, 20*time.Second)
	var words atomic.Int32
	chatter := play(func(ctx context.Context, _ model.Request, emit func(model.Chunk) error) (model.Result, error) {
		for ctx.Err() == nil {
			if err := emit(model.Chunk{Kind: model.Text, Text: "word "}); err != nil {
				return model.Result{}, err
			}
			words.Add(1)
			time.Sleep(100 * time.Microsecond)
		}
		return model.Result{}, ctx.Err()
	})
	b.invoke("run_1", "hi")
	for range 10 {
		before := words.Load()
		w := b.worker(chatter)
		b.until("some words", func(*event.Session) bool { return words.Load() > before+20 })
		w.drain()
	}
	released := false
	for _, e := range b.events() {
		if released && e.Type != event.SessionClaimed {
			t.Errorf("event %d, %s, comes after the release", e.Seq, e.Type)
		}
		released = e.Type == event.SessionReleased
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

func TestARunThatKillsItsWorkersIsFailed(t *testing.T) {
	b := newBench(t, 400*time.Millisecond)
	var started atomic.Int32
	m := hangs(&started, nil)
	b.invoke("run_1", "hi")
	for i := range poisoned {
		w := b.worker(m)
		b.until("another try", func(*event.Session) bool { return started.Load() > int32(i) || i == poisoned-1 })
		if i < poisoned-1 {
			w.cut()
		}
	}
	if _, run := b.ended("run_1"); run.Status != event.Failed || run.Error.Code != event.CodePoisoned {
		t.Errorf("run is %+v", run)
	}
	list, err := b.log.DeadLetters(t.Context(), key.Tenant)
	if err != nil || len(list) != 1 || list[0].RunID != "run_1" || list[0].Claims != poisoned-1 {
		t.Errorf("dead letters are %+v, %v", list, err)
	}
}
