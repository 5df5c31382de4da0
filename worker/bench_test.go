package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
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
	t     *testing.T
	dial  func() (*nats.Conn, error)
	lease time.Duration
	log   *eventlog.Log
	store artifacts.Store
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
	b := &bench{t: t, lease: lease, store: store, dial: func() (*nats.Conn, error) { return srv.Connect(nats.MaxReconnects(-1)) }}
	b.log, _ = b.open()
	t.Cleanup(b.audit)
	return b
}

func (b *bench) open() (*eventlog.Log, *nats.Conn) {
	b.t.Helper()
	nc, err := b.dial()
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
	return b.run(b.newWorker(l, m, tools...), nc)
}

func (b *bench) newWorker(l *eventlog.Log, m model.Model, tools ...tool.Tool) *Worker {
	b.t.Helper()
	return b.staff(l, Options{}, newAgent(b.t, agent.Definition{Name: "a"}, m, tools...))
}

func newAgent(t *testing.T, d agent.Definition, m model.Model, tools ...tool.Tool) *agent.Agent {
	t.Helper()
	a, err := agent.New(d, m, []tool.Source{source(tools)})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// staff is a worker with these agents, in more of a hurry than others.
func (b *bench) staff(l *eventlog.Log, o Options, agents ...*agent.Agent) *Worker {
	byName := map[string]*agent.Agent{}
	for _, a := range agents {
		byName[a.Definition.Name] = a
	}
	o.Slots, o.Grace, o.Logger = cmp.Or(o.Slots, 8), cmp.Or(o.Grace, 5*time.Second), testLogger(b.t)
	o.Tunables = agent.Tunables{Backoff: time.Millisecond, Window: time.Millisecond}
	return New(l, b.store, byName, o)
}

// ensemble runs a worker with these agents.
func (b *bench) ensemble(agents ...*agent.Agent) *running {
	b.t.Helper()
	return b.employed(Options{}, agents...)
}

func (b *bench) employed(o Options, agents ...*agent.Agent) *running {
	b.t.Helper()
	l, nc := b.open()
	return b.run(b.staff(l, o, agents...), nc)
}

// defined runs a worker that has one agent.
func (b *bench) defined(d agent.Definition, m model.Model, o Options, tools ...tool.Tool) *running {
	b.t.Helper()
	return b.employed(o, newAgent(b.t, d, m, tools...))
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

// looksAtAll waits until the owner of a run that goes on has looked at every command
// so far, also at those that he does not answer yet: at another one, about nothing,
// he looks at the same time.
func (b *bench) looksAtAll(runID string) {
	b.t.Helper()
	b.submit(event.Command{Kind: event.Approve, CommandID: "look", RunID: runID, CallID: "none"})
	b.until("a look at the inbox", func(*event.Session) bool {
		waiting, err := b.log.Inbox(context.Background(), key)
		return err == nil && !slices.ContainsFunc(waiting, func(w eventlog.Waiting) bool { return w.CommandID == "look" })
	})
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
