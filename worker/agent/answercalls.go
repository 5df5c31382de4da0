package agent

import (
	"slices"
	"strings"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/model"
	"github.com/runlog-dev/runlog/worker/redact"
)

// A callDraft is a tool call in the making.
type callDraft struct {
	id, name string
	index    int
	internal bool
	size     int // encoded
	raw      strings.Builder
	guard    *redact.Stream
}

func (a *answer) startCall(c model.Chunk) error {
	if err := a.closeDraft(""); err != nil {
		return err
	}
	if err := a.start(); err != nil {
		return err
	}
	d := &callDraft{id: c.CallID, name: c.Name, index: len(a.calls), internal: !a.run.emit.tool(c.Name), guard: a.run.Redactor.Stream()}
	if d.id == "" || a.taken(d.id) || event.CheckID("call", d.id) != nil {
		d.id = event.NewID("call")
	}
	a.calls = append(a.calls, d)
	a.parts = append(a.parts, event.Part{Type: event.PartToolCall, CallID: d.id, Internal: d.internal})
	return a.append(d.internal, event.ToolStarted, event.ToolStartedData{
		CallID: d.id, Name: d.name, Index: d.index, MessageID: a.messageID, Executor: a.executor(d.name)})
}

// taken reports whether the session has a call of this id: some servers number
// the calls of every answer from 0.
func (a *answer) taken(id string) (known bool) {
	if slices.ContainsFunc(a.calls, func(c *callDraft) bool { return c.id == id }) {
		return true
	}
	a.run.Journal.Look(func(s *event.Session) { known = s.Call(id) != nil })
	return known
}

func (a *answer) growCall(c model.Chunk) error {
	if c.Index < 0 || c.Index >= len(a.calls) {
		return &model.Error{Code: event.CodeModelError, Message: "the model sent arguments for a tool call that it has not begun", Retryable: true}
	}
	d := a.calls[c.Index]
	if d.size += encodedLen(c.Text); d.size > maxArgs {
		return tooLong("arguments of a tool call", maxArgs)
	}
	d.raw.WriteString(c.Text)
	return a.callDelta(d, d.guard.Write(c.Text))
}

func (a *answer) callDelta(d *callDraft, safe string) error {
	if safe == "" {
		return nil
	}
	if len(a.calls) > 1 { // arguments of parallel calls may interleave
		if err := a.flushPending(); err != nil {
			return err
		}
	}
	return a.gather(safe, func(text string) error {
		return a.append(d.internal, event.ToolArgsDelta, event.ToolArgsDeltaData{CallID: d.id, Delta: text})
	})
}
