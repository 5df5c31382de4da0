// Package crashtest kills and pauses workers, to the frame, and shows that every
// run ends right, once. Each worker is a process of its own behind a gate, which
// reads what it writes and strikes before a certain frame is stored, or after
// that but before the worker knows.
package crashtest

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/audit"
	runlog "github.com/runlog-dev/runlog/clients/go"
	"github.com/runlog-dev/runlog/eventlog"
	"github.com/runlog-dev/runlog/internal/testservers"
)

// lease is short, so that takeovers are quick; a worker that gets no processor
// for half of it is taken for dead, which a loaded machine must not do all the
// time.
const lease = 1500 * time.Millisecond

// patience bounds what a test waits for: it is not how long things should take.
const patience = 60 * time.Second

// A lane is an installation with two workers, in which one attack follows the
// other. Lanes run side by side.
type lane struct {
	t       testing.TB
	dir     string
	env     []string
	workers [2]*worker
	edge    *testservers.Process
	client  *runlog.Client
	log     *eventlog.Log // past all gates
	auditor *audit.Auditor
	pulse   *pulse
	runs    int
	models  map[string]*outcome // of runs that nobody attacked, by agent
}

// A worker is a process behind its gate.
type worker struct {
	*testservers.Process
	name  string
	gate  *gate
	ready string
}

func startLane(t testing.TB) *lane {
	t.Helper()
	nats := testservers.NATS(t, 1)
	l := &lane{t: t, dir: t.TempDir(), models: map[string]*outcome{}}
	l.env = []string{
		"RUNLOG_CATALOG_URL=sqlite:" + filepath.Join(l.dir, "catalog.db"), "RUNLOG_ARTIFACTS_URL=dir:" + filepath.Join(l.dir, "artifacts"),
		"RUNLOG_AGENTS=" + agentFiles(t, l.ledger()), "RUNLOG_LEASE=" + lease.String(), "RUNLOG_LOG=info", "RUNLOG_SLOTS=8", "RUNLOG_PING=1s",
	}
	for i := range l.workers {
		l.workers[i] = l.startWorker(fmt.Sprint("worker ", i+1), nats.Node(0).Addr())
	}
	addr := testservers.FreeAddr(t)
	l.edge = testservers.StartProcess(t, testservers.RunlogBinary(t), []string{"edge"}, append(l.env[:len(l.env):len(l.env)], "RUNLOG_NATS_URL="+nats.URL(), "RUNLOG_LISTEN="+addr))
	l.edge.WaitReady("http://" + addr + "/readyz")
	for _, w := range l.workers {
		w.WaitReady(w.ready)
	}
	l.client = &runlog.Client{BaseURL: "http://" + addr, HTTP: &http.Client{Transport: &http.Transport{}}}
	l.inspect(nats.Node(0))
	return l
}

func (l *lane) ledger() string { return filepath.Join(l.dir, "ledger") }

func (l *lane) startWorker(name, nats string) *worker {
	l.t.Helper()
	admin := testservers.FreeAddr(l.t)
	w := &worker{name: name, ready: "http://" + admin + "/readyz"}
	w.gate = startGate(l.t, w, nats)
	w.Process = testservers.StartProcess(l.t, testservers.RunlogBinary(l.t), []string{"worker"},
		append(l.env[:len(l.env):len(l.env)], "RUNLOG_NATS_URL="+w.gate.url(), "RUNLOG_ADMIN_LISTEN="+admin))
	return w
}

// inspect opens the log for the test itself.
func (l *lane) inspect(nats *testservers.Node) {
	l.t.Helper()
	nc, err := eventlog.Connect(nats.URL(), "crashtest")
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(nc.Close)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if l.log, err = eventlog.Inspect(ctx, nc, eventlog.Options{}); err != nil {
		l.t.Fatal(err)
	}
	l.pulse = startPulse(l.t, l.log.Ping, nats.Process, l.workers[0].Process, l.workers[1].Process)
	l.auditor = audit.New(l.log, audit.Options{Grace: time.Nanosecond})
}

// whole brings back the workers that were killed.
func (l *lane) whole(t testing.TB) {
	t.Helper()
	for _, w := range l.workers {
		select {
		case <-w.Done():
			w.Start()
		default:
		}
	}
	for _, w := range l.workers {
		w.WaitReady(w.ready)
	}
}

// agentFiles copies the agents and tells their tools where the ledger is.
func agentFiles(t testing.TB, ledger string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/agents")); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, []byte(strings.ReplaceAll(string(text), "$LEDGER", ledger)), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
