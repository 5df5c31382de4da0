// Package scenarios holds runs that every dialect must be able to tell: logs as
// workers write them, made in Go. A dialect's tests encode all of them
// (dialecttest keeps the results), and interop plays them live to published clients.
package scenarios

import (
	"slices"
	"time"

	"github.com/runlog-dev/runlog/event"
)

// A Scenario is a run in which something particular happens.
type Scenario struct {
	Name  string
	About string     // one sentence for whoever reads a transcript
	Ends  event.Type // its terminal event
	// LogOnly: it is more than one run and cannot be played to an invoke.
	LogOnly bool

	play func(*script)
}

// All returns the scenarios in a fixed order.
func All() []Scenario { return slices.Clone(all) }

// Named finds a scenario.
func Named(name string) (Scenario, bool) {
	i := slices.IndexFunc(all, func(s Scenario) bool { return s.Name == name })
	if i < 0 {
		return Scenario{}, false
	}
	return all[i], true
}

// A Step is an event that a worker writes; if Await is set, not before a command
// of that kind has come for the run.
type Step struct {
	Event event.Event
	Await event.Kind
}

// An Invoke is what a scenario is played to.
type Invoke struct {
	RunID     string
	TraceID   string
	CommandID string
	Agent     string
	Messages  []event.InputMessage // the new ones
	Config    *event.RunConfig
	Fold      *event.Session // the session so far; it is advanced by what is played
	// Big is about the size of what is left of a large tool result, in bytes;
	// 0: as in Log.
	Big int
}

// Steps returns what a worker writes after an invoke, without seq, time and
// session, which the log's writer gives. All ids begin with the run's, so that a
// scenario can be played in a session any number of times.
func (s Scenario) Steps(in Invoke) []Step {
	w := &script{in: in, fold: in.Fold, prefix: in.RunID + "_"}
	if w.fold.Seq == 0 {
		w.session(event.SessionCreated, false, event.SessionCreatedData{Agent: in.Agent})
		w.session(event.SessionClaimed, true, event.SessionClaimedData{Worker: "w1", Attempt: 1})
	}
	w.begin()
	s.play(w)
	return w.steps
}

// The ids of Log.
const (
	SessionID = "ses_1"
	RunID     = "run_1"
	TraceID   = "4bf92f3577b34da6a3ce929d0e0e4736"
	Agent     = "demo"
)

// Log returns the scenario as a whole log that folds: session ses_1, run run_1,
// one event a millisecond.
func (s Scenario) Log() []event.Event {
	w := &script{fold: event.NewSession(SessionID), in: Invoke{RunID: RunID, TraceID: TraceID, CommandID: RunID + ".invoke", Agent: Agent,
		Messages: []event.InputMessage{{MessageID: "msg_user", Role: event.RoleUser, Parts: []event.Part{event.TextPart("Begin: " + s.Name)}}}}}
	w.session(event.SessionCreated, false, event.SessionCreatedData{Agent: Agent})
	w.session(event.SessionClaimed, true, event.SessionClaimedData{Worker: "w1", Attempt: 1})
	w.begin()
	s.play(w)
	w.session(event.SessionReleased, true, event.SessionReleasedData{Worker: "w1"})
	log := make([]event.Event, len(w.steps))
	base := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for i, step := range w.steps {
		e := step.Event
		e.Seq = event.Seq(i + 1)
		e.SessionID, e.ID, e.Time = SessionID, SessionID+"-"+e.Seq.String(), event.At(base.Add(time.Duration(i)*time.Millisecond))
		log[i] = e
	}
	return log
}

// Fold folds a log.
func Fold(log []event.Event) (*event.Session, error) {
	s := event.NewSession(SessionID)
	for _, e := range log {
		if err := s.Apply(e); err != nil {
			return nil, err
		}
	}
	return s, nil
}
