package crashtest

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/audit"
	"github.com/runlog-dev/runlog/event"
)

// lanes is how many installations are attacked side by side. Most of the time
// goes into waiting for leases to run out.
const lanes = 4

// What a worker stores besides frames.
const (
	answered = "$JS.API.STREAM.MSG.DELETE.INBOX"
	released = "$JS.API.STREAM.MSG.DELETE.JOBS"
	snapshot = "$KV.SNAPSHOTS."
	timer    = "timer.at."
)

// turning are the writes at which a run takes a turn: the first of every kind
// of event, and what is stored besides.
var turning = []point{
	{kind: event.SessionCreated, n: 1}, {kind: event.StepStarted, n: 1},
	{kind: event.ReasoningStarted, n: 1}, {kind: event.ReasoningDelta, n: 2}, {kind: event.ReasoningCompleted, n: 1},
	{kind: event.MessageStarted, n: 1}, {kind: event.TextDelta, n: 1}, {kind: event.ToolStarted, n: 1},
	{kind: event.ToolArgsDelta, n: 1}, {kind: event.ToolArgs, n: 1}, {kind: event.StepCompleted, n: 1},
	{kind: event.ToolRunning, n: 1}, {kind: event.ToolProgress, n: 1}, {kind: event.ToolCompleted, n: 1}, {kind: event.ToolCompleted, n: 2},
	{kind: event.StepStarted, n: 2}, {kind: event.ToolRunning, n: 3},
	{kind: event.ArtifactStarted, n: 1}, {kind: event.ArtifactCompleted, n: 1}, {kind: event.ToolCompleted, n: 3},
	{kind: event.RunCompleted, n: 1}, {kind: event.SessionReleased, n: 1},
	{on: answered, n: 1}, {on: released, n: 1}, {on: snapshot, n: 1},
}

// waking are those at which it matters most that a worker does not go on where it
// was when it wakes up.
var waking = []point{
	{kind: event.SessionCreated, n: 1}, {kind: event.TextDelta, n: 1}, {kind: event.ToolRunning, n: 1},
	{kind: event.ToolCompleted, n: 1}, {kind: event.RunCompleted, n: 1}, {on: answered, n: 1}, {on: released, n: 1},
}

// first is what always runs: workers killed at the turning points, paused where
// it matters most, and while runs wait.
func first() []attack {
	var list []attack
	for i, p := range turning {
		list = append(list, attack{harm: killed, at: p, when: []moment{before, stored}[i%2]})
	}
	for _, p := range waking {
		list = append(list, attack{harm: paused, at: p, when: stored})
	}
	for _, p := range waiting {
		list = append(list, attack{plot: "gated", harm: killed, at: p, when: before})
	}
	for _, p := range []point{{on: timer, n: 1}, {kind: event.ApprovalResolved, n: 1}} {
		list = append(list, attack{plot: "expiring", harm: killed, at: p, when: before})
	}
	for i, p := range nesting {
		list = append(list, attack{plot: "nested", harm: killed, at: p, when: []moment{before, stored}[i%2]})
	}
	for i, p := range pausing {
		list = append(list, attack{plot: "poor", harm: killed, at: p, when: []moment{before, stored}[i%2]})
	}
	list = append(list, doubts()...)
	for i, c := range commands() {
		list = append(list, attack{plot: c.plot, harm: killed, at: c.at, when: []moment{before, stored}[i%2]})
	}
	return append(list, successions()...)
}

// commands are the points at which a command is on its way.
func commands() []attack {
	var list []attack
	for plot, points := range map[string][]point{
		"cancelled in the text":  {{kind: event.TextDelta, n: 2}, {kind: event.RunCancelled, n: 1}, {on: answered, n: 2}},
		"cancelled in the tools": {{kind: event.ToolProgress, n: 1}, {kind: event.RunCancelled, n: 1}, {on: answered, n: 2}},
		"cancelled from above":   {{kind: event.RunCancelled, n: 1}, {kind: event.RunCancelled, n: 2}, {on: answered, n: 2}},
		"stopped in the text":    {{kind: event.StepCompleted, n: 1}, {kind: event.RunCompleted, n: 1}, {on: answered, n: 2}},
		"steered in the tools":   {{kind: event.MessageCompleted, n: 3}, {on: answered, n: 2}, {kind: event.StepStarted, n: 2}},
	} {
		for _, p := range points {
			list = append(list, attack{plot: plot, at: p})
		}
	}
	return list
}

// second is the rest of what is worth trying at these points: as much of it as
// there is time for.
func second() []attack {
	var list []attack
	both := func(plot string, h harm, points []point) {
		for _, p := range points {
			list = append(list, attack{plot: plot, harm: h, at: p, when: before}, attack{plot: plot, harm: h, at: p, when: stored})
		}
	}
	both("", killed, turning)
	both("", paused, waking)
	both("gated", killed, waiting)
	both("gated", paused, waiting[:3])
	both("expiring", killed, []point{{kind: event.ApprovalRequested, n: 1}, {on: timer, n: 1}, {kind: event.ApprovalResolved, n: 1}})
	both("nested", killed, nesting)
	both("nested", paused, nesting)
	both("poor", killed, pausing)
	both("poor", paused, pausing[:2])
	both("doubted", paused, []point{{kind: event.ToolRunning, n: 1}, {kind: event.ToolCompleted, n: 1}})
	for _, c := range commands() {
		both(c.plot, killed, []point{c.at})
		both(c.plot, paused, []point{c.at})
	}
	return list
}

// waiting are the turning points of a run that waits for people.
var waiting = []point{
	{kind: event.ApprovalRequested, n: 1}, {on: timer, n: 1}, {kind: event.ApprovalResolved, n: 1},
	{on: timer, n: 2}, {kind: event.SessionReleased, n: 1}, {on: released, n: 1},
	{kind: event.SessionClaimed, n: 2}, {on: answered, n: 2},
	{kind: event.ToolRunning, n: 1}, {kind: event.ToolCompleted, n: 1}, {kind: event.ToolCompleted, n: 2},
}

// nesting are those of a run with another one inside.
var nesting = []point{
	{kind: event.RunStarted, n: 2}, {kind: event.StepStarted, n: 2}, {kind: event.ToolRunning, n: 2}, {kind: event.ToolCompleted, n: 2},
	{kind: event.RunCompleted, n: 1}, {kind: event.ToolCompleted, n: 4}, {kind: event.RunCompleted, n: 2},
}

// pausing are those of a run that is out of budget and gets more.
var pausing = []point{
	{kind: event.BudgetExceeded, n: 1}, {on: timer, n: 1}, {kind: event.SessionReleased, n: 1}, {kind: event.SessionClaimed, n: 2},
	{on: answered, n: 2}, {kind: event.StepStarted, n: 2},
}

// doubts are attacks on a tool of which somebody is asked after a crash, and on
// that question and its answer.
func doubts() []attack {
	list := []attack{{plot: "doubted", harm: killed, at: point{kind: event.ToolProgress, n: 1}, when: stored}}
	for _, next := range []attack{
		{harm: killed, at: point{kind: event.ApprovalRequested, n: 1}, when: before},
		{harm: killed, at: point{on: timer, n: 1}, when: before},
		{harm: killed, at: point{kind: event.ApprovalResolved, n: 1}, when: stored},
		{harm: killed, at: point{kind: event.ToolRunning, n: 1}, when: stored},
		{harm: paused, at: point{kind: event.ToolRunning, n: 1}, when: stored},
	} {
		list = append(list, attack{plot: "doubted", harm: killed, at: point{kind: event.ToolRunning, n: 1}, when: stored, again: &next})
	}
	return list
}

// successions are attacks on whoever takes over.
func successions() []attack {
	var list []attack
	for _, first := range []point{{kind: event.TextDelta, n: 1}, {kind: event.ToolRunning, n: 1}, {kind: event.RunCompleted, n: 1}} {
		for _, next := range []attack{
			{harm: killed, at: point{kind: event.SessionClaimed, n: 1}, when: before},
			{harm: killed, at: point{kind: event.SessionClaimed, n: 1}, when: stored},
			{harm: paused, at: point{kind: event.RunRecovered, n: 1}, when: stored},
		} {
			list = append(list, attack{harm: killed, at: first, when: before, again: &next})
		}
	}
	return list
}

// whole is every frame that a run can have.
func whole() []attack {
	var list []attack
	for n := 1; n <= 20; n++ {
		for _, m := range []moment{before, stored} {
			for _, plot := range []string{"gated", "doubted", "poor", "expiring", "nested", "cancelled in the tools", "steered in the tools"} {
				list = append(list, attack{plot: plot, harm: killed, at: point{n: n}, when: m})
			}
		}
	}
	for n := 1; n <= 40; n++ {
		for _, h := range []harm{killed, paused} {
			for _, m := range []moment{before, stored} {
				list = append(list, attack{harm: h, at: point{n: n}, when: m})
			}
		}
	}
	return list
}

// soak is how long the whole matrix is followed by attacks at random, from
// RUNLOG_SOAK; 0 and false if only the sample is to run.
func soak(t *testing.T) (time.Duration, bool) {
	t.Helper()
	v := os.Getenv("RUNLOG_SOAK")
	if v == "" {
		return 0, false
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		t.Fatalf("RUNLOG_SOAK=%q is no duration, such as 10m", v)
	}
	return d, true
}

// spell is how long the second part of the sample may go on.
const spell = 60 * time.Second

// TestCrashMatrix attacks workers at one point after the other. The order is by
// chance, so that attacks follow different ones each time.
func TestCrashMatrix(t *testing.T) {
	must, may := shuffled(first()), shuffled(second())
	length, soaking := soak(t)
	if soaking {
		must, may = shuffled(append(may, append(must, whole()...)...)), nil
	}
	q := &queue{must: must, may: may}
	var all sync.WaitGroup
	for i := range lanes { // not as parallel tests, of which there are no more at once than processors
		all.Go(func() {
			t.Run(fmt.Sprint(i+1), func(t *testing.T) {
				l := startLane(t)
				l.peace(t)
				for a := q.next(); a != nil; a = q.next() {
					l.attack(t, *a, &q.missed)
				}
				for end := time.Now().Add(length); time.Now().Before(end); {
					l.attack(t, random(), &q.missed)
				}
				l.sound(t)
			})
		})
	}
	all.Wait()
	t.Logf("%d attacks, %d of them behind the end of the run; %d for which there was no time", q.taken, q.missed.Load(), len(q.may))
}

func shuffled(list []attack) []attack {
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}

// A queue hands out what must be tried, and then, for a while, what may be.
type queue struct {
	missed atomic.Int32

	mu        sync.Mutex
	must, may []attack
	until     time.Time // the end of what may be
	taken     int
}

func (q *queue) next() *attack {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.until.IsZero() {
		q.until = time.Now().Add(spell)
	}
	list := &q.must
	if len(*list) == 0 && time.Now().Before(q.until) {
		list = &q.may
	}
	if len(*list) == 0 {
		return nil
	}
	a := (*list)[0]
	*list = (*list)[1:]
	q.taken++
	return &a
}

// random attacks a worker at any frame, and often the next one too.
func random() attack {
	one := func(n int) attack {
		return attack{harm: []harm{killed, paused}[rand.IntN(2)], at: point{n: 1 + rand.IntN(n)}, when: []moment{before, stored}[rand.IntN(2)]}
	}
	a := one(32)
	names := slices.Sorted(maps.Keys(plots))
	a.plot = names[rand.IntN(len(names))]
	if a.harm == killed && rand.IntN(2) == 0 {
		b := one(2) // the first frames of a taker, if there is one
		a.again = &b
	}
	return a
}

func (l *lane) attack(t *testing.T, a attack, missed *atomic.Int32) {
	t.Run(strings.ReplaceAll(a.String(), "/", "_"), func(t *testing.T) {
		err := l.run(t, a)
		byChance := a.at.kind == "" && a.at.on == "" && a.at.n > 10 || a.plot != ""
		if errors.Is(err, errMissed) && byChance {
			missed.Add(1) // frames are cut by time, and who is answered fast does not let go
			return
		}
		if err != nil {
			t.Error(err)
		}
	})
}

// peace runs every agent once without an attack: the models of all others.
func (l *lane) peace(t *testing.T) {
	t.Helper()
	for name, p := range plots {
		if len(p.ends) > 0 {
			continue // how far it gets is a matter of chance
		}
		s := l.submit(t, name)
		l.settled(t, s)
		l.judge(t, s, nil)
		_, all := l.events(t, s)
		l.models[name] = outcomeOf(folded(t, s.session, all), nil)
	}
}

// sound checks the whole installation in the end, with the runs that were
// accepted.
func (l *lane) sound(t *testing.T) {
	t.Helper()
	l.whole(t)
	r, err := l.auditor.All(t.Context(), "", func(f audit.Finding) { t.Errorf("in the end: %s", f) })
	if err != nil {
		t.Fatal(err)
	}
	if int(r.Sessions) != l.runs {
		t.Errorf("%d sessions have a log, %d runs were started", r.Sessions, l.runs)
	}
	t.Logf("%+v", r)
}
