package agui

import (
	"encoding/json"
	"slices"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
)

// EventAfter tells of an event that follows a session.
func (d Dialect) EventAfter(before *event.Session, e event.Event, _ []byte, _ dialect.Audience) []dialect.Message {
	a := after{d, e, before}
	switch e.Type {
	case event.MessageDiscarded:
		return dialect.Decoded(e, a.discarded)
	case event.RunStatus:
		return dialect.Decoded(e, a.status)
	case event.ToolCompleted, event.ToolFailed:
		return dialect.Decoded(e, a.answered)
	case event.RunCompleted:
		return dialect.Decoded(e, a.completed)
	case event.RunFailed:
		return dialect.Decoded(e, a.runFailed)
	case event.RunCancelled:
		return dialect.Decoded(e, a.cancelled)
	case event.ActivityDelta:
		return dialect.Decoded(e, a.activity)
	}
	return nil
}

// after is an event with the session before it.
type after struct {
	Dialect
	e      event.Event
	before *event.Session
}

// discarded closes what the attempt had open and takes it out of the conversation.
func (a after) discarded(d event.MessageDiscardedData) []dialect.Message {
	var list []dialect.Message
	gone := map[string]bool{d.MessageID: true}
	parts := a.before.Book.Reasoning
	m := a.before.MessageByID(d.MessageID)
	if m != nil {
		parts = m.Parts
	}
	for _, p := range parts {
		if p.Type == event.PartReasoning && !p.Internal {
			gone[p.ReasoningID] = true
			if p.Streaming {
				list = append(list, endReasoning(a.e, p.ReasoningID)...)
			}
		}
	}
	for _, c := range a.before.CallsOf(d.MessageID) {
		gone[resultID(c.CallID)] = true
		if c.Streaming && !c.Internal {
			list = append(list, begin("TOOL_CALL_END", a.e).Text("toolCallId", c.CallID).Message(""))
		}
	}
	if m != nil && m.Status == event.Streaming {
		list = append(list, begin("TEXT_MESSAGE_END", a.e).Text("messageId", d.MessageID).Message(""))
	}
	if m == nil && len(parts) == 0 {
		return list // nothing was shown
	}
	stands := slices.DeleteFunc(messagesOf(a.before), func(m message) bool { return gone[m.ID] })
	if !slices.ContainsFunc(stands, func(m message) bool { return m.Role == "reasoning" }) {
		stands = append(stands, emptied(gone, parts)...)
	}
	f := object("MESSAGES_SNAPSHOT").Value("messages", noneNil(stands))
	return append(list, f.Message(""))
}

// emptied is reasoning that was taken back, without its text: clients keep theirs
// unless a snapshot has some.
func emptied(gone map[string]bool, parts []*event.Part) (list []message) {
	for _, p := range parts {
		if gone[p.ReasoningID] && p.Type == event.PartReasoning {
			list = append(list, message{ID: p.ReasoningID, Role: "reasoning", Content: new(string)})
		}
	}
	return list
}

// waited reports that the run was parked: for AG-UI it had ended.
func (a after) waited() bool {
	r := a.before.Run(a.e.RunID)
	return r != nil && r.ExpiresAt != nil && own(a.e)
}

// status tells of a run that is parked, and of one that goes on.
func (a after) status(d event.RunStatusData) []dialect.Message {
	switch {
	case !own(a.e):
		return nil
	case d.ExpiresAt != nil && !a.waited():
		return a.parks().One("")
	case d.ExpiresAt == nil && a.waited():
		return a.resumes()
	}
	return nil
}

// parks ends the run for AG-UI: with what somebody must say to it, or with the
// calls that the client has to run.
func (a after) parks() dialect.Object {
	f := a.run(begin("RUN_FINISHED", a.e), a.e)
	if list := a.interrupts(); len(list) > 0 {
		return f.Value("outcome", interrupted{"interrupt", list})
	}
	if a.Old {
		return f
	}
	var pending []string
	for _, c := range a.before.ToolCalls {
		if c.RunID == a.e.RunID && !c.Done() && !c.Internal {
			pending = append(pending, c.CallID)
		}
	}
	return f.Value("outcome", success{"success", pending})
}

type (
	success struct {
		Type    string   `json:"type"`
		Pending []string `json:"pendingToolCallIds,omitempty"`
	}
	interrupted struct {
		Type       string      `json:"type"`
		Interrupts []interrupt `json:"interrupts"`
	}
	interrupt struct {
		ID        string          `json:"id"`
		Reason    string          `json:"reason"`
		Message   string          `json:"message,omitempty"`
		Call      string          `json:"toolCallId,omitempty"`
		Schema    json.RawMessage `json:"responseSchema,omitempty"`
		ExpiresAt string          `json:"expiresAt,omitempty"`
		Metadata  argsHash        `json:"metadata"`
	}
	argsHash struct {
		ArgsSHA256 string `json:"args_sha256"`
	}
)

// answerSchema is what the payload of a resume entry may be; an entry that is
// resolved approves, unless it says approved: false.
var answerSchema = json.RawMessage(`{"type":"object","properties":{"approved":{"type":"boolean"},"reason":{"type":"string"}}}`)

func (a after) interrupts() (list []interrupt) {
	for _, p := range a.before.Approvals {
		if p.RunID != a.e.RunID {
			continue
		}
		i := interrupt{ID: p.CallID, Reason: "tool_call", Schema: answerSchema, ExpiresAt: p.ExpiresAt.UTC().Format("2006-01-02T15:04:05.000Z"), Metadata: argsHash{p.ArgsSHA256}}
		if c := a.before.Call(p.CallID); c != nil && !c.Internal {
			i.Message, i.Call = "Allow "+c.Name+"?", c.CallID
		}
		list = append(list, i)
	}
	return list
}

// resumes begins the run again, with the results that came while it was parked.
func (a after) resumes() []dialect.Message {
	list := []dialect.Message{a.started(a.e, "").Message("")}
	r := a.before.Run(a.e.RunID)
	for _, c := range came(a.before, r) {
		if a.Run == "" || c.Executor != event.ByClient || c.Outcome == event.OutcomeUnknown {
			list = append(list, resultMessage(a.e, dialect.ResultOf(c)))
		}
	}
	return list
}

// came are the calls that got their result while the run was parked.
func came(s *event.Session, r *event.Run) (list []*event.ToolCall) {
	for _, c := range s.CallsOf(r.Book.Answer) {
		outside := c.Executor == event.ByClient || c.Outcome == event.OutcomeDenied || c.Outcome == event.OutcomeCancelled
		if outside && c.Done() && !c.Internal {
			list = append(list, c)
		}
	}
	return list
}

// answered is a result that came from outside: the client that follows its run has sent it.
// Results for a parked run are told when it goes on.
func (a after) answered(r dialect.Result) []dialect.Message {
	if a.waited() || a.Run != "" && a.e.Type == event.ToolCompleted {
		return nil
	}
	return toolEnded(a.Dialect, a.e, r)
}

// ended is what comes before a run's end: its beginning, if it was parked or if
// its own client reads and it never began.
func (a after) ended() (list []dialect.Message, silent bool) {
	if a.waited() {
		return a.resumes(), false
	}
	r := a.before.Run(a.e.RunID)
	if r != nil && r.StartedAt != nil {
		return nil, false
	}
	if a.Run == "" { // another run may be under way
		return nil, true
	}
	return []dialect.Message{a.started(a.e, "").Message("")}, false
}

func (a after) completed(d event.RunCompletedData) []dialect.Message {
	list, _ := a.ended()
	return append(list, runCompleted(a.Dialect, a.e, d)...)
}

func (a after) runFailed(d event.RunFailedData) []dialect.Message {
	if !own(a.e) {
		return begin("SUBAGENT_ERROR", a.e).Text("message", d.Message).Text("code", string(d.Code)).One("")
	}
	list, silent := a.ended()
	if silent {
		return nil
	}
	f := begin("RUN_ERROR", a.e).Text("message", d.Message).Text("code", string(d.Code))
	if d.Retryable {
		f = f.Raw("metadata", json.RawMessage(`{"retryable":true}`))
	}
	return append(list, a.usage(f, d.Usage).Message(""))
}

func (a after) cancelled(d event.RunCancelledData) []dialect.Message {
	if !own(a.e) {
		return begin("SUBAGENT_ERROR", a.e).Text("message", "cancelled").Text("code", "cancelled").One("")
	}
	list, silent := a.ended()
	if silent {
		return nil
	}
	f := a.run(begin("RUN_FINISHED", a.e), a.e)
	if !a.Old {
		f = f.Raw("outcome", json.RawMessage(`{"type":"cancelled"}`))
	}
	return append(list, a.usage(f, d.Usage).Value("result", ending{event.Cancelled, d.By, d.Reason}).Message(""))
}

type ending struct {
	Status event.Status `json:"status"`
	By     string       `json:"by,omitempty"`
	Reason string       `json:"reason,omitempty"`
}

func (a after) activity(d event.ActivityDeltaData) []dialect.Message {
	for _, act := range a.before.Activities {
		if act.ActivityID == d.ActivityID {
			return begin("ACTIVITY_DELTA", a.e).Text("messageId", d.ActivityID).Text("activityType", act.Kind).Raw("patch", d.Patch).One("")
		}
	}
	return nil
}
