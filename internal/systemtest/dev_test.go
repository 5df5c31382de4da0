package systemtest

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/internal/testservers"
)

// A dev is a `runlog dev` with its own data.
type dev struct {
	*server
	edge
	data   string
	ledger ledger
}

// nobody is an address where no model listens.
const nobody = "http://127.0.0.1:1/v1"

// startDev starts a `runlog dev` with the tests' agents.
func startDev(t testing.TB) *dev {
	t.Helper()
	addr, data := testservers.FreeAddr(t), t.TempDir()
	ledger := ledger(filepath.Join(t.TempDir(), "ledger"))
	env := []string{
		"RUNLOG_AGENTS=" + agentFiles(t, "$LEDGER", string(ledger), "$MODEL", nobody, "$CALLER", nobody, "$CLAUDE", nobody), "RUNLOG_LEASE=" + lease.String(), "RUNLOG_LOG=info", "RUNLOG_GRACE=500ms",
	}
	s := startServer(t, "http://"+addr+"/readyz", env, "dev", "--data", data, "--listen", addr)
	return &dev{s, edge{url: "http://" + addr}, data, ledger}
}

// readyBound is how long a start may take: the figure is 1 s on a quiet machine, this is for a loaded one with the
// race detector.
const readyBound = 20 * time.Second

func TestDevIsReadySoonAndSaysWhereToLook(t *testing.T) {
	t.Parallel()
	testservers.RunlogBinary(t) // built outside of what is measured
	began := time.Now()
	d := startDev(t)
	if took := time.Since(began); took > readyBound {
		t.Errorf("ready after %v", took)
	} else {
		t.Logf("ready after %v", took)
	}
	for _, want := range []string{"runlog is up on " + d.url, d.data, "curl -N -H 'Accept: text/event-stream' -d '{\"agent\":\"demo\"", d.url + "/v1/runs"} {
		if !strings.Contains(d.Log(), want) {
			t.Errorf("the greeting does not say %q:\n%s", want, d.Log())
		}
	}
	s := d.start(t, http.MethodPost, "/v1/runs", `{"agent":"demo","input":"count to three"}`, sse)
	defer s.close()
	if list := events(t, s.rest()); last(list).Type != event.RunCompleted {
		t.Errorf("the run that the greeting proposes ends with %s", last(list).Type)
	}
}

// A second process on the same data would destroy it.
func TestDevRefusesWhatIsInUse(t *testing.T) {
	t.Parallel()
	d := startDev(t)
	_, stderr, code := runlog(t, nil, "dev", "--data", d.data, "--listen", testservers.FreeAddr(t))
	if code != 1 || !strings.Contains(stderr, "in use by another process") || !strings.Contains(stderr, "--data") {
		t.Errorf("the same data: exit %d: %s", code, stderr)
	}
	_, stderr, code = runlog(t, nil, "dev", "--data", t.TempDir(), "--listen", strings.TrimPrefix(d.url, "http://"))
	if code != 1 || !strings.Contains(stderr, "address already in use") || !strings.Contains(stderr, "--listen") {
		t.Errorf("the same port: exit %d: %s", code, stderr)
	}
	if a := d.get(t, "/readyz"); a.StatusCode != http.StatusOK {
		t.Errorf("the first one suffers: %s", a.Status)
	}
	_, stderr, code = runlog(t, nil, "dev", "--data", t.TempDir(), "--listen", "0.0.0.0:"+fmt.Sprint(testservers.FreePort(t)))
	if code != 1 || !strings.Contains(stderr, "keys create") {
		t.Errorf("open to the network without keys: exit %d: %s", code, stderr)
	}
}

// Stopped or killed, everything is there afterwards, and what was unfinished goes on.
func TestDevGoesOnWhereItStopped(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		end  func(*dev)
	}{
		{"SIGTERM", func(d *dev) { d.Stop() }},
		{"SIGKILL", func(d *dev) { d.Kill() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			goOn(t, startDev(t), c.end)
		})
	}
}

func goOn(t *testing.T, d *dev, end func(*dev)) {
	done := d.finish(t, request{Input: "write something to keep"})
	before := d.get(t, "/v1/sessions/"+done.SessionID+"/snapshot").body
	sleeping := d.submit(t, request{Input: `sleep {"ms":60000}`})
	reach(t, d.edge, sleeping, event.ToolRunning)
	counting := d.submit(t, request{Input: countOn})
	queued := d.submit(t, request{SessionID: counting.SessionID, Input: "and then this"})
	reach(t, d.edge, counting, event.ToolProgress)
	talking := d.submit(t, request{Input: "tell"})
	reach(t, d.edge, talking, event.TextDelta)

	end(d)
	d.again()

	sameConversation(t, "the finished session", d.get(t, "/v1/sessions/"+done.SessionID+"/snapshot").body, before)
	if got := d.get(t, "/artifacts/"+done.Artifacts[0].ArtifactID); string(got.body) != "something to keep" {
		t.Errorf("the artifact holds %q", got.body)
	}
	for _, r := range []run{talking, counting, sleeping, queued} {
		if got := d.ended(t, r.RunID); got.Status != event.Completed {
			t.Errorf("run %+v: %s, %+v", r, got.Status, got.Error)
		}
		checkLog(t, d.edge, r.SessionID)
	}
	d.retried(t, counting, sleeping)
}

// retried checks what became of tools that were cut off.
func (d *dev) retried(t *testing.T, counting, sleeping run) {
	t.Helper()
	uses := d.ledger.of(t, counting.RunID)
	if len(uses) != 2 || uses[0].key != uses[1].key || uses[1].attempt != "2" {
		t.Errorf("a tool that may be repeated: %+v", uses)
	}
	d.ledger.once(t, sleeping.RunID, "sleep")
	list := checkLog(t, d.edge, sleeping.SessionID)
	var failed event.ToolFailedData
	for _, e := range list {
		if e.Type == event.ToolFailed {
			_ = e.Into(&failed)
		}
	}
	if failed.Outcome != event.OutcomeUnknown || failed.Code != event.CodeInterrupted {
		t.Errorf("a tool that may not be repeated: %+v", failed)
	}
}

// reach waits until a run has an event of a type.
func reach(t testing.TB, e edge, r run, kind event.Type) {
	t.Helper()
	s := e.listen(t, "/v1/runs/"+r.RunID+"/events", sse)
	defer s.close()
	s.until(kind)
}

// An agent file that is wrong is reported with its line and what is expected; the other agents run.
func TestAWrongAgentFileIsReported(t *testing.T) {
	t.Parallel()
	addr, dir := testservers.FreeAddr(t), agentFiles(t, "$LEDGER", "", "$MODEL", nobody, "$CALLER", nobody, "$CLAUDE", nobody)
	wrong := "name: wrong\nmodel:\n  provider: crystal-ball\n  name: x\ntools:\n  - builtin: no_such_thing\n"
	if err := os.WriteFile(filepath.Join(dir, "wrong.yaml"), []byte(wrong), 0o644); err != nil {
		t.Fatal(err)
	}
	s := startServer(t, "http://"+addr+"/readyz", []string{"RUNLOG_AGENTS=" + dir}, "dev", "--data", t.TempDir(), "--listen", addr)
	for _, want := range []string{"wrong.yaml:3: model.provider: ", "openai, anthropic, scripted", "wrong.yaml:6: tools[0].builtin: ", "write_artifact"} {
		if !strings.Contains(s.Log(), want) {
			t.Errorf("not said: %q:\n%s", want, s.Log())
		}
	}
	e := edge{url: "http://" + addr}
	if got := e.finish(t, request{Input: "hello"}); got.Status != event.Completed {
		t.Errorf("another agent: %+v", got)
	}
	pr := e.refused(t, http.StatusNotFound, event.CodeNotFound, http.MethodPost, "/v1/runs", `{"agent":"wrong","input":"x"}`)
	if len(pr.Known) < 5 {
		t.Errorf("the answer names %v", pr.Known)
	}
}
