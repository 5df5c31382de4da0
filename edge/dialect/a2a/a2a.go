// Package a2a is the dialect of A2A 1.0: a run as the StreamResponse objects of a
// task. A task is a run, a context is a session.
//
//		{"task": …}            what the task is now; every stream of the face begins with it
//		{"statusUpdate": …}    where it stands; what tools do is a message of the status
//		{"artifactUpdate": …}  what it makes
//
//	  - An answer of the model's is an artifact with the message's id, text that is
//	    appended as it comes. An attempt that is taken back leaves it empty, with the
//	    reason in metadata.runlog.discarded, and is not in the task.
//	  - A file is an artifact with a URL. The shared state is the artifact state, a
//	    piece of user interface an artifact with its id, both told whole.
//	  - A run that waits for somebody is TASK_STATE_INPUT_REQUIRED: the message says
//	    what for, in words and as data.
//
// Clients come back by asking for the task as it is, and for what follows. So the
// dialect follows its run, but any fold is as good a beginning as the first event.
package a2a

import (
	"encoding/json"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
)

// Dialect is the dialect of A2A. The zero value tells all tasks of a session.
type Dialect struct {
	dialect.Quiet

	Run  string // the task that a snapshot is of; empty: the one under way, or the last one
	Base string // what URLs of artifacts begin with, such as https://host
	// Answered is the last event that its client knew when it answered: a task
	// that waits no longer than that waits no more.
	Answered event.Seq
}

// Name is a2a.
func (Dialect) Name() string { return "a2a" }

// Begin returns an encoder.
func (d Dialect) Begin() dialect.Encoder { return &encoder{Dialect: d, said: map[string]bool{}} }

// Event encodes an event as if it were the first.
func (d Dialect) Event(e event.Event, line []byte, to dialect.Audience) []dialect.Message {
	return d.Begin().Next(e, line, to)
}

// Snapshot is the task as it is.
func (d Dialect) Snapshot(kind dialect.Kind, s *event.Session, to dialect.Audience) []dialect.Message {
	return d.Begin().Snapshot(kind, s, to)
}

// Lost says what A2A has no word for.
func (Dialect) Lost() map[event.Type]string {
	return map[event.Type]string{
		event.SessionCreated:     "a context is known by its id",
		event.RunQueued:          "a task is submitted until it begins",
		event.RunRecovered:       "shows only in what is discarded",
		event.StepStarted:        "how an agent works is its own business",
		event.StepCompleted:      "how an agent works is its own business",
		event.MessageStarted:     "the first text begins the artifact",
		event.ReasoningStarted:   "peers get results, not thoughts",
		event.ReasoningDelta:     "peers get results, not thoughts",
		event.ReasoningCompleted: "peers get results, not thoughts",
		event.ToolStarted:        "told when the arguments are complete",
		event.ToolArgsDelta:      "told when the arguments are complete",
		event.ToolRunning:        "a call is taken to run",
		event.ApprovalRequested:  "told when the task waits for it",
		event.ArtifactStarted:    "told when it is complete",
		event.ArtifactProgress:   "told when it is complete",
	}
}

// An encoder knows which task was told, which artifact takes text, and what the
// task may have to wait for.
type encoder struct {
	Dialect
	task   string          // that was told
	text   string          // the message whose artifact has begun
	said   map[string]bool // those whose artifacts are complete, and may be taken back
	parked bool
	calls  []*call // open ones
	state  json.RawMessage
	acts   dialect.Activities
}

// Next tells of an event. Internal ones have no place here, whoever reads; of
// sub-agents only what somebody has to answer.
func (x *encoder) Next(e event.Event, _ []byte, _ dialect.Audience) []dialect.Message {
	if e.Internal {
		return nil
	}
	tell := tellers[e.Type]
	if tell == nil {
		return nil
	}
	list := tell(x, e)
	if e.Agent != "" {
		return nil
	}
	return list
}

// Snapshot tells the task, and goes on from there.
func (x *encoder) Snapshot(_ dialect.Kind, s *event.Session, _ dialect.Audience) []dialect.Message {
	run := dialect.Shown(s, x.Run)
	if run == nil && x.Run != "" {
		run = &event.Run{RunID: x.Run, Status: event.Pending}
	}
	if run == nil {
		return nil
	}
	*x = encoder{Dialect: x.Dialect, task: run.RunID, state: s.State, calls: openCalls(s, run)}
	for _, a := range s.Activities {
		if !a.Internal {
			x.keep(a.ActivityData)
		}
	}
	t := x.Task(s, run, AllHistory)
	x.parked = t.Status.State == InputRequired
	x.text, x.said = streaming(s, run), map[string]bool{}
	for _, a := range t.Artifacts {
		x.said[a.ArtifactID] = a.Name == answerName && a.ArtifactID != x.text
	}
	return said("task", t)
}

type teller func(*encoder, event.Event) []dialect.Message

// ofRun is for what begins, parks and ends a run: a sub-agent's is no task.
func ofRun[D any](tell func(*encoder, event.Event, D) []dialect.Message) teller {
	typed := dialect.Tell(tell)
	return func(x *encoder, e event.Event) []dialect.Message {
		if e.Agent != "" {
			return nil
		}
		return typed(x, e)
	}
}

var tellers = map[event.Type]teller{
	event.RunStarted:        ofRun((*encoder).runStarted),
	event.RunStatus:         ofRun((*encoder).runStatus),
	event.RunCompleted:      ofRun((*encoder).runCompleted),
	event.RunFailed:         ofRun((*encoder).runFailed),
	event.RunCancelled:      ofRun((*encoder).runCancelled),
	event.TextDelta:         (*encoder).textDelta,
	event.MessageCompleted:  ofRun((*encoder).messageCompleted),
	event.MessageDiscarded:  dialect.Tell((*encoder).messageDiscarded),
	event.ToolStarted:       dialect.Tell((*encoder).toolStarted),
	event.ToolArgs:          dialect.Tell((*encoder).toolArgs),
	event.ToolProgress:      dialect.Tell((*encoder).toolProgress),
	event.ToolCompleted:     dialect.Tell((*encoder).toolEnded),
	event.ToolFailed:        dialect.Tell((*encoder).toolEnded),
	event.ApprovalRequested: dialect.Tell((*encoder).approvalRequested),
	event.ApprovalResolved:  dialect.Tell((*encoder).approvalResolved),
	event.ArtifactCompleted: ofRun((*encoder).artifactCompleted),
	event.StateSnapshot:     ofRun((*encoder).stateSnapshot),
	event.StateDelta:        ofRun((*encoder).stateDelta),
	event.ActivitySnapshot:  ofRun((*encoder).activitySnapshot),
	event.ActivityDelta:     ofRun((*encoder).activityDelta),
	event.BudgetExceeded:    ofRun((*encoder).budgetExceeded),
	event.Custom:            ofRun((*encoder).custom),
}
