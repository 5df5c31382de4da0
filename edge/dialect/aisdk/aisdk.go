// Package aisdk is the dialect of the Vercel AI SDK's UI message stream: a run as
// the chunks of one assistant's message, whose id is the run's.
//
//   - Clients come back by asking for all of the run that is under way, and refuse
//     what continues a part that they have not seen begin. So the dialect follows
//     its run from the first event.
//   - A run that waits for an approval or for a tool of the client's finishes
//     (tool-calls) and starts again, with the same message id, when it goes on.
//   - A discarded attempt is taken back by reset-step; what stood in the step
//     besides the model's words is said again.
//   - Clients refuse chunks that they do not know. What the protocol has no word
//     for is data-…, of which one with the same name and id replaces the last.
package aisdk

import (
	"encoding/json"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
)

// Dialect is the AI SDK's stream. The zero value tells all of a run.
type Dialect struct {
	dialect.Quiet

	Run string // empty: whichever run the log tells of
	// From is the last event that the client has, from an earlier stream whose
	// message it goes on with.
	From event.Seq
}

// Name is aisdk.
func (Dialect) Name() string { return "aisdk" }

// Begin returns an encoder.
func (d Dialect) Begin() dialect.Encoder { return &encoder{run: d.Run, from: d.From} }

// Event encodes an event as if it were the first.
func (d Dialect) Event(e event.Event, line []byte, to dialect.Audience) []dialect.Message {
	return d.Begin().Next(e, line, to)
}

// Snapshot tells the run under way, or the last one, from a fold.
func (d Dialect) Snapshot(kind dialect.Kind, s *event.Session, to dialect.Audience) []dialect.Message {
	return d.Begin().Snapshot(kind, s, to)
}

// Lost says what the AI SDK has no word for. message.started and tool.running are
// told of sub-agents alone: a text begins with its first delta, and a call whose
// input is there is taken to run.
func (Dialect) Lost() map[event.Type]string {
	return map[event.Type]string{
		event.SessionCreated: "a chat is known by its id",
		event.RunQueued:      "the client has sent it",
		event.RunRecovered:   "shows only in what is discarded",
	}
}

// An encoder knows what a run has open, and what it is made of besides text.
type encoder struct {
	run    string // that is followed
	from   event.Seq
	parked bool

	text  string // the message whose text is open
	part  string // the id of its text part
	texts int    // parts of that message so far
	calls map[string]*call
	state json.RawMessage
	acts  dialect.Activities

	placed map[string]bool // data parts that stand before this step
	inStep []datum         // what was placed in this step
}

type call struct {
	name   string
	client bool // the client runs it
	asked  bool // somebody has to approve it
}

// A datum is a part that is no words of the model's.
type datum struct {
	key string // empty: it is never replaced
	dialect.Message
}

func (x *encoder) forget() {
	*x = encoder{run: x.run, from: x.from, calls: map[string]*call{}, acts: dialect.Activities{}, placed: map[string]bool{}, state: x.state}
}

// Next tells of an event. Internal ones have no place here, whoever reads.
func (x *encoder) Next(e event.Event, _ []byte, _ dialect.Audience) []dialect.Message {
	if e.Internal {
		return nil
	}
	if x.calls == nil {
		x.forget()
	}
	var list []dialect.Message
	if e.Agent != "" {
		list = subagent(e)
	} else if tell := tellers[e.Type]; tell != nil {
		list = tell(x, e)
	}
	if e.Seq <= x.from {
		return nil
	}
	return list
}

// Snapshot tells a run anew.
func (x *encoder) Snapshot(_ dialect.Kind, s *event.Session, to dialect.Audience) []dialect.Message {
	run := dialect.Shown(s, x.run)
	if run == nil {
		return nil
	}
	x.forget()
	x.from = 0
	return dialect.Retold(x, s, run, to)
}

type teller func(*encoder, event.Event) []dialect.Message

var tellers = map[event.Type]teller{
	event.RunStarted:         dialect.Tell((*encoder).runStarted),
	event.RunStatus:          dialect.Tell((*encoder).runStatus),
	event.RunCompleted:       dialect.Tell((*encoder).runCompleted),
	event.RunFailed:          dialect.Tell((*encoder).runFailed),
	event.RunCancelled:       dialect.Tell((*encoder).runCancelled),
	event.StepStarted:        (*encoder).stepStarted,
	event.StepCompleted:      (*encoder).stepCompleted,
	event.TextDelta:          (*encoder).textDelta,
	event.MessageCompleted:   dialect.Tell((*encoder).messageCompleted),
	event.MessageDiscarded:   (*encoder).discarded,
	event.ReasoningStarted:   dialect.Tell((*encoder).reasoningStarted),
	event.ReasoningDelta:     (*encoder).reasoningDelta,
	event.ReasoningCompleted: dialect.Tell((*encoder).reasoningCompleted),
	event.ToolStarted:        dialect.Tell((*encoder).toolStarted),
	event.ToolArgsDelta:      (*encoder).argsDelta,
	event.ToolArgs:           dialect.Tell((*encoder).toolArgs),
	event.ToolProgress:       dialect.Tell((*encoder).toolProgress),
	event.ToolCompleted:      dialect.Tell((*encoder).toolCompleted),
	event.ToolFailed:         dialect.Tell((*encoder).toolFailed),
	event.ApprovalRequested:  dialect.Tell((*encoder).approvalRequested),
	event.ApprovalResolved:   dialect.Tell((*encoder).approvalResolved),
	event.ArtifactStarted:    dialect.Tell((*encoder).artifactStarted),
	event.ArtifactProgress:   dialect.Tell((*encoder).artifactProgress),
	event.ArtifactCompleted:  dialect.Tell((*encoder).artifactCompleted),
	event.StateSnapshot:      dialect.Tell((*encoder).stateSnapshot),
	event.StateDelta:         dialect.Tell((*encoder).stateDelta),
	event.ActivitySnapshot:   dialect.Tell((*encoder).activitySnapshot),
	event.ActivityDelta:      dialect.Tell((*encoder).activityDelta),
	event.BudgetExceeded:     (*encoder).budgetExceeded,
	event.Custom:             dialect.Tell((*encoder).custom),
}
