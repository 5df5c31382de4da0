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
	dead := make(chan struct{})
	looks := newTrap(point{on: inboxRead, n: 1}.matcher("ses_1"), before, func(*worker) bool { <-dead; return true })
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
	l.settled(t, second)
	if second.err != nil {
		t.Errorf("the viewer: %v", second.err)
	}
	frames, _ := l.events(t, second)
	l.checkTakeover(t, []*blow{{attack: attack{at: point{kind: event.ToolRunning, n: 1}, harm: killed}, at: at}}, frames)
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
	took, stood := longestPause(frames), l.pulse.worst(since)
	t.Logf("the run stood still for %v", took.Round(time.Millisecond))
	if took > 2*lease+4*stood {
		t.Errorf("the run stood still for %v, more than two leases (the machine for up to %v)", took, stood)
	}
	l.judge(t, s, nil)
	l.sound(t)
}

// longestPause is the longest time between two frames.
func longestPause(frames []eventlog.Frame) (longest time.Duration) {
	for i := range frames[1:] {
		longest = max(longest, frames[i+1].Time.Sub(frames[i].Time))
	}
	return longest
}

// set lays traps for all workers.
func (l *lane) set(traps ...*trap) {
	for _, w := range l.workers {
		w.gate.set(traps...)
	}
}
