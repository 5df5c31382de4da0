package crashtest

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// harm is what happens to a worker.
type harm string

const (
	killed harm = "killed"
	paused harm = "paused"
)

// A point is a write of a session: the one with the n-th of something, counted from 1.
type point struct {
	kind event.Type // events of this type; "": frames
	on   string     // instead: what is published on subjects with this beginning
	n    int
}

func (p point) String() string {
	what := "frame"
	if p.kind != "" {
		what = string(p.kind)
	}
	if p.on != "" {
		what = p.on
	}
	return fmt.Sprint(what, " ", p.n)
}

// matcher counts what a session's writes hold.
func (p point) matcher(session string) func(write) bool {
	n, seen := 0, map[event.Seq]bool{}
	return func(w write) bool {
		before := n
		if p.on != "" {
			n += p.beside(w, session)
		} else if strings.HasPrefix(w.subject, "log.") && strings.HasSuffix(w.subject, "."+session) {
			n += p.within(w.events, seen)
		}
		return before < p.n && p.n <= n
	}
}

// within counts what a frame adds to what was seen. On a busy machine frames are sent
// again, two workers may try to write the same event, and one frame holds what are
// two elsewhere.
func (p point) within(events []event.Event, seen map[event.Seq]bool) (n int) {
	for i, e := range events {
		if (p.kind == e.Type || p.kind == "" && i == 0) && !seen[e.Seq] {
			seen[e.Seq] = true
			n++
		}
	}
	return n
}

// beside counts a write that is no frame.
func (p point) beside(w write, session string) int {
	if strings.HasPrefix(w.subject, p.on) && !strings.Contains(w.subject, ".alarm-") && // those come by the clock
		(w.session == session || p.on != released) { // a ticket may have come back that has no more to do
		return 1
	}
	return 0
}

// An attack harms the worker that comes to a point in a story, and then, if there
// is one, the next worker at another.
type attack struct {
	plot  string // default: crash
	harm  harm
	at    point
	when  moment
	again *attack
}

func (a attack) String() string {
	s := strings.TrimSpace(fmt.Sprintf("%s %s %s %s", a.plot, a.harm, a.when, a.at))
	if a.again != nil {
		s += ", then " + a.again.String()
	}
	return s
}

// A blow is an attack that is under way.
type blow struct {
	attack
	session string
	trap    *trap
	worker  *worker
	fell    time.Time
	turns   int           // that the worker has told of before
	done    chan struct{} // closed when the worker is down
	wake    chan struct{} // close it to let a paused worker go on
}

func (a attack) prepare(session string) *blow {
	b := &blow{attack: a, session: session, done: make(chan struct{}), wake: make(chan struct{})}
	b.trap = newTrap(a.at.matcher(session), a.when, b.strike)
	return b
}

func (b *blow) strike(w *worker) (late bool) {
	b.worker, b.fell, b.turns = w, time.Now(), w.turns(b.session)
	if b.harm == killed {
		w.Kill()
		close(b.done)
		return false
	}
	w.Pause()
	close(b.done)
	<-b.wake
	return true
}

// errMissed: the run went by without coming to the point.
var errMissed = errors.New("the run never came to this point")

// run makes one attack and checks everything that has to hold afterwards.
func (l *lane) run(t *testing.T, a attack) error {
	t.Helper()
	l.whole(t)
	session := fmt.Sprintf("ses_%d", l.runs+1)
	blows := []*blow{a.prepare(session)}
	var next *blow
	if a.again != nil {
		next = a.again.prepare(session)
		l.follow(blows[0], next)
	}
	l.set(blows[0].trap)
	s := l.submit(t, a.plot)
	struck := l.struck(t, blows[0], s)
	if next != nil && struck && l.strikeAgain(t, next, blows[0], s) {
		blows = append(blows, next)
	}
	if !struck {
		l.disarm(t, blows[0])
		return errMissed
	}
	l.settled(t, s)
	for _, b := range blows {
		l.wakeUp(t, s, b)
	}
	l.judge(t, s, blows)
	return nil
}

// disarm takes the traps away. If one springs at this very moment, its victim is
// let go.
func (l *lane) disarm(t *testing.T, b *blow) {
	t.Helper()
	l.set()
	b.trap.mu.Lock()
	sprung := b.trap.sprung
	b.trap.mu.Unlock()
	if !sprung {
		return
	}
	<-b.done
	if b.harm == paused {
		close(b.wake)
		b.worker.Resume()
	}
}

// struck waits until the blow has fallen; false if the run is through without.
func (l *lane) struck(t *testing.T, b *blow, s *story) bool {
	t.Helper()
	over := s.over
	var calm time.Time // since when nobody has anything to do
	for {
		select {
		case <-b.trap.hit: // the run may go on elsewhere long before a starved victim is gone
			<-b.done
			return true
		case <-over:
			over = nil
			if s.err != nil {
				t.Fatalf("the viewer: %v", s.err)
			}
		case <-time.After(50 * time.Millisecond):
			switch {
			case over != nil || !l.quiet(t, s):
			case calm.IsZero():
				calm = time.Now()
			case time.Since(calm) > lease/2: // a snapshot may come after all else
				return false
			}
		case <-time.After(patience):
			t.Fatalf("neither %s, nor the end of the run", b.attack)
		}
	}
}

// follow lays the next trap for everybody else before the first blow falls: a victim
// that is starved may be gone long after they have come to the point.
func (l *lane) follow(first, next *blow) {
	strike := first.trap.spring
	first.trap.spring = func(victim *worker) (late bool) {
		for _, w := range l.workers {
			if w != victim {
				w.gate.set(next.trap)
			}
		}
		return strike(victim)
	}
}

// strikeAgain brings back the first victim and waits for the second one. There may
// be none if its point is any frame: who came late in a run leaves nothing to do.
func (l *lane) strikeAgain(t *testing.T, b, first *blow, s *story) bool {
	t.Helper()
	l.set(b.trap)
	if first.harm == killed {
		first.worker.Start()
	}
	if l.struck(t, b, s) {
		return true
	}
	if b.at.kind != "" || b.at.on != "" {
		t.Fatalf("%s: %v", b.attack, errMissed)
	}
	l.disarm(t, b)
	return false
}

// quiet reports that nobody has anything to do for the session any more.
func (l *lane) quiet(t testing.TB, s *story) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	k := eventlog.Key{Tenant: "default", Session: s.session}
	ticketed, err := l.log.Ticketed(ctx, k)
	if err != nil {
		t.Fatal(err)
	}
	waiting, err := l.log.Inbox(ctx, k)
	if err != nil {
		t.Fatal(err)
	}
	fold, _, err := l.log.Load(ctx, k)
	if err != nil {
		t.Fatal(err)
	}
	return !ticketed && len(waiting) == 0 && fold.Seq > 0 && fold.Free()
}

// settled waits until the run is over for its viewer and for the workers.
func (l *lane) settled(t *testing.T, s *story) {
	t.Helper()
	select {
	case <-s.over:
	case <-time.After(patience):
		t.Fatal("the viewer still waits for the end of the run")
	}
	for deadline := time.Now().Add(patience); !l.quiet(t, s); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the session still has work, or a ticket, or a command")
		}
	}
}

// wakeUp lets a paused worker go on, and sees that it finds out.
func (l *lane) wakeUp(t *testing.T, s *story, b *blow) {
	t.Helper()
	if b.harm != paused {
		return
	}
	close(b.wake)
	b.worker.Resume()
	for deadline := time.Now().Add(patience); b.worker.turns(s.session) == b.turns; {
		if time.Now().After(deadline) {
			t.Fatalf("%s does not say how its turn in %s ended", b.worker.name, s.session)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// turns counts how often the worker has told that it is through with a session: in
// good order, because it was taken over, or because the time for a request was over
// when it woke up.
func (w *worker) turns(session string) int {
	told := regexp.MustCompile(`(msg=(turn|"turn handed over") tenant=default session=` + session + ` )|` +
		`(msg="turn broken off" tenant=default session=` + session + ` .*context deadline exceeded)`)
	return len(told.FindAllString(w.Log(), -1))
}

// events reads the log past everybody.
func (l *lane) events(t testing.TB, s *story) ([]eventlog.Frame, []event.Event) {
	t.Helper()
	k := eventlog.Key{Tenant: "default", Session: s.session}
	head, err := l.log.Head(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	var frames []eventlog.Frame
	var all []event.Event
	for f, err := range l.log.Stored(t.Context(), k, head) {
		if err != nil {
			t.Fatal(err)
		}
		events, err := f.Events()
		if err != nil {
			t.Fatal(err)
		}
		frames, all = append(frames, f), append(all, events...)
	}
	return frames, all
}

// judge checks log, fold, tools, viewer and times.
func (l *lane) judge(t *testing.T, s *story, blows []*blow) {
	t.Helper()
	frames, all := l.events(t, s)
	found, _, err := l.auditor.Session(t.Context(), eventlog.Key{Tenant: "default", Session: s.session})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		t.Errorf("the log is not sound: %s", f)
	}
	fold := folded(t, s.session, all)
	if model := l.models[s.name]; model != nil {
		for _, d := range outcomeOf(fold, model).differences(model) {
			t.Errorf("the outcome is not that of a run in peace: %s", d)
		}
	}
	checkUses(t, fold, l.uses(t, fold))
	checkViewer(t, s, all)
	s.checkOperator(t, fold, all)
	l.checkTakeover(t, blows, frames)
	if t.Failed() {
		tell(t, frames)
	}
}

func folded(t *testing.T, session string, all []event.Event) *event.Session {
	t.Helper()
	s := event.NewSession(session)
	for _, e := range all {
		if err := s.Apply(e); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// checkViewer: who watched all along has seen the public events of the run, and of
// those inside, each once, in order, and then the end.
func checkViewer(t *testing.T, s *story, all []event.Event) {
	t.Helper()
	if s.err != nil {
		t.Errorf("the viewer: %v", s.err)
	}
	i := 0
	for _, e := range all {
		if e.Internal || e.RunID == "" {
			continue
		}
		if i >= len(s.seen) || string(s.seen[i].AppendLine(nil)) != string(e.AppendLine(nil)) {
			t.Errorf("the viewer has seen %d events of the run, then not %s", i, e.AppendLine(nil))
			return
		}
		i++
	}
	if i != len(s.seen) {
		t.Errorf("the viewer has seen %d events, the run has %d", len(s.seen), i)
	}
}

// checkTakeover: whoever was harmed last in the middle of a run was followed by
// another worker within two leases, by the log's own time, not counted what the
// machine is to blame for. A run that is parked waits for somebody else.
func (l *lane) checkTakeover(t *testing.T, blows []*blow, frames []eventlog.Frame) {
	t.Helper()
	if len(blows) == 0 {
		return
	}
	b := blows[len(blows)-1]
	due := b.fell  // when there was something to do
	ended := false // before the blow
	for _, f := range frames {
		events, _ := f.Events()
		for _, e := range events {
			var status event.RunStatusData
			switch after := f.Time.After(b.fell); {
			case e.Type.Terminal() && !after:
				ended = true
			case e.Type == event.RunStatus && !after && e.Into(&status) == nil && status.ExpiresAt != nil:
				due = due.Add(time.Hour) // nobody has to come before somebody settles it
			case e.Type == event.SessionClaimed && !after:
				due = b.fell
			case e.Type == event.SessionClaimed && after:
				took, lost := f.Time.Sub(due), l.pulse.lost(b.fell, f.Time)
				if took > 2*lease+lost {
					t.Errorf("%s: the takeover took %v, more than two leases and the %v that the machine cost", b.attack, took, lost)
				}
				t.Logf("%s: the takeover came %v after the blow", b.attack, f.Time.Sub(b.fell).Round(time.Millisecond))
				return
			}
		}
	}
	if !ended {
		t.Errorf("%s: nobody took over", b.attack)
	}
}

func tell(t *testing.T, frames []eventlog.Frame) {
	t.Helper()
	for _, f := range frames {
		for line := range f.Lines() {
			t.Logf("%s %s %.300s", f.Time.Format("05.000"), f.ID[len(f.ID)-6:], line)
		}
	}
}
