// Package agui is the dialect AG-UI 1.0 (and what clients before it know): a run
// as RUN_STARTED … RUN_FINISHED or RUN_ERROR, one JSON object per message.
//
// Clients check what they read: what is opened is closed once, a run ends with
// nothing open, an absent member is left out and never null. So:
//
//   - What closes is told from the log's closers. The log closes everything before
//     a run's end, except what a discarded attempt had open.
//   - A discarded attempt is closed and then taken out of the conversation by
//     MESSAGES_SNAPSHOT, since AG-UI has no word for taking something back.
//   - A run that waits for an approval or for a tool of the client's ends for AG-UI
//     (outcome interrupt or success) and begins again when it goes on.
//   - What comes from the client (events with a command_id, and all messages that
//     are not the model's) is told to those who look at a session, and not to the
//     client that follows the run it has asked for: it has them.
//
// Names and ids are the log's: threadId is the session, a tool's result has the
// message id <call id>-result.
package agui

import (
	"bytes"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
)

// protocol is the version that RUN_STARTED names to clients which name theirs.
const protocol = "1.0"

// Dialect is AG-UI. The zero value tells a session's runs to a current client.
type Dialect struct {
	dialect.Quiet // clients refuse what they do not know

	Run string // the run whose client reads; empty: somebody looks at the session
	As  string // what that client calls it; empty: as the log does
	Old bool   // the client is from before 1.0
}

// Name is agui.
func (Dialect) Name() string { return "agui" }

// Lost says what AG-UI has no word for.
func (Dialect) Lost() map[event.Type]string {
	return map[event.Type]string{
		event.SessionCreated:    "a thread is known by its id",
		event.RunQueued:         "a run that waits has not started",
		event.RunRecovered:      "shows only in what is discarded",
		event.ToolRunning:       "a call whose arguments have ended is taken to run",
		event.ApprovalRequested: "told as an interrupt once the run is parked",
		event.ApprovalResolved:  "shows when the run goes on",
	}
}

type encoder func(Dialect, event.Event) []dialect.Message

// encoders has the types that their event alone can tell.
var encoders = map[event.Type]encoder{
	event.RunStarted:         dialect.Tell(runStarted),
	event.RunCompleted:       dialect.Tell(runCompleted),
	event.StepStarted:        dialect.Tell(stepStarted),
	event.StepCompleted:      dialect.Tell(stepCompleted),
	event.MessageStarted:     dialect.Tell(messageStarted),
	event.TextDelta:          textDelta,
	event.MessageCompleted:   dialect.Tell(messageCompleted),
	event.ReasoningStarted:   dialect.Tell(reasoningStarted),
	event.ReasoningDelta:     reasoningDelta,
	event.ReasoningCompleted: dialect.Tell(reasoningCompleted),
	event.ToolStarted:        dialect.Tell(toolStarted),
	event.ToolArgsDelta:      toolArgsDelta,
	event.ToolArgs:           dialect.Tell(toolArgs),
	event.ToolProgress:       custom,
	event.ToolCompleted:      dialect.Tell(toolEnded),
	event.ArtifactStarted:    custom,
	event.ArtifactProgress:   custom,
	event.ArtifactCompleted:  custom,
	event.StateSnapshot:      dialect.Tell(stateSnapshot),
	event.StateDelta:         dialect.Tell(stateDelta),
	event.ActivitySnapshot:   dialect.Tell(activitySnapshot),
	event.BudgetExceeded:     custom,
	event.Custom:             dialect.Tell(customOwn),
}

// Event tells of an event. Internal ones have no place here, whoever reads.
func (d Dialect) Event(e event.Event, _ []byte, _ dialect.Audience) []dialect.Message {
	if e.Internal {
		return nil
	}
	if encode := encoders[e.Type]; encode != nil {
		return encode(d, e)
	}
	return nil
}

// Folds says which events need the session before them: those that close what is
// open, and those about a run that may have been waiting or never begun.
func (d Dialect) Folds(e event.Event) bool {
	if e.Internal {
		return false
	}
	switch e.Type {
	case event.MessageDiscarded, event.RunFailed, event.RunCancelled, event.ToolFailed, event.ActivityDelta:
		return true
	case event.ToolCompleted:
		return e.CommandID != ""
	case event.RunStatus:
		return bytes.Contains(e.Data, []byte("waiting_"))
	case event.RunCompleted:
		return bytes.Contains(e.Data, []byte(`"finish_reason":"stopped"`))
	}
	return false
}

// own reports whether an event belongs to a run of a client's, and not to that of
// a sub-agent, whose events name it.
func own(e event.Event) bool { return e.Agent == "" }

// said reports whether an event repeats what a client has sent: whoever follows
// the run that it asked for has it.
func (d Dialect) said(e event.Event) bool { return d.Run != "" && e.CommandID != "" }
