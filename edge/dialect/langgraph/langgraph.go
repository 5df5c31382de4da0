// Package langgraph is the dialect of LangGraph's run streams: what the stream
// modes that a client asked for say of a run, and how it ended.
//
//	metadata   {run_id, thread_id}                         the run begins, or goes on after it was interrupted
//	values     {messages, …state}                          the whole state, whenever a step has changed it
//	messages   [chunk, {run_id, thread_id, …}]             mode messages-tuple: what the model writes, and results of tools
//	messages/… partial, complete, metadata                 mode messages: the same, each time as whole messages
//	updates    {node: {messages}}                          what the node agent or tools has added
//	custom     {type, data}                                what LangGraph has no word for, by runlog's names
//	tools      {event, toolCallId, name, …}                calls as they begin, get on and end
//	events     {event, name, run_id, data, …}              LangChain's on_… events
//	end        {run_id, status}                            last: success or interrupted
//	error      {error, message}                            last, in its place: the run failed or was cancelled
//
// A run that waits for somebody ends: values and updates say __interrupt__, the
// status is interrupted, and a next run brings the answers. For the log it is one
// run.
//
// A text that was taken back is taken out of the client's list by a message of
// the type remove. Sub-agents' events are custom ones, with agent and run_id.
package langgraph

import (
	"bytes"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
)

// Dialect tells runs in some modes. The zero value tells all runs in the usual
// ones.
type Dialect struct {
	dialect.Quiet // clients watch for pings, and apps see every event that has a name

	Modes Modes
	As    string // what the client calls the run; empty: as the log does
}

// Name is langgraph.
func (Dialect) Name() string { return "langgraph" }

// in reports whether a mode was asked for.
func (d Dialect) in(m Modes) bool {
	if d.Modes == 0 {
		return Usual&m != 0
	}
	return d.Modes&m != 0
}

// Lost says what LangGraph has no word for.
func (Dialect) Lost() map[event.Type]string {
	return map[event.Type]string{
		event.SessionCreated: "a thread is known by its id",
		event.RunQueued:      "the client has sent it",
	}
}

// Event tells of an event. Internal ones have no place here, whoever reads.
func (d Dialect) Event(e event.Event, _ []byte, _ dialect.Audience) []dialect.Message {
	if e.Internal || untold[e.Type] {
		return nil
	}
	if e.Agent != "" {
		return d.generic(e)
	}
	if tell := tellers[e.Type]; tell != nil {
		return tell(d, e)
	}
	return nil
}

var untold = map[event.Type]bool{event.RunQueued: true, event.Raw: true, event.SessionCreated: true}

type teller func(Dialect, event.Event) []dialect.Message

// tellers has the types that their event alone can tell.
var tellers = map[event.Type]teller{
	event.RunStarted:         Dialect.began,
	event.RunRecovered:       Dialect.generic,
	event.RunCompleted:       Dialect.completed,
	event.RunFailed:          dialect.Tell(Dialect.failed),
	event.RunCancelled:       dialect.Tell(Dialect.cancelled),
	event.StepStarted:        dialect.Tell(Dialect.stepStarted),
	event.StepCompleted:      dialect.Tell(Dialect.stepCompleted),
	event.MessageStarted:     dialect.Tell(Dialect.messageStarted),
	event.TextDelta:          Dialect.textDelta,
	event.ReasoningStarted:   Dialect.generic,
	event.ReasoningDelta:     Dialect.generic,
	event.ReasoningCompleted: Dialect.generic,
	event.ToolStarted:        dialect.Tell(Dialect.toolStarted),
	event.ToolProgress:       dialect.Tell(Dialect.toolProgress),
	event.ToolCompleted:      dialect.Tell(Dialect.toolEnded),
	event.ToolFailed:         dialect.Tell(Dialect.toolEnded),
	event.ApprovalRequested:  Dialect.generic,
	event.ApprovalResolved:   Dialect.generic,
	event.ArtifactStarted:    Dialect.generic,
	event.ArtifactProgress:   Dialect.generic,
	event.ArtifactCompleted:  Dialect.generic,
	event.ActivitySnapshot:   Dialect.generic,
	event.ActivityDelta:      Dialect.generic,
	event.BudgetExceeded:     Dialect.generic,
	event.Custom:             dialect.Tell(Dialect.custom),
}

// Folds says which events need the session before them: those after which the
// whole state is told, and those that do not say which message they belong to.
func (d Dialect) Folds(e event.Event) bool {
	if e.Internal {
		return false
	}
	switch e.Type {
	case event.StateSnapshot, event.StateDelta:
		return true
	}
	if e.Agent != "" {
		return false
	}
	switch e.Type {
	case event.RunStatus, event.MessageDiscarded:
		return true
	case event.MessageCompleted:
		return e.CommandID == ""
	case event.RunFailed, event.RunCancelled:
		return d.in(Values)
	case event.RunCompleted:
		return d.in(Values) && !bytes.Contains(e.Data, []byte(`"finish_reason":"stop",`))
	case event.ToolArgsDelta, event.ToolArgs:
		return d.in(Tuples)
	case event.ToolRunning:
		return d.in(Tools | Events)
	case event.TextDelta:
		return d.in(Messages)
	}
	return false
}

// EventAfter tells of an event that follows a session.
func (d Dialect) EventAfter(before *event.Session, e event.Event, _ []byte, _ dialect.Audience) []dialect.Message {
	a := after{d, e, before}
	switch e.Type {
	case event.StateSnapshot:
		return dialect.Decoded(e, a.stateSnapshot)
	case event.StateDelta:
		return dialect.Decoded(e, a.stateDelta)
	case event.RunStatus:
		return dialect.Decoded(e, a.status)
	case event.MessageCompleted:
		return dialect.Decoded(e, a.messageCompleted)
	case event.MessageDiscarded:
		return dialect.Decoded(e, a.discarded)
	case event.RunCompleted, event.RunFailed, event.RunCancelled:
		return append(a.values(messages(before), before.State), tellers[e.Type](d, e)...)
	case event.ToolArgsDelta:
		return dialect.Decoded(e, a.argsDelta)
	case event.ToolArgs:
		return dialect.Decoded(e, a.args)
	case event.ToolRunning:
		return dialect.Decoded(e, a.toolRunning)
	case event.TextDelta:
		return dialect.Decoded(e, a.textDelta)
	}
	return nil
}
