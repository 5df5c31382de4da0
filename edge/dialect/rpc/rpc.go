// Package rpc is the dialect of POST /rpc: a run as JSON-RPC 2.0 notifications,
// each one line.
//
//	{"jsonrpc":"2.0","method":"agent.event","params":{"type":…,"event_id":…,"trace_id":…,"session_id":…,"run_id":…,"created_at":…, …}}
//
// event_id is the cursor: agent.attach goes on after it. By type, params also has
//
//	session_started    agent, resumes?                          the run begins
//	model_call         status started: step, model; completed: step, finish_reason, usage
//	message_before     message_id, delta                        text as it is written, by token or by sentence
//	message_after      message_id, text, parts                  the whole message
//	message_discarded  message_id, reason                       forget its text: the model starts anew
//	tool_call          call_id, name, arguments                 an object, or a text if the model wrote none
//	tool_result        call_id, name, status completed or failed, content, structured?, error?, truncated?, artifact?
//	event              name, data                               what has no type of its own: reasoning, progress, state, artifacts, approvals, …
//	heartbeat          status, elapsed_ms                       the run is alive and silent
//	error              code, message, retryable                 why the run failed; session_finished follows
//	session_finished   status completed, failed or cancelled, finish_reason?, usage?, by?, reason?
//	snapshot           session                                  what was asked for is no longer kept: start from this
//
// What sub-agents do has their run_id and agent.
package rpc

import (
	"encoding/json"
	"strings"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
)

// Dialect is the dialect of one stream. Session, Run and Trace are for what is
// no event of the log: heartbeats and snapshots.
type Dialect struct {
	dialect.Quiet // but for Heartbeat, which moves the cursor, too

	Session, Run, Trace string
	Sentences           bool // text comes by sentence
}

// Name is rpc.
func (Dialect) Name() string { return "rpc" }

// Lost says what is not told.
func (d Dialect) Lost() map[event.Type]string {
	return map[event.Type]string{
		event.SessionCreated:   "a session is known by its id",
		event.MessageStarted:   "the first message_before says it",
		event.ToolStarted:      "told when the arguments are complete",
		event.ToolArgsDelta:    "told when the arguments are complete",
		event.ReasoningStarted: "the first delta says it",
	}
}

type encoder func(event.Event) []dialect.Message

var encoders = map[event.Type]encoder{
	event.RunQueued:          generic,
	event.RunStarted:         ofRun(runStarted),
	event.RunRecovered:       generic,
	event.RunStatus:          generic,
	event.RunCompleted:       ofRun(runCompleted),
	event.RunFailed:          ofRun(runFailed),
	event.RunCancelled:       ofRun(runCancelled),
	event.StepStarted:        dialect.On(stepStarted),
	event.StepCompleted:      dialect.On(stepCompleted),
	event.TextDelta:          textDelta,
	event.MessageCompleted:   dialect.On(messageCompleted),
	event.MessageDiscarded:   dialect.On(messageDiscarded),
	event.ReasoningDelta:     generic,
	event.ReasoningCompleted: generic,
	event.ToolArgs:           dialect.On(toolArgs),
	event.ToolRunning:        generic,
	event.ToolProgress:       generic,
	event.ToolCompleted:      dialect.On(toolResult),
	event.ToolFailed:         dialect.On(toolResult),
	event.ApprovalRequested:  generic,
	event.ApprovalResolved:   generic,
	event.ArtifactStarted:    generic,
	event.ArtifactProgress:   generic,
	event.ArtifactCompleted:  generic,
	event.StateSnapshot:      generic,
	event.StateDelta:         generic,
	event.ActivitySnapshot:   generic,
	event.ActivityDelta:      generic,
	event.BudgetExceeded:     generic,
	event.Custom:             dialect.On(custom),
}

// Event tells of an event. Internal ones have no place here, whoever reads.
func (d Dialect) Event(e event.Event, _ []byte, _ dialect.Audience) []dialect.Message {
	if e.Internal || d.Sentences && e.Type == event.TextDelta {
		return nil
	}
	if encode := encoders[e.Type]; encode != nil {
		return encode(e)
	}
	return nil
}

// ofRun is for what begins and ends a run: a sub-agent's is part of another one.
func ofRun[D any](encode func(event.Event, D) []dialect.Message) encoder {
	typed := dialect.On(encode)
	return func(e event.Event) []dialect.Message {
		if e.Agent != "" {
			return generic(e)
		}
		return typed(e)
	}
}

// firstID is the id of the first line of two that an event leads to; the last has the event's.
func firstID(e event.Event) string { return e.ID + ".0" }

// Cursor is the position that an event_id stands for; a bare position is one too.
func Cursor(eventID string) string { return eventID[strings.LastIndexByte(eventID, '-')+1:] }

// A line is a notification in the making.
type line = dialect.Object

const timeLayout = "2006-01-02T15:04:05.000000Z07:00"

func begin(kind string, e event.Event) line { return beginAs(kind, e, e.ID) }

func beginAs(kind string, e event.Event, id string) line {
	o := append(make(line, 0, 320+len(e.Data)), `{"jsonrpc":"2.0","method":"agent.event","params":{`...)
	o = o.Text("type", kind).Text("event_id", id).Text("trace_id", e.TraceID).Text("session_id", e.SessionID).Some("run_id", e.RunID).Some("agent", e.Agent)
	o = append(o, `,"created_at":"`...)
	o = e.Time.UTC().AppendFormat(o, timeLayout)
	return append(o, '"')
}

func alone(o line) []dialect.Message { return o.Close().One("") }

// generic tells of an event by its name.
func generic(e event.Event) []dialect.Message {
	return alone(begin("event", e).Text("name", string(e.Type)).Raw("data", e.Data))
}

func custom(e event.Event, d event.CustomData) []dialect.Message {
	return alone(begin("event", e).Text("name", d.Name).Raw("data", d.Value))
}

// Heartbeat moves the cursor no further than the stream has got.
func (d Dialect) Heartbeat(h dialect.Heartbeat) []dialect.Message {
	e := event.Event{SessionID: d.Session, RunID: d.Run, TraceID: d.Trace, Time: h.Time}
	return alone(beginAs("heartbeat", e, d.Session+"-"+h.At).Text("status", string(h.Status)).Value("elapsed_ms", h.ElapsedMS))
}

// Snapshot is the fold.
func (d Dialect) Snapshot(_ dialect.Kind, s *event.Session, _ dialect.Audience) []dialect.Message {
	e := event.Event{ID: event.NameIn(s.SessionID, s.Seq, s.Book.Epoch), SessionID: s.SessionID, RunID: d.Run, TraceID: d.Trace, Time: s.CreatedAt}
	return alone(begin("snapshot", e).Raw("session", json.RawMessage(s.EncodePublic())))
}
