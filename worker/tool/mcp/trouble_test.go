package mcp_test

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/tool"
	"github.com/runlog-dev/runlog/worker/tool/mcp"
)

// atOnce is what a caller takes for immediately.
const atOnce = 250 * time.Millisecond

func TestCancelReturnsAtOnceAndReachesTheServer(t *testing.T) {
	var e *ear
	ledger := t.TempDir() + "/ledger"
	s := open(t, "demo", func(o *mcp.Options) { e = listen(o); o.Env["DEMO_TOOLS_LEDGER"] = ledger })
	ctx, cancel := context.WithCancel(t.Context())
	ch := start(ctx, find(t, s, "sleep"), tool.Call{CallID: "c", Args: `{"ms":60000}`, IdempotencyKey: "key_1", Attempt: 2})
	awaitFile(t, ledger, " key_1 2 sleep\n")
	cancelled := time.Now()
	cancel()
	a := await(t, ch)
	if took := time.Since(cancelled); took > atOnce {
		t.Errorf("returned %s after the cancel", took)
	}
	mustBe(t, a.err, context.Canceled)
	e.await(t, "call cancelled by the client")
}

// awaitFile polls a file that another process writes.
func awaitFile(t *testing.T, path, part string) string {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if b, _ := os.ReadFile(path); strings.Contains(string(b), part) {
			return string(b)
		}
	}
	t.Fatalf("%s never held %q", path, part)
	return ""
}

func TestWhatComesAfterACancelIsIgnored(t *testing.T) {
	var e *ear
	s := open(t, "odd", func(o *mcp.Options) { e = listen(o) })
	late := find(t, s, "late")
	var over atomic.Bool
	ctx, cancel := context.WithCancel(t.Context())
	ch := start(ctx, late, tool.Call{CallID: "c", Args: `{}`, Progress: func(event.Progress) {
		if over.Load() {
			t.Error("progress was reported after the call had returned")
		}
	}})
	id, _ := strings.CutPrefix(e.await(t, "call late"), "mcp server stderr line=call late ")
	cancel()
	a := await(t, ch)
	over.Store(true)
	mustBe(t, a.err, context.Canceled)
	if got := e.await(t, "line=cancelled"); !strings.HasSuffix(got, "cancelled "+id) {
		t.Errorf("cancelled was %q, want request %s", got, id)
	}
	e.await(t, "answered late")
	for range 3 { // each answer comes behind the late one
		if got := textOf(do(t, s, "ping", `{}`)); got == "too late" {
			t.Error("a later call got the late answer")
		}
	}
}

func TestATimeoutIsToldFromACancel(t *testing.T) {
	var e *ear
	s := open(t, "odd", func(o *mcp.Options) { e = listen(o); o.Timeout = 50 * time.Millisecond })
	find(t, s, "ping")
	a := await(t, start(t.Context(), find(t, s, "late"), tool.Call{Args: `{}`}))
	mustBe(t, a.err, context.DeadlineExceeded, tool.ErrEffectUnknown)
	if errors.Is(a.err, tool.ErrUnavailable) || !strings.Contains(a.err.Error(), "late gave no answer within 50ms") {
		t.Errorf("error is %v", a.err)
	}
	if a.took > 50*time.Millisecond+atOnce {
		t.Errorf("timed out after %s", a.took)
	}
	e.await(t, "line=cancelled")
}

func TestAKilledServerFailsItsCallsAtOnceAndIsReplaced(t *testing.T) {
	var e *ear
	s := open(t, "odd", func(o *mcp.Options) { e = listen(o) })
	pid, err := strconv.Atoi(textOf(do(t, s, "ping", `{}`)))
	if err != nil {
		t.Fatal(err)
	}
	one := start(t.Context(), find(t, s, "late"), tool.Call{Args: `{}`})
	two := start(t.Context(), find(t, s, "late"), tool.Call{Args: `{}`})
	e.await(t, "call late")
	e.await(t, "call late")
	killed := time.Now()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for _, ch := range []<-chan answer{one, two} {
		a := await(t, ch)
		mustBe(t, a.err, tool.ErrUnavailable, tool.ErrEffectUnknown)
		if !strings.Contains(a.err.Error(), "signal: killed") {
			t.Errorf("error does not say how it ended: %v", a.err)
		}
	}
	if took := time.Since(killed); took > 2*time.Second {
		t.Errorf("the calls failed %s after the kill", took)
	}
	if again := textOf(do(t, s, "ping", `{}`)); again == strconv.Itoa(pid) || again == "" {
		t.Errorf("the next call was answered by %q", again)
	}
}

// A server that dies at each call is started again for each, ever slower.
func TestAServerThatKeepsDyingBacksOff(t *testing.T) {
	s := open(t, "demo")
	die := find(t, s, "die")
	begin := time.Now()
	for i := range 4 {
		_, err := die.Call(t.Context(), tool.Call{Args: `{}`})
		mustBe(t, err, tool.ErrUnavailable)
		if !strings.Contains(err.Error(), "exit status 3") {
			t.Errorf("die %d: %v", i, err)
		}
	}
	if took := time.Since(begin); took < 300*time.Millisecond {
		t.Errorf("four deaths and no pause between them: %s", took)
	}
}

func TestAServerThatCannotStart(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*mcp.Options)
		want   string
	}{
		"no such command":   {func(o *mcp.Options) { o.Command = []string{"no-such-command-here", "--stdio"} }, `start "no-such-command-here": exec: "no-such-command-here": executable file not found in $PATH`},
		"no such directory": {func(o *mcp.Options) { o.Dir = "/no/such/dir" }, "no such file or directory"},
		"ends at once":      {func(o *mcp.Options) { o.Env = map[string]string{roleEnv: "broken"} }, `it ended with exit status 1, saying "cannot find module demo: run npm install"`},
		"never answers":     {func(o *mcp.Options) { o.Env[roleEnv], o.ConnectTimeout = "mute", 100*time.Millisecond }, "no handshake within 100ms"},
		"no server there":   {func(o *mcp.Options) { o.Command, o.URL = nil, "http://127.0.0.1:1/mcp?key=hidden" }, "connection refused"},
		"neither":           {func(o *mcp.Options) { o.Command = nil }, "give a command to start or a url"},
		"both":              {func(o *mcp.Options) { o.URL = "http://127.0.0.1:1" }, "not both"},
		"odd url":           {func(o *mcp.Options) { o.Command, o.URL = nil, "127.0.0.1:80/hidden" }, "not of the form"},
		"odd policy":        {func(o *mcp.Options) { o.OnCrash = "hope" }, "give retry, ask or fail"},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, "demo", c.change)
			for range 2 {
				_, err := s.Tools(t.Context())
				mustBe(t, err, tool.ErrUnavailable)
				if errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hidden") {
					t.Errorf("error is %v\nwant one that says %q", err, c.want)
				}
			}
		})
	}
}

func TestACallerWhoGivesUpDoesNotWaitForTheConnection(t *testing.T) {
	s := open(t, "mute")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err := s.Tools(ctx)
	mustBe(t, err, context.DeadlineExceeded)
	if took := time.Since(begin); took > atOnce || errors.Is(err, tool.ErrUnavailable) {
		t.Errorf("gave up after %s with %v", took, err)
	}
}

func TestACallThatFindsNoConnectionWasNotSent(t *testing.T) {
	s := open(t, "once", func(o *mcp.Options) {
		o.Env["MCP_TEST_MARK"] = t.TempDir() + "/mark"
		o.Timeout = 100 * time.Millisecond
	})
	ping := find(t, s, "ping")
	pid, _ := strconv.Atoi(textOf(do(t, s, "ping", `{}`)))
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, strconv.Itoa(pid))
	for deadline := time.Now().Add(patience); ; { // the first call may still meet the dead one
		if time.Now().After(deadline) {
			t.Fatal("no call said that there is no connection")
		}
		_, err := ping.Call(t.Context(), tool.Call{Args: `{}`})
		mustBe(t, err, tool.ErrUnavailable)
		if errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("taken for a timeout of the tool: %v", err)
		}
		if !errors.Is(err, tool.ErrEffectUnknown) && strings.Contains(err.Error(), "no connection within 100ms") {
			return
		}
	}
}

func TestAnAnswerOverTheLimitFailsItsCallOnly(t *testing.T) {
	var e *ear
	s := open(t, "odd", func(o *mcp.Options) { e = listen(o) })
	pid := textOf(do(t, s, "ping", `{}`))
	ctx, cancel := context.WithCancel(t.Context())
	other := start(ctx, find(t, s, "late"), tool.Call{Args: `{}`})
	e.await(t, "call late")
	for _, name := range []string{"huge", "huge_id_last"} {
		res := do(t, s, name, `{}`)
		if !res.Failed || !strings.Contains(textOf(res), "is over the limit of 25165824. Ask for less.") {
			t.Errorf("%s: %+v", name, res)
		}
	}
	if again := textOf(do(t, s, "ping", `{}`)); again != pid {
		t.Errorf("the server was replaced")
	}
	cancel()
	mustBe(t, await(t, other).err, context.Canceled)
}

func TestNoiseIsBoundedAndSkipped(t *testing.T) {
	var e *ear
	s := open(t, "chatty", func(o *mcp.Options) { e = listen(o) })
	do(t, s, "ping", `{}`)
	s.Close()
	close(e.lines)
	lines := 0
	for line := range e.lines {
		if lines++; len(line) > 3000 {
			t.Errorf("a line of %d bytes was logged", len(line))
		}
	}
	if lines == 0 || lines > 500 {
		t.Errorf("%d of 10000 lines were logged", lines)
	}
}

// A server that reads no more cannot be told to stop. The call returns all the
// same, and later calls get a new server.
func TestAServerThatReadsNoMoreIsReplaced(t *testing.T) {
	var e *ear
	s := open(t, "odd", func(o *mcp.Options) { e = listen(o) })
	s.SetStuckAfter(100 * time.Millisecond)
	pid := textOf(do(t, s, "ping", `{}`))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first := start(ctx, find(t, s, "deaf"), tool.Call{Args: `{}`})
	e.await(t, "call deaf")
	args := `{"filler":"` + strings.Repeat("x", 1<<20) + `"}` // more than a pipe holds
	const enough = time.Second                                // to encode that and to fill the pipe
	short, cancelShort := context.WithTimeout(t.Context(), enough)
	defer cancelShort()
	a := await(t, start(short, find(t, s, "args"), tool.Call{Args: args}))
	mustBe(t, a.err, context.DeadlineExceeded)
	if a.took > enough+atOnce {
		t.Errorf("returned after %s", a.took)
	}
	mustBe(t, await(t, first).err, tool.ErrUnavailable)
	if again := textOf(do(t, s, "ping", `{}`)); again == pid {
		t.Errorf("the deaf server is still in use")
	}
}

func TestCloseEndsCallsAndRefusesNewOnes(t *testing.T) {
	onBoth(t, func(t *testing.T, open func(*testing.T, ...func(*mcp.Options)) *mcp.Server) {
		s := open(t)
		count := find(t, s, "count_slowly")
		running := make(chan struct{}, 1000)
		ch := start(t.Context(), count, tool.Call{Args: `{"n":1000,"delay_ms":10}`, Progress: func(event.Progress) { running <- struct{}{} }})
		<-running
		s.Close()
		a := await(t, ch)
		mustBe(t, a.err, tool.ErrUnavailable, tool.ErrEffectUnknown)
		_, err := count.Call(t.Context(), tool.Call{Args: `{"n":1}`})
		mustBe(t, err, tool.ErrUnavailable)
		if errors.Is(err, tool.ErrEffectUnknown) {
			t.Errorf("nothing was sent, but the error is %v", err)
		}
		if _, err := s.Tools(t.Context()); !errors.Is(err, tool.ErrUnavailable) {
			t.Errorf("Tools after Close: %v", err)
		}
	})
}

func TestTheEnvironmentIsClean(t *testing.T) {
	t.Setenv("RUNLOG_SECRET", "hunter2")
	s := open(t, "odd", func(o *mcp.Options) { o.Env["GIVEN"] = "yes" })
	env := textOf(do(t, s, "env", `{}`))
	for line := range strings.Lines(env) {
		key, _, _ := strings.Cut(line, "=")
		switch key {
		case "PATH", "HOME", "GIVEN", "GORACE", roleEnv:
		default:
			t.Errorf("the server sees %s", key)
		}
	}
}
