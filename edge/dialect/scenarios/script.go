package scenarios

import (
	"fmt"
	"strconv"

	"github.com/runlog-dev/runlog/event"
)

// A script writes events as a worker does: openers with their index, closers
// with the whole content.
type script struct {
	in     Invoke
	prefix string // of ids
	fold   *event.Session
	steps  []Step
	await  event.Kind
	ids    map[string]int
	run    string // "": the invoke's; else a sub-agent's or another run
	agent  string // the sub-agent's name
	step   int
	// command is what the next events answer.
	command string

	msg     string // the message that the model writes
	last    string // the one before, of an agent that lives elsewhere
	parts   []event.Part
	open    string // reasoning
	thought string
	calls   []*call // of msg
	usage   event.Usage
}

type call struct {
	id, name, args string
	index          int
	internal       bool
	by             event.Executor
}

func (w *script) id(kind string) string {
	if w.ids == nil {
		w.ids = map[string]int{}
	}
	w.ids[kind]++
	return w.prefix + kind + "_" + strconv.Itoa(w.ids[kind])
}

func (w *script) runID() string {
	if w.run != "" {
		return w.run
	}
	return w.in.RunID
}

// add writes an event of the run.
func (w *script) add(t event.Type, data any) { w.put(t, false, w.runID(), data) }

// session writes an event of no run.
func (w *script) session(t event.Type, internal bool, data any) { w.put(t, internal, "", data) }

func (w *script) put(t event.Type, internal bool, run string, data any) {
	e := event.New(t, data)
	e.Internal, e.RunID, e.Agent, e.CommandID = internal, run, w.agent, w.command
	if run != "" {
		e.TraceID = w.in.TraceID
	}
	switch {
	case t == event.RunStarted && run == w.in.RunID:
		e.CommandID = w.in.CommandID
	case t == event.RunQueued:
		e.CommandID = run + ".invoke"
	}
	w.steps = append(w.steps, Step{e, w.await})
	w.await = ""
	e.Seq, e.SessionID = w.fold.Seq+1, w.fold.SessionID
	e.ID = e.SessionID + "-" + e.Seq.String()
	if err := w.fold.Apply(e); err != nil {
		panic(fmt.Sprintf("scenario: %v", err)) // a scenario is a valid log
	}
}

// begin is what every run begins with.
func (w *script) begin() {
	w.add(event.RunStarted, event.RunStartedData{Agent: w.in.Agent, CommandID: w.in.CommandID, Attempt: 1, Config: w.in.Config})
	for _, m := range w.in.Messages {
		w.said(m)
	}
	w.status(event.Running)
}

// said writes a message of the client's.
func (w *script) said(m event.InputMessage) {
	if w.fold.MessageByID(m.MessageID) != nil {
		return
	}
	w.answers(event.MessageCompleted, event.MessageCompletedData{MessageID: m.MessageID, Role: m.Role,
		Index: len(w.fold.Messages), Parts: m.Parts, SHA256: event.TextHash(m.Parts)})
}

func (w *script) status(to event.Status) {
	w.add(event.RunStatus, event.RunStatusData{Status: to, Previous: w.fold.Run(w.runID()).Status})
}

// park says that the run waits for somebody outside, and how long.
func (w *script) park(as event.Status, reason string) {
	w.add(event.RunStatus, event.RunStatusData{Status: as, Previous: w.fold.Run(w.runID()).Status, Reason: reason, ExpiresAt: &expiry})
}

// answers writes an event that a command of a client's causes.
func (w *script) answers(t event.Type, data any) {
	w.command = w.in.CommandID
	w.add(t, data)
	w.command = ""
}

func (w *script) startStep() {
	w.step++
	w.add(event.StepStarted, event.StepStartedData{Step: w.step, Model: "scripted"})
}

func (w *script) endStep(reason event.FinishReason) {
	u := event.Usage{InputTokens: 10 * int64(w.step), OutputTokens: 5, CachedInputTokens: 2, ReasoningTokens: 1}
	w.usage.Add(u)
	w.add(event.StepCompleted, event.StepCompletedData{Step: w.step, FinishReason: reason, Usage: u})
}

// think writes a piece of reasoning in deltas; closed says whether it ends.
func (w *script) think(closed bool, deltas ...string) {
	w.open, w.thought = w.id("rsn"), ""
	w.add(event.ReasoningStarted, event.ReasoningStartedData{ReasoningID: w.open, Index: len(w.parts)})
	for _, d := range deltas {
		w.thought += d
		w.add(event.ReasoningDelta, event.ReasoningDeltaData{ReasoningID: w.open, Delta: d})
	}
	if closed {
		w.endThought("sig-" + w.open)
	}
}

func (w *script) endThought(signature string) {
	w.add(event.ReasoningCompleted, event.ReasoningCompletedData{ReasoningID: w.open, Index: len(w.parts), Text: w.thought, Signature: signature})
	w.parts = append(w.parts, event.Part{Type: event.PartReasoning, ReasoningID: w.open, Text: w.thought, Signature: signature})
}

// write begins the answer if it has not begun, and adds deltas.
func (w *script) write(deltas ...string) {
	if w.msg == "" {
		w.msg = w.id("msg")
		w.add(event.MessageStarted, event.MessageStartedData{MessageID: w.msg, Role: event.RoleAssistant, Index: len(w.fold.Messages)})
	}
	for _, d := range deltas {
		w.add(event.TextDelta, event.TextDeltaData{MessageID: w.msg, Delta: d})
		if n := len(w.parts); n > 0 && w.parts[n-1].Type == event.PartText {
			w.parts[n-1].Text += d
		} else {
			w.parts = append(w.parts, event.TextPart(d))
		}
	}
}

// begins starts a tool call of the answer; args come by argue or in endCalls.
func (w *script) begins(name string, by event.Executor, internal bool) *call {
	w.write()
	c := &call{id: w.id("call"), name: name, index: len(w.calls), by: by, internal: internal}
	w.calls = append(w.calls, c)
	w.parts = append(w.parts, event.Part{Type: event.PartToolCall, CallID: c.id, Internal: internal})
	w.put(event.ToolStarted, internal, w.runID(), event.ToolStartedData{CallID: c.id, Name: name, Index: c.index, MessageID: w.msg, Executor: by})
	return c
}

func (w *script) argue(c *call, deltas ...string) {
	for _, d := range deltas {
		c.args += d
		w.put(event.ToolArgsDelta, c.internal, w.runID(), event.ToolArgsDeltaData{CallID: c.id, Delta: d})
	}
}

// finishMessage writes the closers of the answer and of its step, and returns
// its calls.
func (w *script) finishMessage() []*call {
	w.write()
	reason := event.FinishStop
	for _, c := range w.calls {
		reason = event.FinishToolCalls
		w.put(event.ToolArgs, c.internal, w.runID(), event.ToolArgsData{CallID: c.id, Name: c.name, Index: c.index, Args: c.args})
	}
	w.closeMessage()
	w.endStep(reason)
	calls := w.calls
	w.forget()
	return calls
}

func (w *script) closeMessage() {
	parts := w.parts
	if parts == nil {
		parts = []event.Part{}
	}
	w.add(event.MessageCompleted, event.MessageCompletedData{MessageID: w.msg, Role: event.RoleAssistant,
		Index: len(w.fold.Messages) - 1, Parts: parts, SHA256: event.TextHash(parts)})
}

func (w *script) forget() { w.msg, w.parts, w.calls, w.open = "", nil, nil, "" }

// discard takes the attempt back; what it had open stays open in the log.
func (w *script) discard(reason string, retry int) {
	id := w.msg
	if id == "" {
		id = w.id("msg")
	}
	w.takesBack(id, reason, retry)
	w.forget()
}

func (w *script) takesBack(messageID, reason string, retry int) {
	w.add(event.MessageDiscarded, event.MessageDiscardedData{MessageID: messageID, Reason: reason, Retry: retry})
}

// starts writes tool.running.
func (w *script) starts(c *call, attempt int) {
	w.put(event.ToolRunning, c.internal, w.runID(), event.ToolRunningData{CallID: c.id, Attempt: attempt, IdempotencyKey: w.runID() + "/" + c.id})
}

func (w *script) progress(c *call, done, total float64, message string) {
	w.put(event.ToolProgress, c.internal, w.runID(), event.ToolProgressData{CallID: c.id, Progress: event.Progress{Progress: done, Total: total, Message: message}})
}

// result is what the client says that its tool returned.
func (w *script) result(c *call, d event.ToolCompletedData) {
	w.command = w.in.CommandID
	w.returns(c, d)
	w.command = ""
}

func (w *script) returns(c *call, d event.ToolCompletedData) {
	d.CallID, d.Name, d.Index, d.Args = c.id, c.name, c.index, c.args
	if d.Content == nil {
		d.Content = []event.Part{}
	}
	w.put(event.ToolCompleted, c.internal, w.runID(), d)
}

func (w *script) fails(c *call, code event.Code, outcome event.Outcome, message string) {
	w.put(event.ToolFailed, c.internal, w.runID(), event.ToolFailedData{CallID: c.id, Name: c.name, Index: c.index, Args: c.args,
		Code: code, Outcome: outcome, Message: message, Content: []event.Part{event.TextPart(message)}})
}

// answer is a step that only says something.
func (w *script) answer(deltas ...string) string {
	w.startStep()
	w.write(deltas...)
	id := w.msg
	w.finishMessage()
	return id
}

// complete ends the run.
func (w *script) complete(messageID string) {
	u := w.usage
	u.Steps = w.step
	w.add(event.RunCompleted, event.RunCompletedData{FinishReason: event.FinishStop, Output: event.RunOutput{MessageID: messageID}, Usage: u})
}

// ends is the usual end: a last answer.
func (w *script) ends(deltas ...string) { w.complete(w.answer(deltas...)) }
