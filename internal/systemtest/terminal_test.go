package systemtest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/internal/testservers"
)

// The terminal's commands against a `runlog dev`, as scripts use them: one JSON object a line, and exit codes.
func TestTerminal(t *testing.T) {
	t.Parallel()
	d := startDev(t)
	for _, c := range []struct {
		name string
		test func(*testing.T, *dev)
	}{
		{"run", terminalRun}, {"outcomes", terminalOutcomes}, {"attach", terminalAttach}, {"runs and trace", terminalLists},
		{"artifact", terminalArtifact}, {"cancel", terminalCancel}, {"interrupt", terminalInterrupt},
	} {
		t.Run(c.name, func(t *testing.T) { t.Parallel(); c.test(t, d) })
	}
}

// json runs a command with --json and decodes its lines.
func terminalJSON[T any](t *testing.T, d *dev, wantCode int, args ...string) []T {
	t.Helper()
	stdout, stderr, code := runlog(t, []string{"RUNLOG_SERVER=" + d.url}, append(args, "--json")...)
	if code != wantCode {
		t.Fatalf("runlog %s: exit %d, want %d: %s%s", strings.Join(args, " "), code, wantCode, stdout, stderr)
	}
	var list []T
	for _, line := range lines([]byte(stdout)) {
		var v T
		if err := json.Unmarshal(line, &v); err != nil {
			t.Fatalf("runlog %s: line %q: %v", strings.Join(args, " "), line, err)
		}
		list = append(list, v)
	}
	return list
}

// logged leaves out what is not of the log.
func logged(list []event.Event) []event.Event {
	return slices.DeleteFunc(list, func(e event.Event) bool { return e.Seq == 0 })
}

func terminalRun(t *testing.T, d *dev) {
	got := logged(terminalJSON[event.Event](t, d, 0, "run", "hello there"))
	log := checkLog(t, d.edge, got[0].SessionID)
	if want := ofRun(log, got[0].RunID); !slices.EqualFunc(got, want, same) {
		t.Errorf("runlog run shows %d events, the log has %d", len(got), len(want))
	}
	checkDemo(t, got)
	// The same session goes on; and for people it is text.
	stdout, stderr, code := runlog(t, nil, "run", "again", "--session", got[0].SessionID, "--agent", "probe", "--server", d.url)
	if code != 0 || !strings.Contains(stdout, "You said: again") {
		t.Errorf("exit %d: %s%s", code, stdout, stderr)
	}
	checkLog(t, d.edge, got[0].SessionID)
}

func terminalOutcomes(t *testing.T, d *dev) {
	if list := terminalJSON[event.Event](t, d, 1, "run", "die and use up the script", "--agent", "nobody"); len(list) > 0 {
		t.Errorf("an unknown agent gives %d lines", len(list))
	}
	terminalJSON[event.Event](t, d, 2, "run")
	failed := logged(terminalJSON[event.Event](t, d, 1, "run", "talk", "--agent", "talker"))
	var why event.RunFailedData
	if err := last(failed).Into(&why); err != nil || last(failed).Type != event.RunFailed || why.Code != event.CodeUnavailable {
		t.Errorf("without a model the run ends with %s, %+v", last(failed).Type, why)
	}
	terminalJSON[event.Event](t, d, 1, "attach", "run_nobody")
	_, stderr, code := runlog(t, nil, "run", "x", "--server", testservers.FreeAddr(t), "--json")
	if code != 1 || !strings.Contains(stderr, "runlog dev") {
		t.Errorf("no server: exit %d: %s", code, stderr)
	}
}

func terminalAttach(t *testing.T, d *dev) {
	r := d.finish(t, request{Input: "write something"})
	whole := logged(terminalJSON[event.Event](t, d, 0, "attach", r.RunID))
	if want := ofRun(checkLog(t, d.edge, r.SessionID), r.RunID); !slices.EqualFunc(whole, want, same) {
		t.Errorf("attach shows %d events, the log has %d", len(whole), len(want))
	}
	rest := logged(terminalJSON[event.Event](t, d, 0, "attach", r.RunID, "--after", whole[4].Seq.String()))
	if !slices.EqualFunc(rest, whole[5:], same) {
		t.Errorf("attach --after %d shows %d events, want %d", whole[4].Seq, len(rest), len(whole)-5)
	}
	session := logged(terminalJSON[event.Event](t, d, 0, "attach", r.SessionID, "--no-follow"))
	if len(session) < len(whole) || last(whole).Seq > last(session).Seq {
		t.Errorf("the session has %d events, its run %d", len(session), len(whole))
	}
}

func terminalLists(t *testing.T, d *dev) {
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	first := d.finish(t, request{TraceID: trace, Input: "one"})
	second := d.finish(t, request{TraceID: trace, SessionID: first.SessionID, Input: "two"})
	third := d.finish(t, request{TraceID: trace, Input: "the third"})
	var runs []run
	eventually(t, "the catalog to have three runs", func() bool {
		runs = terminalJSON[run](t, d, 0, "runs", "--trace", trace, "--status", "completed")
		return len(runs) == 3
	})
	if runs[0].RunID != third.RunID || runs[2].RunID != first.RunID {
		t.Errorf("runs are not the latest first: %+v", runs)
	}
	if one := terminalJSON[run](t, d, 0, "runs", "--trace", trace, "--limit", "1"); len(one) != 1 || one[0].RunID != third.RunID {
		t.Errorf("runs --limit 1: %+v", one)
	}
	if none := terminalJSON[run](t, d, 0, "runs", "--trace", trace, "--status", "failed"); len(none) > 0 {
		t.Errorf("failed runs: %+v", none)
	}
	got := logged(terminalJSON[event.Event](t, d, 0, "trace", trace, "--deltas"))
	var want []event.Event
	for _, r := range []run{first, second, third} {
		want = append(want, ofRun(checkLog(t, d.edge, r.SessionID), r.RunID)...)
	}
	if !slices.EqualFunc(got, want, same) {
		t.Errorf("trace shows %d events, the runs have %d", len(got), len(want))
	}
}

func terminalArtifact(t *testing.T, d *dev) {
	const content = "what is kept"
	r := d.finish(t, request{Input: "write " + content})
	file := filepath.Join(t.TempDir(), "copy")
	info := terminalJSON[struct {
		File  string `json:"file"`
		Bytes int    `json:"bytes"`
	}](t, d, 0, "artifact", "get", r.Artifacts[0].ArtifactID, "-o", file)
	data, err := os.ReadFile(file)
	if err != nil || string(data) != content || info[0].Bytes != len(content) || info[0].File != file {
		t.Errorf("%+v holds %q, %v", info, data, err)
	}
	stdout, _, code := runlog(t, nil, "artifact", "get", r.Artifacts[0].ArtifactID, "-o", "-", "--server", d.url)
	if code != 0 || stdout != content {
		t.Errorf("exit %d: %q", code, stdout)
	}
	terminalJSON[struct{}](t, d, 1, "artifact", "get", "art_nobody")
}

func terminalCancel(t *testing.T, d *dev) {
	r := d.submit(t, request{Input: `sleep {"ms":60000}`})
	reach(t, d.edge, r, event.ToolRunning)
	got := terminalJSON[run](t, d, 0, "cancel", r.RunID, "--reason", "of no use", "--wait")
	if len(got) != 1 || got[0].Status != event.Cancelled || got[0].Reason != "of no use" {
		t.Errorf("%+v", got)
	}
	if again := terminalJSON[run](t, d, 0, "cancel", r.RunID, "--wait"); again[0].Status != event.Cancelled {
		t.Errorf("%+v", again)
	}
	if end := logged(terminalJSON[event.Event](t, d, 3, "attach", r.RunID)); last(end).Type != event.RunCancelled {
		t.Errorf("attach ends with %s", last(end).Type)
	}
	checkLog(t, d.edge, r.SessionID)
}

// The first Ctrl-C cancels the run that `runlog run` has started.
func terminalInterrupt(t *testing.T, d *dev) {
	cmd := exec.CommandContext(t.Context(), testservers.RunlogBinary(t), "run", "drone", "--agent", "probe", "--json", "--server", d.url)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(out)
	var e event.Event
	for interrupted := false; !e.Type.Terminal(); {
		e = event.Event{}
		if err := dec.Decode(&e); err != nil {
			t.Fatalf("before the run's end: %v", err)
		}
		if e.Type == event.TextDelta && !interrupted {
			interrupted = true
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = cmd.Wait()
	if e.Type != event.RunCancelled || cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("after Ctrl-C the run ends with %s, the command with %s", e.Type, cmd.ProcessState)
	}
	checkLog(t, d.edge, e.SessionID)
}
