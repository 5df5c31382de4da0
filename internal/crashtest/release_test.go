package crashtest

import (
	"testing"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// A worker lets go of a session and freezes before its ticket is deleted. The
// ticket goes to another worker, who has a new run, when the deletion comes
// through after all; and then that worker dies. Nobody has a ticket: the run must
// be found nevertheless.
func TestALateReleaseDoesNotLoseTheNextRun(t *testing.T) {
	l := startLane(t)
	late := attack{harm: paused, at: point{on: released, n: 1}, when: before}.prepare("ses_1")
	l.set(late.trap)
	first := l.submit(t, "crash")
	<-late.done
	<-first.over

	l.runs-- // the next run is in the same session
	begun := newTrap(point{kind: event.ToolRunning, n: 1}.matcher("ses_1"), stored, func(next *worker) bool {
		close(late.wake)
		late.worker.Resume()
		l.noTicket(t, "ses_1")
		next.Kill()
		return false
	})
	l.set(begun)
	second := l.submit(t, "crash")
	<-begun.hit
	killed := time.Now()
	select {
	case <-second.over:
		t.Logf("the run was over %v after its worker was killed", time.Since(killed).Round(time.Millisecond))
	case <-time.After(patience):
		t.Error("nobody goes on with the run")
	}
	if second.err != nil {
		t.Errorf("the viewer: %v", second.err)
	}
	l.settled(t, second)
	l.sound(t)
}

// noTicket waits until the session has no ticket.
func (l *lane) noTicket(t *testing.T, session string) {
	k := eventlog.Key{Tenant: "default", Session: session}
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		there, err := l.log.Ticketed(t.Context(), k)
		if err == nil && !there {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("the ticket of %s is still there: %v", session, err)
			return
		}
	}
}

// set lays traps for all workers.
func (l *lane) set(traps ...*trap) {
	for _, w := range l.workers {
		w.gate.set(traps...)
	}
}
