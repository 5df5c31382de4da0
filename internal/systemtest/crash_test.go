package systemtest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/event"
)

// told is what the probe says when it is asked to tell.
func told() string {
	var b strings.Builder
	for i := range 40 {
		fmt.Fprintf(&b, "Line %d of tell.\n", i+1)
	}
	return b.String() + "The end."
}

// countOn takes five seconds. What takes the least time is begun last where a test wants to cut all of it off.
const countOn = `count {"n":50,"delay_ms":100}`

// kill -9 of a worker in the middle of everything that it can be in: another one goes on, the viewers see one clean
// story, and nobody waits for longer than two leases.
func workerKilled(t *testing.T, p *production) {
	both := p.alone(t)
	e := p.at[0]
	sleeping := p.watch(t, e.submit(t, request{Input: `sleep {"ms":60000}`}), 0)
	sleeping.sees(t, event.ToolRunning, 1)
	calling := p.watch(t, e.submit(t, request{Agent: "caller", Input: "call"}), 1)
	counting := p.watch(t, e.submit(t, request{Input: countOn}), 1)
	calling.sees(t, event.ToolCompleted, 1)
	counting.sees(t, event.ToolProgress, 2)
	talking := p.watch(t, e.submit(t, request{Input: "tell"}), 0)
	talking.sees(t, event.TextDelta, 2)
	both()

	killed := time.Now()
	p.worker[0].Kill()
	// Who posts to a session whose worker is dead is heard when it is taken over; others at once.
	queued := p.watch(t, e.submit(t, request{SessionID: counting.run.SessionID, Input: "behind it"}), 0)
	other := e.finish(t, request{Input: "meanwhile"})
	if took := time.Since(killed); other.Status != event.Completed || took > lease {
		t.Errorf("another session: %s after %v", other.Status, took)
	}

	log, s := talking.completed(t, e)
	takenOver(t, log, killed)
	if got := said(s, talking.run.RunID); got != told() {
		t.Errorf("the text is %q", got)
	}
	if n := count(log, event.MessageDiscarded); n != 1 {
		t.Errorf("%d answers were taken back, want 1", n)
	}

	log, s = counting.completed(t, e)
	takenOver(t, log, killed)
	executedTwice(t, p, counting.run)
	if got := said(s, counting.run.RunID); got != "Counted to 50." {
		t.Errorf("the count says %q", got)
	}
	queued.completed(t, e)

	_, s = sleeping.completed(t, e)
	p.ledger.once(t, sleeping.run.RunID, "sleep")
	if got := said(s, sleeping.run.RunID); got != "sleep: unknown" {
		t.Errorf("the model hears of the sleep that was cut off: %q", got)
	}

	_, s = calling.completed(t, e)
	if got := said(s, calling.run.RunID); got != "Done." {
		t.Errorf("the model that refuses what is not valid says %q", got)
	}
	// On a starved machine the caller may have ended before the blow.
	if n := p.worker[1].metric(t, "runlog_takeovers_total"); n < 3 {
		t.Errorf("the other worker counts %v takeovers", n)
	}
	p.worker[0].again()
}

// metric reads a counter from a worker's admin listener.
func (s *server) metric(t *testing.T, name string) (value float64) {
	t.Helper()
	a := edge{url: strings.TrimSuffix(s.ready, "/readyz")}.get(t, "/metrics")
	for _, line := range lines(a.body) {
		if n, _ := fmt.Sscanf(string(line), name+" %g", &value); n == 1 {
			return value
		}
	}
	t.Errorf("there is no metric %s", name)
	return 0
}

// takenOver checks that a session was claimed again within two leases.
func takenOver(t *testing.T, log []event.Event, since time.Time) {
	t.Helper()
	for _, e := range log {
		if e.Type == event.SessionClaimed && e.Time.After(since) {
			if took := e.Time.Sub(since); took > 2*lease {
				t.Errorf("the takeover of %s took %v, at most %v are allowed", e.SessionID, took, 2*lease)
			} else {
				t.Logf("the takeover of %s took %v", e.SessionID, took)
			}
			return
		}
	}
	t.Errorf("session %s was not taken over", log[0].SessionID)
}

// executedTwice checks that a call was repeated under its own key.
func executedTwice(t *testing.T, p *production, r run) {
	t.Helper()
	uses := p.ledger.of(t, r.RunID)
	if len(uses) != 2 || uses[0].key != uses[1].key || uses[0].attempt != "1" || uses[1].attempt != "2" {
		t.Errorf("run %s executed %+v, want the same call twice", r.RunID, uses)
	}
}

// A worker that is paused for longer than its lease wakes up as a zombie: nothing of it gets in, and it stops what it
// was doing by itself.
func workerPaused(t *testing.T, p *production) {
	both := p.alone(t)
	e := p.at[0]
	sleeping := p.watch(t, e.submit(t, request{Input: `sleep {"ms":60000}`}), 1)
	sleeping.sees(t, event.ToolRunning, 1)
	counting := p.watch(t, e.submit(t, request{Input: countOn}), 1)
	counting.sees(t, event.ToolProgress, 2)
	talking := p.watch(t, e.submit(t, request{Input: "tell"}), 0)
	talking.sees(t, event.TextDelta, 2)
	both()

	paused := time.Now()
	p.worker[0].Pause()
	for _, v := range []*viewer{talking, counting, sleeping} {
		v.sees(t, event.RunRecovered, 1) // and goes on under the other worker when the zombie wakes up
	}
	p.worker[0].Resume()

	log, s := talking.completed(t, e)
	takenOver(t, log, paused)
	if got := said(s, talking.run.RunID); got != told() {
		t.Errorf("the text is %q", got)
	}
	counting.completed(t, e)
	executedTwice(t, p, counting.run)
	sleeping.completed(t, e)
	p.ledger.once(t, sleeping.run.RunID, "sleep")
	for _, v := range []*viewer{talking, counting, sleeping} {
		eventually(t, "the zombie to stop", func() bool { return p.worker[0].stopped(v.run.SessionID) })
	}
	if n := count(checkLog(t, e, talking.run.SessionID), event.SessionClaimed); n != 2 {
		t.Errorf("%d claims, want 2", n)
	}
	// It is of use again.
	p.worker[1].Stop()
	if got := e.finish(t, request{Input: "still there?"}); got.Status != event.Completed {
		t.Errorf("the worker that was paused: %+v", got)
	}
	p.worker[1].again()
}

// stopped reports whether the worker's log says that it has given a session up.
func (s *server) stopped(session string) bool {
	for line := range strings.Lines(s.Log()) {
		if strings.Contains(line, "turn handed over") && strings.Contains(line, session) && strings.Contains(line, "fenced") {
			return true
		}
	}
	return false
}

// kill -9 of everything right after the answers that accepted runs: they are there after the restart, and proceed.
func everythingKilled(t *testing.T, p *production) {
	var runs []run
	for i := range 5 {
		runs = append(runs, p.at[i%2].submit(t, request{Input: fmt.Sprint("acknowledged ", i)}))
	}
	talking := p.at[0].submit(t, request{Input: "tell"})
	p.edge[0].Kill()
	p.edge[1].Kill()
	p.worker[0].Kill()
	p.worker[1].Kill()
	p.nats.Kill()
	p.pg.Kill()
	p.s3.Kill()

	p.s3.Start()
	p.pg.Start()
	p.nats.Start()
	for i := range 2 {
		p.edge[i].again()
		p.worker[i].again()
	}
	for i, r := range append(runs, talking) {
		if got := p.at[i%2].ended(t, r.RunID); got.Status != event.Completed {
			t.Errorf("run %d: %+v", i, got)
		}
		checkLog(t, p.at[0], r.SessionID)
	}
}

// A rolling restart of all workers and edges while runs are going on: they complete, and viewers see everything once.
func rollingRestart(t *testing.T, p *production) {
	e := p.at[0]
	var viewers []*viewer
	for i := range 4 {
		viewers = append(viewers, p.watch(t, e.submit(t, request{Input: "tell"}), i%2))
	}
	counting := p.watch(t, e.submit(t, request{Input: `count {"n":60,"delay_ms":100}`}), 0)
	counting.sees(t, event.ToolProgress, 2)
	raw := p.at[0].listen(t, "/v1/runs/"+counting.run.RunID+"/events", sse)
	defer raw.close()
	for i := range 2 {
		viewers = append(viewers, p.watch(t, p.at[1].submit(t, request{Input: "tell"}), i))
		p.worker[i].Stop()
		p.worker[i].again()
		p.edge[i].Stop()
		p.edge[i].again()
	}
	for _, v := range viewers {
		if _, s := v.completed(t, e); said(s, v.run.RunID) != told() {
			t.Errorf("the text is %q", said(s, v.run.RunID))
		}
	}
	counting.completed(t, e)
	for {
		m, err := raw.next()
		if event.Type(m.kind).Terminal() || errors.Is(err, io.EOF) {
			t.Errorf("a stream of the edge that went away ends in good order, with %q", m.raw)
		}
		if err != nil {
			break
		}
	}
}

// kill -9 of a tool's server in the middle of a call: the call is closed with an unknown outcome, the run goes on.
func toolServerKilled(t *testing.T, p *production) {
	both := p.alone(t)
	e := p.at[0]
	sleeping := p.watch(t, e.submit(t, request{Input: `sleep {"ms":60000}`}), 0)
	sleeping.sees(t, event.ToolRunning, 1)
	counting := p.watch(t, e.submit(t, request{Input: countOn}), 0)
	counting.sees(t, event.ToolProgress, 2)
	for _, pid := range toolServers(t, p.worker[0].PID()) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Errorf("kill the tools' server: %v", err)
		}
	}
	_, s := sleeping.completed(t, e)
	if got := said(s, sleeping.run.RunID); got != "sleep: unknown" {
		t.Errorf("the sleep says %q", got)
	}
	counting.completed(t, e)
	p.ledger.once(t, sleeping.run.RunID, "sleep")
	if got := e.finish(t, request{Input: `count {"n":2}`}); got.Text != "Counted to 2." {
		t.Errorf("the next call says %q", got.Text)
	}
	both()
}

// toolServers are the processes that a worker has started for its tools.
func toolServers(t *testing.T, worker int) []int {
	t.Helper()
	pids := children(worker, "demo-tools")
	if len(pids) == 0 {
		t.Fatal("the worker has started no tools")
	}
	return pids
}

// children are the processes that another one has started, with a word in their command.
func children(of int, word string) (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range all {
		args, _ := os.ReadFile(path)
		stat, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "stat"))
		var pid, parent int
		var name, state string
		fmt.Sscan(string(stat), &pid, &name, &state, &parent)
		if parent == of && strings.Contains(string(args), word) {
			pids = append(pids, pid)
		}
	}
	return pids
}
