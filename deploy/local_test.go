package deploy

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/runlog-dev/runlog/internal/testservers"
)

// A local is one use of deploy/local, with a directory and ports of its own.
type local struct {
	t    *testing.T
	dir  string
	port int
	bin  string
}

// newLocal makes sure that nothing outlives the test. The directory is one that Postgres' user can enter.
func newLocal(t *testing.T, bin string) *local {
	t.Helper()
	for _, program := range []string{"nats-server", "postgres", "versitygw", "nginx"} {
		testservers.Tool(t, program)
	}
	dir, err := os.MkdirTemp("", "runlog-local-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	l := &local{t: t, dir: dir, port: freeRange(t, 20), bin: bin}
	t.Cleanup(func() {
		l.script("down")
		if t.Failed() {
			l.showLogs()
		}
		os.RemoveAll(dir)
	})
	return l
}

// script runs deploy/local/NAME and returns what it printed and its exit code.
func (l *local) script(name string) (string, int) {
	l.t.Helper()
	cmd := exec.Command(filepath.Join(testservers.Root(l.t), "deploy/local", name), l.dir)
	cmd.Env = append(os.Environ(), "RUNLOG_PORT="+strconv.Itoa(l.port), "RUNLOG_BIN="+l.bin)
	// A file: the processes that up leaves behind must not keep a pipe of ours open.
	out, err := os.Create(filepath.Join(l.dir, name+".out"))
	if err != nil {
		l.t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		l.t.Fatal(err)
	}
	text, err := os.ReadFile(out.Name())
	if err != nil {
		l.t.Fatal(err)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

func (l *local) showLogs() {
	logs, _ := filepath.Glob(filepath.Join(l.dir, "log", "*"))
	for _, name := range logs {
		text, _ := os.ReadFile(name)
		l.t.Logf("%s:\n%s", filepath.Base(name), text[max(0, len(text)-4000):])
	}
}

// pids returns the recorded processes that are still there, by name.
func (l *local) pids() map[string]int {
	l.t.Helper()
	found := map[string]int{}
	records, _ := filepath.Glob(filepath.Join(l.dir, "pids", "*"))
	for _, record := range records {
		data, err := os.ReadFile(record)
		if err != nil {
			l.t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.Fields(string(data))[0])
		if err != nil {
			l.t.Fatalf("%s: %q", record, data)
		}
		_, name, _ := strings.Cut(filepath.Base(record), "-")
		found[name] = pid
	}
	return found
}

func TestLocalUpThatFailsLeavesNothing(t *testing.T) {
	l := newLocal(t, "/bin/false") // migrate fails
	out, code := l.script("up")
	if code != 1 || !strings.Contains(out, "migrate: see ") {
		t.Errorf("exit %d, want 1 and where to look:\n%s", code, out)
	}
	if left := l.pids(); len(left) > 0 {
		t.Errorf("still recorded: %v", left)
	}
	for i := range 20 {
		if conn, err := net.Dial("tcp", addr(l.port+i)); err == nil {
			conn.Close()
			t.Errorf("somebody still listens on %d", l.port+i)
		}
	}
}

// down goes by pid and start time: a record whose pid went to another process must not end that one.
func TestLocalDownSparesStrangers(t *testing.T) {
	stranger := testservers.StartProcess(t, "/bin/sleep", []string{"600"}, nil)
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "pids"), 0o755); err != nil {
		t.Fatal(err)
	}
	record := filepath.Join(dir, "pids", "01-edge1")
	if err := os.WriteFile(record, fmt.Appendf(nil, "%d 1\n", stranger.PID()), 0o644); err != nil {
		t.Fatal(err)
	}
	l := &local{t: t, dir: dir}
	if out, code := l.script("down"); code != 0 {
		t.Errorf("down: exit %d\n%s", code, out)
	}
	select {
	case <-stranger.Done():
		t.Error("down ended a process that up did not start")
	default:
	}
}

func TestLocalUpAndDown(t *testing.T) {
	l := newLocal(t, testservers.RunlogBinary(t))
	if out, code := l.script("up"); code != 0 {
		t.Fatalf("up: exit %d\n%s", code, out)
	}
	if got := len(l.pids()); got != 10 {
		t.Errorf("%d processes, want 3 NATS, Postgres, S3, 2 edges, 2 workers and nginx: %v", got, l.pids())
	}
	if out, code := l.script("up"); code != 1 || !strings.Contains(out, "already up") {
		t.Errorf("a second up: exit %d\n%s", code, out)
	}
	run := l.startRun()
	if out, code := l.script("down"); code != 0 {
		t.Errorf("down: exit %d\n%s", code, out)
	}
	if out, code := l.script("up"); code != 0 {
		t.Fatalf("up again: exit %d\n%s", code, out)
	}
	resp := get(t, "http://"+addr(l.port)+"/v1/runs/"+run, nil)
	if resp.StatusCode != http.StatusOK {
		t.Errorf("the run did not survive down and up: %s", resp.Status)
	}
}

// startRun submits a run through nginx, waits for its end and returns its id.
func (l *local) startRun() string {
	l.t.Helper()
	url := "http://" + addr(l.port) + "/v1/runs?wait=60s"
	resp, err := http.Post(url, "application/json", strings.NewReader(`{"agent":"demo","input":"hello"}`))
	if err != nil {
		l.t.Fatal(err)
	}
	defer resp.Body.Close()
	var run struct {
		ID     string `json:"run_id"`
		Status string `json:"status"`
	}
	decode(l.t, resp, &run)
	if run.Status != "completed" {
		l.t.Fatalf("run %s: %s", run.ID, run.Status)
	}
	return run.ID
}

// freeRange returns the first of n ports in a row that are all free.
func freeRange(t *testing.T, n int) int {
	t.Helper()
	for range 1000 {
		first := testservers.FreePort(t)
		if allFree(first, n) {
			return first
		}
	}
	t.Fatalf("no %d free ports in a row", n)
	return 0
}

func allFree(first, n int) bool {
	for port := first; port < first+n; port++ {
		l, err := net.Listen("tcp4", addr(port))
		if err != nil {
			return false
		}
		l.Close()
	}
	return true
}

func addr(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
