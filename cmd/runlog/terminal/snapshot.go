package terminal

import (
	"fmt"

	"github.com/runlog-dev/runlog/event"
)

// snapshot shows a whole conversation, such that the events after it go on from
// there.
func (v *textView) snapshot(e event.Event, s event.Session) {
	calls := map[string]*event.ToolCall{}
	for _, c := range s.ToolCalls {
		calls[c.CallID] = c
	}
	for _, m := range s.Messages {
		v.message(e, m, calls)
	}
	for _, a := range s.Artifacts {
		if a.Status == event.Completed {
			v.line(v.artifactLine(a.Name, a.MediaType, a.Bytes, a.URL))
		}
	}
	for _, r := range s.Runs {
		v.oldRun(r)
	}
	v.redraw()
}

func (v *textView) reset(e event.Event, s event.Session) {
	v.tools = tools{byID: map[string]*toolCall{}}
	clear(v.artifacts)
	clear(v.said)
	v.remark(fmt.Sprintf("the events up to %d are not kept any more; this is the conversation so far", e.Seq))
	v.snapshot(e, s)
}

func (v *textView) message(e event.Event, m *event.Message, calls map[string]*event.ToolCall) {
	if m.Role != event.RoleAssistant {
		v.userMessage(m.Role, event.TextOf(event.Values(m.Parts)))
		return
	}
	for _, p := range m.Parts {
		switch p.Type {
		case event.PartReasoning:
			v.utterance(p.ReasoningID).thought = true
			v.speak(p.ReasoningID, p.Text)
			v.endLine()
		case event.PartText:
			v.utterance(m.MessageID).begun = true
			v.speak(m.MessageID, p.Text)
		case event.PartToolCall:
			if c := calls[p.CallID]; c != nil {
				v.oldCall(e, c)
			}
		}
	}
	if m.Status == event.Completed {
		delete(v.said, m.MessageID)
		v.endLine()
		v.speaking = ""
	}
}

// oldCall shows a call that began before the snapshot.
func (v *textView) oldCall(e event.Event, c *event.ToolCall) {
	e.RunID = c.RunID
	call := v.call(e, c.CallID, c.Name)
	call.args, call.state = c.Args, string(c.Status)
	switch c.Status {
	case event.Completed:
		v.closed(e, call, c.Status, contentLine(c.Content, 80))
	case event.Failed:
		v.closed(e, call, c.Status, fmt.Sprintf("%s: %s", c.Code, oneLine(c.Message, 200)))
	default:
		v.changed(call)
	}
}

// oldRun tells how a run of the past ended, or remembers that it goes on.
func (v *textView) oldRun(r *event.Run) {
	if r.StartedAt != nil {
		v.started[r.RunID] = *r.StartedAt
	}
	if !r.Status.Terminal() {
		return
	}
	line := fmt.Sprintf("run %s %s", r.RunID, r.Status)
	if r.Error != nil {
		line += fmt.Sprintf(": %s: %s", r.Error.Code, r.Error.Message)
	}
	v.remark(line)
}
