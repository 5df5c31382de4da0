package systemtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/internal/testservers"
)

// counted is what the example counter says when it is asked for n numbers.
func counted(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%d ", i+1)
	}
	return b.String() + "and that is all."
}

// A program that is an agent: its worker is killed while it is at work and while it speaks.
// It is started anew, with the same key, and those who watch see one story.
func TestAProgramOutlivesItsWorker(t *testing.T) {
	t.Parallel()
	needsPython(t)
	p := startSmall(t)
	e := p.at[0]
	both := p.alone(t)
	running := p.watch(t, e.submit(t, request{Agent: "counter", Input: "count to 100"}), 0)
	speaking := p.watch(t, e.submit(t, request{Agent: "counter", Input: "count to 25"}), 1)
	running.sees(t, event.ToolProgress, 2)
	speaking.sees(t, event.TextDelta, 2)
	pids := children(p.worker[0].PID(), "counter.py")
	if len(pids) != 2 {
		t.Errorf("%d programs run, want 2", len(pids))
	}
	both()
	p.worker[0].Kill()
	for v, n := range map[*viewer]int{running: 100, speaking: 25} {
		log, s := v.completed(t, e)
		if got := said(s, v.run.RunID); got != counted(n) {
			t.Errorf("the answer is %q", got)
		}
		if want := fmt.Sprintf(`{"counted":%d,"to":%d}`, n, n); string(s.State) != want || len(s.ToolCalls) != 1 || len(s.Messages) != 3 {
			t.Errorf("the fold is %s", s.Encode())
		}
		if count(log, event.MessageDiscarded) == 0 || count(log, event.RunRecovered) != 1 {
			t.Errorf("%d answers were taken back in %d takeovers", count(log, event.MessageDiscarded), count(log, event.RunRecovered))
		}
	}
	for _, pid := range pids {
		eventually(t, fmt.Sprintf("the end of program %d", pid), func() bool {
			args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // a zombie has none
			return !strings.Contains(string(args), "counter.py")
		})
	}
	p.command("fsck")
}

// The same for an agent that a server has. The socket of the dead worker is closed by the kernel; the server is asked
// anew, for the same run.
func TestAnAgentOfAServerOutlivesItsWorker(t *testing.T) {
	t.Parallel()
	python := needsPython(t)
	_, port, _ := strings.Cut(greeterAddr(t), ":")
	testservers.StartProcess(t, python, []string{filepath.Join(testservers.Root(t), "examples/elsewhere/greeter.py"), port}, nil).WaitLog("greeter on")
	p := startSmall(t)
	e := p.at[0]
	both := p.alone(t)
	words := strings.TrimSpace(strings.Repeat("word ", 60))
	v := p.watch(t, e.submit(t, request{Agent: "greeter", Input: words}), 1)
	v.sees(t, event.TextDelta, 3)
	both()
	p.worker[0].Kill()
	log, s := v.completed(t, e)
	if got, want := said(s, v.run.RunID), "Hello! You said: "+words+" That makes 60 words."; got != want {
		t.Errorf("the answer is %q", got)
	}
	// The message that spoke, and the one with the call.
	if count(log, event.MessageDiscarded) != 2 || len(s.ToolCalls) != 1 || s.ToolCalls[0].Executor != event.ByRemote || s.ToolCalls[0].Status != event.Completed {
		t.Errorf("the fold is %s", s.Encode())
	}
	p.command("fsck")
}

// needsPython skips a test of the example agents where there is no Python, or fails it in CI.
func needsPython(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("python3")
	switch {
	case err == nil:
	case os.Getenv("CI") == "true":
		t.Fatal("python3 is not installed: the example agents are written in it")
	default:
		t.Skip("python3 is not installed: the example agents are written in it")
	}
	return path
}
