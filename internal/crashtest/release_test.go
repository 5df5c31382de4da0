package crashtest

import (
	"testing"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// inboxRead is what a worker asks after it has released a session.
const inboxRead = "$JS.API.STREAM.MSG.GET.INBOX"

// A worker lets go of a session and freezes before its ticket is deleted. The
// ticket goes to another worker, who has a new run, when the deletion comes
// through after all; and then that worker dies. Nobody has a ticket: the run is
// found by the first worker, who looks again, or, if that one dies as well, by the
// alarm that the second one had set.
func TestALateReleaseDoesNotLoseTheNextRun(t *testing.T) {
	t.Run("who released looks again", func(t *testing.T) { lateRelease(t, false, 2*lease) })
	t.Run("nobody looks again", func(t *testing.T) { lateRelease(t, true, 4*lease) })
}

func lateRelease(t *testing.T, both bool, bound time.Duration) {
	l := startLane(t)
	late := attack{harm: paused, at: point{on: released, n: 1}, when: before}.prepare("ses_1")
	l.set(late.trap)
	first := l.submit(t, "crash")
	<-late.done
	<-first.over

	l.runs-- // the next run is in the same session
	dead := make(chan struct{})
	looks := newTrap(point{on: inboxRead, n: 1}.matcher("ses_1"), before, func(w *worker) bool {
		<-dead
		if both {
			w.Kill()
		}
		return !both
	})
	begun := newTrap(point{kind: event.ToolRunning, n: 1}.matcher("ses_1"), stored, func(next *worker) bool {
		late.worker.gate.set(looks)
		close(late.wake)
		late.worker.Resume()
		l.noTicket(t, "ses_1")
		next.Kill()
		return false
	})
	l.set(begun)
	second := l.submit(t, "crash")
	<-begun.done
	at := time.Now()
	close(dead)
	<-looks.done
	if both {
		l.set()
		l.whole(t)
	}
	l.settled(t, second)
	if second.err != nil {
		t.Errorf("the viewer: %v", second.err)
	}
	frames, _ := l.events(t, second)
	l.checkPause(t, frames, at, bound)
	l.sound(t)
}

// checkPause: from some time on the run never stood still for longer than that,
// not counted what the machine itself did.
func (l *lane) checkPause(t *testing.T, frames []eventlog.Frame, since time.Time, bound time.Duration) {
	t.Helper()
	longest, last := time.Duration(0), since
	for _, f := range frames {
		if f.Time.After(since) {
			longest, last = max(longest, f.Time.Sub(last)), f.Time
		}
	}
	lost := l.pulse.lost(since, last)
	t.Logf("the run stood still for %v", longest.Round(time.Millisecond))
	if longest > bound+lost {
		t.Errorf("the run stood still for %v, not %v at most and the %v that the machine cost", longest, bound, lost)
	}
	if last.Equal(since) {
		t.Error("the run did not go on")
	}
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

// A worker is heard and hears nothing any more: what it says keeps others away,
// and it must find out by itself.
func TestAWorkerThatHearsNothingFindsOut(t *testing.T) {
	l := startLane(t)
	end := make(chan struct{})
	t.Cleanup(func() { close(end) })
	deaf := newTrap(point{kind: event.ToolRunning, n: 1}.matcher("ses_1"), stored, func(*worker) bool { <-end; return false })
	l.set(deaf)
	s := l.submit(t, "crash")
	<-deaf.hit
	since := time.Now()
	l.settled(t, s)
	frames, _ := l.events(t, s)
	l.checkPause(t, frames, since, 2*lease)
	l.judge(t, s, nil)
	l.sound(t)
}

// set lays traps for all workers.
func (l *lane) set(traps ...*trap) {
	for _, w := range l.workers {
		w.gate.set(traps...)
	}
}
