// Package systemtest runs runlog as its users do: real processes, started, stopped, killed and paused by their
// pids, asked over HTTP and at the terminal. TestDev and its kin have `runlog dev`, TestProduction has a cluster of
// everything. What a session's log must hold is checked by one function, checkLog, after every run.
package systemtest

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/internal/testservers"
)

// lease is short, so that takeovers are quick, and long enough for a loaded machine.
const lease = 3 * time.Second

// TestMain lets more tests run side by side than there are processors: they wait most of the time.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// A server is a process of runlog that says over HTTP when it is ready.
type server struct {
	*testservers.Process
	ready string
}

func startServer(t testing.TB, ready string, env []string, args ...string) *server {
	t.Helper()
	s := &server{testservers.StartProcess(t, testservers.RunlogBinary(t), args, env), ready}
	s.WaitReady(ready)
	return s
}

// again starts a server that was stopped or killed.
func (s *server) again() {
	s.Start()
	s.WaitReady(s.ready)
}

// runlog runs a command to its end. It is not killed with the test, so it has to be one that ends.
func runlog(t testing.TB, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), testservers.RunlogBinary(t), args...)
	var out, errs strings.Builder
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), env...), &out, &errs
	cmd.Dir = t.TempDir()
	err := cmd.Run()
	if cmd.ProcessState == nil {
		t.Fatalf("runlog %s: %v", strings.Join(args, " "), err)
	}
	if strings.Contains(errs.String(), "DATA RACE") {
		t.Errorf("runlog %s: %s", strings.Join(args, " "), errs.String())
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

var (
	greeterPort     int
	takeGreeterPort sync.Once
)

// greeterAddr is where the example greeter serves, if a test starts it.
func greeterAddr(t testing.TB) string {
	takeGreeterPort.Do(func() { greeterPort = testservers.FreePort(t) })
	return fmt.Sprintf("127.0.0.1:%d", greeterPort)
}

// agentFiles copies the tests' agents, and the demo, into a directory, with what they leave open filled in.
func agentFiles(t testing.TB, fill ...string) string {
	t.Helper()
	dir := t.TempDir()
	own := os.DirFS("testdata/agents")
	if err := os.CopyFS(dir, own); err != nil {
		t.Fatal(err)
	}
	for _, examples := range []string{"examples/agents", "examples/elsewhere"} {
		if err := os.CopyFS(dir, os.DirFS(filepath.Join(testservers.Root(t), examples))); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"probe.yaml", "talker.yaml", "caller.yaml", "doomed.yaml", "claude.yaml", "streamer.yaml", "patient.yaml", "greeter.yaml"} {
		path := filepath.Join(dir, name)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		filled := strings.NewReplacer(append(fill, "127.0.0.1:8901", greeterAddr(t))...).Replace(string(text))
		if err := os.WriteFile(path, []byte(filled), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A ledger is the file in which the probe's tools record their calls.
type ledger string

// A use is one execution of a tool.
type use struct {
	at      time.Time
	key     string // idempotency key
	attempt string
	tool    string
}

// of returns the executions of a run's calls, in order.
func (l ledger) of(t testing.TB, runID string) []use {
	t.Helper()
	data, err := os.ReadFile(string(l))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var list []use
	for _, line := range lines(data) {
		f := strings.Fields(string(line))
		at, err := time.Parse(time.RFC3339Nano, f[0])
		if err != nil || len(f) != 4 {
			t.Fatalf("line of the ledger: %q", line)
		}
		if strings.HasPrefix(f[1], runID+"/") {
			list = append(list, use{at, f[1], f[2], f[3]})
		}
	}
	return list
}

// once checks that each tool of a run was executed just once.
func (l ledger) once(t testing.TB, runID string, tools ...string) {
	t.Helper()
	var got []string
	for _, u := range l.of(t, runID) {
		got = append(got, u.tool)
	}
	if strings.Join(got, " ") != strings.Join(tools, " ") {
		t.Errorf("run %s executed the tools %v, want %v", runID, got, tools)
	}
}
