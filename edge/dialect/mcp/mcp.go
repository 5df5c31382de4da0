// Package mcp is the dialect of a call of an agent as an MCP tool: the run as
// JSON-RPC messages of the stream that answers the call.
//
//   - notifications/progress for what happens, if the caller has given a token:
//     progress is the event's seq, message is for people, and _meta has the event's
//     type (dev.runlog/type) and data. Messages of text.delta add up to the text.
//   - elicitation/create for each approval, if the client can ask its user; the id
//     names the call, so that any edge can take the answer.
//   - the response, last: the answer and the files that came of it, with isError
//     where the run has failed or was cancelled. A run that waits for somebody whom
//     this client cannot ask is answered with what it waits for.
//
// The answer is the run's last message, so the dialect follows its run.
package mcp

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
)

// Dialect is the stream of one call.
type Dialect struct {
	dialect.Quiet // but for Heartbeat

	Run   string // empty: whichever run the log tells of
	ID    string // the request's, as JSON
	Token string // the progress token, as JSON; empty: nobody wants to know
	Asks  bool   // the client can ask its user

	// Of a run that was under way when it was called: what it has waited for up
	// to From is over, but for what it waits for until Still (Unix µs).
	From  event.Seq
	Still int64
}

// Name is mcp.
func (Dialect) Name() string { return "mcp" }

// Begin returns an encoder.
func (d Dialect) Begin() dialect.Encoder { return NewCall(d) }

// NewCall returns an encoder that can be asked for the response.
func NewCall(d Dialect) *Call { return &Call{d: d} }

// Event encodes an event as if it were the first.
func (d Dialect) Event(e event.Event, line []byte, to dialect.Audience) []dialect.Message {
	return d.Begin().Next(e, line, to)
}

// Snapshot tells how the run stands by a fold.
func (d Dialect) Snapshot(kind dialect.Kind, s *event.Session, to dialect.Audience) []dialect.Message {
	return d.Begin().Snapshot(kind, s, to)
}

// Lost says what a call's stream has no word for.
func (Dialect) Lost() map[event.Type]string {
	return map[event.Type]string{
		event.SessionCreated:   "a conversation is named by the response",
		event.RunQueued:        "the client has sent it",
		event.MessageStarted:   "the first text says it",
		event.ReasoningStarted: "the first text says it",
		event.ToolStarted:      "told when it runs",
		event.ToolArgsDelta:    "told when the arguments are complete",
	}
}

// A Call is a call in the making.
type Call struct {
	d       Dialect
	run     string
	session string
	trace   string
	calls   map[string]*call
	said    string // the last message, and its text
	text    string
	files   []link
	asks    []event.ApprovalRequestedData
	tools   []string // calls of the client's that have no result
	over    bool
	made    json.RawMessage // the response
	list    []dialect.Message
	retold  bool // events are told anew: progress goes on, and not back
}

type call struct{ name, args string }

var tellers = map[event.Type]func(*Call, event.Event){
	event.RunStarted:        dialect.Take((*Call).runStarted),
	event.RunRecovered:      say("taken over by another worker"),
	event.RunStatus:         dialect.Take((*Call).runStatus),
	event.RunCompleted:      dialect.Take((*Call).runCompleted),
	event.RunFailed:         dialect.Take((*Call).runFailed),
	event.RunCancelled:      dialect.Take((*Call).runCancelled),
	event.StepStarted:       dialect.Take((*Call).stepStarted),
	event.TextDelta:         (*Call).delta,
	event.ReasoningDelta:    (*Call).delta,
	event.MessageCompleted:  dialect.Take((*Call).messageCompleted),
	event.MessageDiscarded:  say("the model starts anew: what it has said so far is void"),
	event.ToolStarted:       dialect.Take((*Call).toolStarted),
	event.ToolArgs:          dialect.Take((*Call).toolArgs),
	event.ToolRunning:       dialect.Take((*Call).toolRunning),
	event.ToolProgress:      dialect.Take((*Call).toolProgress),
	event.ToolCompleted:     dialect.Take((*Call).toolEnded),
	event.ToolFailed:        dialect.Take((*Call).toolEnded),
	event.ApprovalRequested: dialect.Take((*Call).approvalRequested),
	event.ApprovalResolved:  dialect.Take((*Call).approvalResolved),
	event.ArtifactCompleted: dialect.Take((*Call).artifactCompleted),
	event.Custom:            dialect.Take((*Call).custom),
}

// silent are told by nothing but what they change.
var silent = map[event.Type]bool{event.SessionCreated: true, event.RunQueued: true, event.MessageStarted: true, event.ReasoningStarted: true,
	event.ToolArgsDelta: true, event.Raw: true}

// asked are the types that say what somebody has to decide, also for a sub-agent.
var asked = map[event.Type]bool{event.ToolStarted: true, event.ToolArgs: true, event.ApprovalRequested: true, event.ApprovalResolved: true}

func say(text string) func(*Call, event.Event) {
	return func(c *Call, e event.Event) { c.progress(e, text) }
}

// Next tells of an event. What has no words of its own is told by its name, and
// so is what sub-agents do.
func (c *Call) Next(e event.Event, _ []byte, _ dialect.Audience) []dialect.Message {
	if e.Internal || silent[e.Type] || c.over {
		return nil
	}
	if c.calls == nil {
		c.calls = map[string]*call{}
	}
	c.list = nil
	switch tell := tellers[e.Type]; {
	case e.Agent != "" && !asked[e.Type]:
		c.progress(e, e.Agent+": "+string(e.Type))
	case tell != nil:
		tell(c, e)
	default:
		c.progress(e, string(e.Type))
	}
	return c.list
}

// Snapshot takes the place of what is no longer kept: the call goes on with what
// it was about, and is answered if the run is over.
func (c *Call) Snapshot(_ dialect.Kind, s *event.Session, to dialect.Audience) []dialect.Message {
	run := dialect.Shown(s, c.d.Run)
	if run == nil {
		return nil
	}
	*c = Call{d: c.d, retold: true}
	list := dialect.Retold(c, s, run, to)
	c.retold = false
	return list
}

// Over reports whether the call is answered.
func (c *Call) Over() bool { return c.over }

// Response is the answer to the call, once it is over.
func (c *Call) Response() json.RawMessage { return c.made }

// Kept is the size of the last message, and of the response that repeats it.
func (c *Call) Kept() int { return len(c.text) + len(c.made) }

func (c *Call) runStarted(e event.Event, d event.RunStartedData) {
	*c = Call{d: c.d, retold: c.retold, run: e.RunID, session: e.SessionID, trace: e.TraceID, calls: map[string]*call{}}
	c.progress(e, d.Agent+" begins")
}

func (c *Call) stepStarted(e event.Event, d event.StepStartedData) {
	c.progress(e, "step "+strconv.Itoa(d.Step))
}

// delta is a piece of what the model says or thinks.
func (c *Call) delta(e event.Event) {
	if c.d.Token == "" || c.retold {
		return
	}
	if _, text, ok := dialect.Delta(e.Data); ok {
		o := c.notification(e).Raw("message", text).Open("_meta").Text(metaType, string(e.Type)).Close()
		c.list = append(c.list, o.Close().Message(""))
	}
}

func (c *Call) messageCompleted(e event.Event, d event.MessageCompletedData) {
	if d.Role != event.RoleAssistant {
		return
	}
	c.said, c.text = d.MessageID, event.TextOf(d.Parts)
	c.progress(e, "a message is complete")
}

func (c *Call) toolStarted(_ event.Event, d event.ToolStartedData) {
	c.calls[d.CallID] = &call{name: d.Name}
	if d.Executor == event.ByClient {
		c.tools = append(c.tools, d.CallID)
	}
}

func (c *Call) toolArgs(e event.Event, d event.ToolArgsData) {
	if t := c.calls[d.CallID]; t != nil {
		t.args = d.Args
	}
	c.progress(e, d.Name+" is called")
}

func (c *Call) name(callID string) string {
	if t := c.calls[callID]; t != nil {
		return t.name
	}
	return "a tool"
}

func (c *Call) toolRunning(e event.Event, d event.ToolRunningData) {
	c.progress(e, c.name(d.CallID)+" runs")
}

func (c *Call) toolProgress(e event.Event, d event.ToolProgressData) {
	text := c.name(d.CallID)
	if d.Message != "" {
		text += ": " + d.Message
	}
	c.progress(e, text)
}

func (c *Call) toolEnded(e event.Event, r dialect.Result) {
	c.tools = slices.DeleteFunc(c.tools, func(id string) bool { return id == r.CallID })
	if e.Type == event.ToolFailed {
		c.progress(e, r.Name+" has failed: "+r.Message)
	} else {
		c.progress(e, r.Name+" has returned")
	}
}

func (c *Call) approvalRequested(e event.Event, d event.ApprovalRequestedData) {
	c.asks = append(c.asks, d)
	c.progress(e, c.name(d.CallID)+" waits for an approval")
}

func (c *Call) approvalResolved(e event.Event, d event.ApprovalResolvedData) {
	c.asks = slices.DeleteFunc(c.asks, func(a event.ApprovalRequestedData) bool { return a.CallID == d.CallID })
	word := map[event.Decision]string{event.Approved: "approved", event.Denied: "denied"}[d.Decision]
	if word == "" {
		word = string(d.Decision)
	}
	c.progress(e, c.name(d.CallID)+" was "+word+" by "+d.By)
}

func (c *Call) artifactCompleted(e event.Event, d event.ArtifactCompletedData) {
	c.files = append(c.files, link{"resource_link", d.URL, d.Name, d.MediaType, d.Bytes})
	c.progress(e, "wrote "+d.Name)
}

func (c *Call) custom(e event.Event, d event.CustomData) { c.progress(e, d.Name) }
