package systemtest

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/internal/testservers"
)

// JetStream is restored from a backup by the procedure in docs/operations.md. Nobody can get around it; what was lost
// is found out by whoever has seen it; what was under way goes on.
func TestRestoredJetStream(t *testing.T) {
	t.Parallel()
	p := startSmall(t)
	e := p.at[0]
	hello := e.finish(t, request{Input: "hello"})
	counting := e.submit(t, request{Input: countOn})
	reach(t, e, counting, event.ToolProgress)
	backup := p.backUp()

	e.ended(t, p.submitSoon(t, request{SessionID: hello.SessionID, Input: "this will be lost"}).RunID)
	gone := e.finish(t, request{Input: "and all of this"})
	e.ended(t, counting.RunID)
	eventually(t, "the catalog to know the lost run", func() bool {
		return strings.Contains(string(e.get(t, "/v1/runs?status=completed").body), gone.RunID)
	})
	seen := checkLog(t, e, hello.SessionID)

	forgotten := []*server{p.edge[1], p.worker[1]} // by the operator
	p.worker[1].Pause()
	for _, s := range []*server{p.worker[0], p.edge[0]} {
		s.Stop()
	}
	p.putBack(backup)
	p.refusesToStart("edge", "RUNLOG_LISTEN="+testservers.FreeAddr(t))
	p.refusesToStart("worker")
	for _, args := range documented(t, "### Restoring JetStream") {
		t.Log(p.command(args...))
	}
	p.worker[0].again()
	p.edge[0].again()
	kept := checkLog(t, e, hello.SessionID)
	if len(kept) == 0 || len(kept) >= len(seen) || !slices.EqualFunc(kept, seen[:len(kept)], same) {
		t.Fatalf("%d of %d events were restored", len(kept), len(seen))
	}
	lostIsNoticed(t, e, kept, seen)

	p.worker[1].Resume()
	e.finish(t, request{SessionID: hello.SessionID, Input: "taken by the one that knows of the restore"})
	for _, s := range forgotten {
		select {
		case <-s.Done():
		case <-time.After(patience):
			t.Fatal("a process that has slept through the restore goes on")
		}
	}
	for now := kept; len(now) <= len(seen); now = checkLog(t, e, hello.SessionID) {
		e.finish(t, request{SessionID: hello.SessionID, Input: "after the restore"})
	}
	lostIsNoticed(t, e, kept, seen)

	e.refused(t, http.StatusNotFound, event.CodeNotFound, http.MethodGet, "/v1/runs/"+gone.RunID, "")
	e.refused(t, http.StatusNotFound, event.CodeNotFound, http.MethodGet, "/v1/sessions/"+gone.SessionID+"/events", "", "Accept", sse)
	if r := e.ended(t, counting.RunID); r.Status != event.Completed {
		t.Errorf("the run that was under way: %+v", r)
	}
	checkLog(t, e, counting.SessionID)
	eventually(t, "fsck to find nothing", func() bool {
		out, _, code := runlog(t, p.env, "fsck")
		if code != 0 {
			t.Log(out)
		}
		return code == 0
	})
}

// backUp copies what NATS has stored, while it is stopped.
func (p *production) backUp() (dir string) {
	p.t.Helper()
	dir = filepath.Join(p.t.TempDir(), "backup")
	p.nats.Stop()
	if err := os.CopyFS(dir, os.DirFS(p.nats.Node(0).Store())); err != nil {
		p.t.Fatal(err)
	}
	p.nats.Start()
	return dir
}

// putBack restores a backup.
func (p *production) putBack(dir string) {
	p.t.Helper()
	p.nats.Stop()
	store := p.nats.Node(0).Store()
	if err := os.RemoveAll(store); err != nil {
		p.t.Fatal(err)
	}
	if err := os.CopyFS(store, os.DirFS(dir)); err != nil {
		p.t.Fatal(err)
	}
	p.nats.Start()
}

// refusesToStart starts a server that has to say what to do.
func (p *production) refusesToStart(command string, env ...string) {
	p.t.Helper()
	if out, errs, code := runlog(p.t, slices.Concat(p.env, env), command); code != 1 || !strings.Contains(errs, "run `runlog restored`") {
		p.t.Errorf("runlog %s after a restore: exit %d, %s%s", command, code, out, errs)
	}
}

// documented is the arguments of the runlog commands that a section of docs/operations.md lists as its steps.
func documented(t *testing.T, heading string) (commands [][]string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(testservers.Root(t), "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), heading+"\n")
	section, _, _ = strings.Cut(section, "\n#")
	for line := range strings.Lines(section) {
		if command, ok := strings.CutPrefix(strings.TrimSpace(line), "$ runlog "); ok {
			commands = append(commands, strings.Fields(command))
		}
	}
	if len(commands) == 0 {
		t.Fatalf("%q lists no command", heading)
	}
	return commands
}

// lostIsNoticed resumes a session from what was seen of it before the restore: where that is still there, the events
// after it follow; where it is lost, the session as it is now.
func lostIsNoticed(t *testing.T, e edge, kept, seen []event.Event) {
	t.Helper()
	path := "/v1/sessions/" + seen[0].SessionID + "/events?follow=false&include=internal"
	now := e.listen(t, path, sse)
	whole := now.rest()
	now.close()
	for _, at := range []event.Seq{1, last(kept).Seq, last(kept).Seq + 1, last(seen).Seq} {
		s := e.listen(t, path, sse, "Last-Event-ID", at.String())
		if at > last(kept).Seq {
			if now := s.begins("reset"); int(now.Seq) != len(whole) {
				t.Errorf("after %d, which was lost, a reset through %d of %d", at, now.Seq, len(whole))
			}
		} else if d := differ(s.rest(), whole[at:]); d != "" {
			t.Errorf("after %d: %s", at, d)
		}
		s.close()
	}
	for i, m := range whole {
		if late := strings.Contains(m.id, "~"); late != (i >= len(kept)) {
			t.Errorf("event %d has the id %s", i+1, m.id)
		}
		s := e.listen(t, path, sse, "Last-Event-ID", m.id)
		if d := differ(s.rest(), whole[i+1:]); d != "" {
			t.Errorf("after %s: %s", m.id, d)
		}
		s.close()
	}
}

// `runlog dev` whose log lost its end, as in a power cut, says so by itself: it has the log alone.
func TestDevRestoresItself(t *testing.T) {
	t.Parallel()
	d := startDev(t)
	hello := d.finish(t, request{Input: "hello"})
	d.Stop()
	log, backup := filepath.Join(d.data, "jetstream"), filepath.Join(t.TempDir(), "backup")
	if err := os.CopyFS(backup, os.DirFS(log)); err != nil {
		t.Fatal(err)
	}
	d.again()
	lost := d.finish(t, request{SessionID: hello.SessionID, Input: "this will be lost"})
	eventually(t, "the catalog to know the lost run", func() bool {
		return strings.Contains(string(d.get(t, "/v1/runs?status=completed").body), lost.RunID)
	})
	seen := checkLog(t, d.edge, hello.SessionID)
	d.Stop()
	if err := errors.Join(os.RemoveAll(log), os.CopyFS(log, os.DirFS(backup))); err != nil {
		t.Fatal(err)
	}
	d.again()
	lostIsNoticed(t, d.edge, checkLog(t, d.edge, hello.SessionID), seen)
	d.refused(t, http.StatusNotFound, event.CodeNotFound, http.MethodGet, "/v1/runs/"+lost.RunID, "")
}
