package scenarios

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/runlog-dev/runlog/event"
)

var all = []Scenario{
	{Name: "text", Ends: event.RunCompleted, play: text,
		About: "One answer in a few deltas."},
	{Name: "empty", Ends: event.RunCompleted, play: empty,
		About: "The model says nothing at all."},
	{Name: "reasoning", Ends: event.RunCompleted, play: reasoning,
		About: "The model thinks before it speaks, and again in the middle of its answer."},
	{Name: "tools", Ends: event.RunCompleted, play: tools,
		About: "Two tools at once with interleaved arguments; the second one ends first, the first one reports progress; a third is hidden from clients."},
	{Name: "tool-fails", Ends: event.RunCompleted, play: toolFails,
		About: "A tool fails, another one may or may not have had its effect; the model goes on."},
	{Name: "client-tool", Ends: event.RunCompleted, play: clientTool,
		About: "A tool that the client runs: the run is parked until its result comes."},
	{Name: "approval", Ends: event.RunCompleted, play: approval,
		About: "Two calls need an approval: one is approved, the other one denied; the run is parked meanwhile."},
	{Name: "state", Ends: event.RunCompleted, play: state,
		About: "Shared state: a snapshot, patches, and another snapshot."},
	{Name: "artifact", Ends: event.RunCompleted, play: artifact,
		About: "A tool writes a file, with progress."},
	{Name: "activity", Ends: event.RunCompleted, play: activity,
		About: "A piece of user interface (A2UI) that the agent keeps current."},
	{Name: "subagent", Ends: event.RunCompleted, play: subagent,
		About: "A tool call that is another agent's run, with a text, a tool and a state of its own."},
	{Name: "custom", Ends: event.RunCompleted, play: custom,
		About: "Events with names of the agent's own, and a raw one that only auditors see."},
	{Name: "failure", Ends: event.RunFailed, play: failure,
		About: "The model breaks off in mid-answer and cannot be reached again."},
	{Name: "budget", Ends: event.RunFailed, play: budget,
		About: "The run reaches its limit of steps."},
	{Name: "cancel", Ends: event.RunCancelled, play: cancelled,
		About: "Somebody cancels while the model writes and a tool runs."},
	{Name: "takeover", Ends: event.RunCompleted, play: takeover,
		About: "The worker is lost in mid-message; another one takes the attempt back and answers anew."},
	{Name: "discarded", Ends: event.RunCompleted, play: discarded,
		About: "Two attempts of the model break off, one while it thinks, one in a tool call's arguments."},
	{Name: "elsewhere", Ends: event.RunCompleted, play: elsewhere,
		About: "An agent that lives elsewhere runs its own tools within one step; its worker is lost, and all that it said, results and state too, is taken back."},
	{Name: "large-result", Ends: event.RunCompleted, play: largeResult,
		About: "A tool returns 3 MB: its head is in the log, the whole in an artifact."},
	{Name: "unicode", Ends: event.RunCompleted, play: unicode,
		About: "Text, names and arguments that break careless parsers."},
	{Name: "queued", Ends: event.RunCompleted, play: queued, LogOnly: true,
		About: "While a run is under way one is queued and cancelled, and another one is queued and follows it."},
}

func text(w *script) { w.ends("Hel", "lo, ", "world", ".") }

func empty(w *script) { w.complete(w.answer()) }

func reasoning(w *script) {
	w.startStep()
	w.think(true, "The user ", "greets me.")
	w.write("Good ")
	w.think(true, "Morning or evening?")
	w.write("evening", "!")
	id := w.msg
	w.finishMessage()
	w.complete(id)
}

func tools(w *script) {
	w.startStep()
	w.write("Let me ", "look.")
	a := w.begins("weather", event.ByWorker, false)
	w.argue(a, `{"city":`)
	b := w.begins("calendar", event.ByWorker, false)
	w.argue(b, `{"day":`)
	w.argue(a, `"Köln","id":9007199254740993}`)
	w.argue(b, `"monday"}`)
	c := w.begins("audit", event.ByWorker, true)
	w.argue(c, `{"secret":true}`)
	w.finishMessage()
	w.status(event.WaitingTool)
	for _, call := range []*call{a, b, c} {
		w.starts(call, 1)
	}
	w.progress(a, 1, 2, "asking the station")
	w.returns(b, event.ToolCompletedData{Content: []event.Part{event.TextPart("nothing on monday")}})
	w.progress(a, 2, 2, "")
	w.returns(c, event.ToolCompletedData{Content: []event.Part{event.TextPart("hidden")}})
	w.returns(a, event.ToolCompletedData{Content: []event.Part{event.TextPart("sunny"), {Type: event.PartJSON, Value: json.RawMessage(`{"low":5,"high":12}`)}},
		Structured: json.RawMessage(`{"low":5,"high":12}`)})
	w.status(event.Running)
	w.ends("Sunny, ", "and you are free.")
}

func toolFails(w *script) {
	w.startStep()
	a := w.begins("delete", event.ByWorker, false)
	w.argue(a, `{"id":1}`)
	b := w.begins("send", event.ByWorker, false)
	w.finishMessage()
	w.status(event.WaitingTool)
	w.starts(a, 1)
	w.starts(b, 1)
	w.fails(a, event.CodeToolError, event.OutcomeFailed, "there is no 1")
	w.fails(b, event.CodeInterrupted, event.OutcomeUnknown, "it may or may not have been sent")
	w.status(event.Running)
	w.ends("That did not work.")
}

func clientTool(w *script) {
	w.startStep()
	c := w.begins("pick_date", event.ByClient, false)
	w.argue(c, `{"title":`, `"When?"}`)
	w.finishMessage()
	w.park(event.WaitingTool, "client")
	w.await = event.Result
	w.result(c, event.ToolCompletedData{Content: []event.Part{event.TextPart("2026-05-01")}})
	w.status(event.Running)
	w.ends("May it is.")
}

var expiry = event.At(time.Date(2099, 3, 5, 0, 0, 0, 0, time.UTC))

func approval(w *script) {
	w.startStep()
	w.write("I would like to send this.")
	a := w.begins("send", event.ByWorker, false)
	w.argue(a, `{"to":"bob"}`)
	b := w.begins("pay", event.ByWorker, false)
	w.argue(b, `{"amount":3}`)
	w.finishMessage()
	w.add(event.ApprovalRequested, event.ApprovalRequestedData{CallID: a.id, ArgsSHA256: strings.Repeat("a", 64), ExpiresAt: expiry})
	w.add(event.ApprovalRequested, event.ApprovalRequestedData{CallID: b.id, ArgsSHA256: strings.Repeat("b", 64), ExpiresAt: expiry})
	w.park(event.WaitingApproval, "")
	w.await = event.Approve
	w.answers(event.ApprovalResolved, event.ApprovalResolvedData{CallID: a.id, Decision: event.Approved, By: "client"})
	w.answers(event.ApprovalResolved, event.ApprovalResolvedData{CallID: b.id, Decision: event.Denied, By: "client", Reason: "too much"})
	w.fails(b, event.CodeForbidden, event.OutcomeDenied, "denied by client: too much")
	w.status(event.WaitingTool)
	w.starts(a, 1)
	w.returns(a, event.ToolCompletedData{Content: []event.Part{event.TextPart("sent")}})
	w.status(event.Running)
	w.ends("Sent, but not paid.")
}

func state(w *script) {
	w.add(event.StateSnapshot, event.StateSnapshotData{State: json.RawMessage(`{"steps":[],"n":9007199254740993}`)})
	w.add(event.StateDelta, event.StateDeltaData{Patch: json.RawMessage(`[{"op":"add","path":"/steps/-","value":"plan"}]`)})
	w.startStep()
	w.write("Plan")
	w.add(event.StateDelta, event.StateDeltaData{Patch: json.RawMessage(`[{"op":"add","path":"/steps/-","value":"do"},{"op":"add","path":"/done","value":null}]`)})
	w.write("ned.")
	id := w.msg
	w.finishMessage()
	w.add(event.StateDelta, event.StateDeltaData{Patch: json.RawMessage(`[{"op":"replace","path":"/done","value":true}]`)})
	w.add(event.StateSnapshot, event.StateSnapshotData{State: json.RawMessage(`{"steps":["plan","do"],"done":true}`)})
	w.complete(id)
}

func artifact(w *script) {
	w.startStep()
	c := w.begins("write_artifact", event.ByWorker, false)
	w.argue(c, `{"name":"note.md"}`)
	w.finishMessage()
	w.status(event.WaitingTool)
	w.starts(c, 1)
	file := w.file(c, "note.md", "text/markdown", 131072)
	w.returns(c, event.ToolCompletedData{Content: []event.Part{file}})
	w.status(event.Running)
	w.ends("It is in note.md.")
}

// file writes the life of an artifact and returns the part that refers to it.
func (w *script) file(c *call, name, mediaType string, size int64) event.Part {
	id := w.id("art")
	w.add(event.ArtifactStarted, event.ArtifactStartedData{ArtifactID: id, CallID: c.id, Name: name, MediaType: mediaType})
	w.add(event.ArtifactProgress, event.ArtifactProgressData{ArtifactID: id, Bytes: size / 2})
	w.add(event.ArtifactCompleted, event.ArtifactCompletedData{ArtifactID: id, CallID: c.id, Name: name, MediaType: mediaType,
		Bytes: size, SHA256: strings.Repeat("c", 64), URL: "/artifacts/" + id})
	return event.Part{Type: event.PartFile, ArtifactID: id, Name: name, MediaType: mediaType, Bytes: size, URL: "/artifacts/" + id}
}

func activity(w *script) {
	id := w.id("act")
	w.startStep()
	w.write("Here is a form.")
	w.add(event.ActivitySnapshot, event.ActivityData{ActivityID: id, Kind: "a2ui-surface", Content: json.RawMessage(
		`{"a2ui_operations":[{"version":"v0.9","createSurface":{"surfaceId":"s1","catalogId":"basic"}},` +
			`{"version":"v0.9","updateComponents":{"surfaceId":"s1","components":[{"id":"root","component":"Text","text":"Hi"}]}}]}`)})
	w.add(event.ActivityDelta, event.ActivityDeltaData{ActivityID: id, Patch: json.RawMessage(
		`[{"op":"add","path":"/a2ui_operations/-","value":{"version":"v0.9","updateDataModel":{"surfaceId":"s1","path":"/n","value":1}}}]`)})
	msg := w.msg
	w.finishMessage()
	w.add(event.ActivitySnapshot, event.ActivityData{ActivityID: id, Kind: "a2ui-surface", Content: json.RawMessage(
		`{"a2ui_operations":[{"version":"v0.9","deleteSurface":{"surfaceId":"s1"}}]}`)})
	w.complete(msg)
}

func subagent(w *script) {
	w.startStep()
	c := w.begins("summarizer", event.ByWorker, false)
	w.argue(c, `{"text":"long"}`)
	w.finishMessage()
	w.status(event.WaitingTool)
	w.starts(c, 1)
	parent, step, usage := w.run, w.step, w.usage
	w.run, w.agent, w.step, w.usage = w.in.RunID+"-sub", "summarizer", 0, event.Usage{}
	w.add(event.RunStarted, event.RunStartedData{Agent: "summarizer", Attempt: 1, ParentRunID: w.in.RunID, ParentCallID: c.id})
	w.status(event.Running)
	w.startStep()
	w.think(true, "Short, then.")
	inner := w.begins("count", event.ByWorker, false)
	w.argue(inner, `{}`)
	w.finishMessage()
	w.status(event.WaitingTool)
	w.starts(inner, 1)
	w.returns(inner, event.ToolCompletedData{Content: []event.Part{event.TextPart("4")}})
	w.status(event.Running)
	w.ends("long", ".")
	w.run, w.agent, w.step, w.usage = parent, "", step, usage
	w.returns(c, event.ToolCompletedData{Content: []event.Part{event.TextPart("long.")}})
	w.status(event.Running)
	w.ends("In short: long.")
}

func custom(w *script) {
	w.add(event.Custom, event.CustomData{Name: "weather.station", Value: json.RawMessage(`{"id":9007199254740993,"text":"a\u2028b"}`)})
	w.add(event.Custom, event.CustomData{Name: "bare"})
	w.put(event.Raw, true, w.runID(), event.RawData{Source: "elsewhere", Event: json.RawMessage(`{"x":1}`)})
	w.ends("Done.")
}

func failure(w *script) {
	w.startStep()
	w.think(true, "Hm.")
	w.write("It is ", "sun")
	w.discard("model_error", 0)
	w.add(event.StepCompleted, event.StepCompletedData{Step: w.step, FinishReason: event.FinishStopped})
	w.add(event.RunFailed, event.RunFailedData{Code: event.CodeModelError, Message: "the model's server answered 500: \"overloaded\"", Retryable: true, Usage: &w.usage})
}

func budget(w *script) {
	w.startStep()
	w.write("Working.")
	c := w.begins("again", event.ByWorker, false)
	w.argue(c, `{}`)
	w.finishMessage()
	w.fails(c, event.CodeInterrupted, event.OutcomeFailed, "not run: the run ended (budget_exceeded)")
	w.add(event.BudgetExceeded, event.BudgetExceededData{Kind: "steps", Limit: 1, Used: 1})
	w.add(event.RunFailed, event.RunFailedData{Code: event.CodeBudget, Message: "the run's limit of 1 steps is reached", Usage: &w.usage})
}

func cancelled(w *script) {
	w.startStep()
	w.write("I begin.")
	c := w.begins("slow", event.ByWorker, false)
	w.argue(c, `{"n":1}`)
	w.finishMessage()
	w.status(event.WaitingTool)
	w.starts(c, 1)
	w.await = event.Cancel
	w.fails(c, event.CodeInterrupted, event.OutcomeCancelled, "cancelled while it ran")
	w.put(event.CommandIgnored, true, "", event.CommandIgnoredData{CommandID: w.runID() + ".steer", Kind: "steer", Reason: "the run was cancelled"})
	w.add(event.RunCancelled, event.RunCancelledData{By: "client", Reason: "enough", Usage: &w.usage})
}

// lost is what the next owner of the session writes.
func (w *script) lost() {
	w.session(event.SessionClaimed, true, event.SessionClaimedData{Worker: "w2", Attempt: 2})
	w.add(event.RunRecovered, event.RunRecoveredData{Attempt: 2, FromSeq: w.fold.Seq - 1})
}

func takeover(w *script) {
	w.startStep()
	w.think(true, "A list, I think.")
	w.write("First, ", "the ")
	w.argue(w.begins("lookup", event.ByWorker, false), `{"q":`)
	w.lost()
	w.discard("worker_lost", 1)
	w.think(true, "A list.")
	w.write("One. ", "Two.")
	id := w.msg
	w.finishMessage()
	w.complete(id)
}

func discarded(w *script) {
	w.startStep()
	w.think(false, "Let me ", "thi")
	w.discard("model_timeout", 1)
	w.write("I will ")
	w.argue(w.begins("lookup", event.ByWorker, false), `{"q":"a"}`)
	w.argue(w.begins("audit", event.ByWorker, true), `{`)
	w.discard("model_error", 2)
	w.write("Here ", "it is.")
	id := w.msg
	w.finishMessage()
	w.complete(id)
}

// elsewhere is a step with several messages, of which all but the last have been
// completed when they are taken back.
func elsewhere(w *script) {
	w.add(event.StateSnapshot, event.StateSnapshotData{State: json.RawMessage(`{"n":1}`)})
	w.startStep()
	w.mark(event.RemoteMark{Leg: 1})
	w.leg()
	w.write("It ", "is")
	w.lost()
	w.discard("worker_lost", 1)
	w.takesBack(w.last, "worker_lost", 1)
	w.add(event.StateSnapshot, event.StateSnapshotData{State: json.RawMessage(`{"n":1}`)})
	w.leg()
	w.write("It is ", "found.")
	id := w.msg
	w.closeMessage()
	w.forget()
	w.mark(event.RemoteMark{Leg: 1, Ended: true})
	w.endStep(event.FinishStop)
	w.complete(id)
}

// leg says something, and calls tools that run elsewhere.
func (w *script) leg() {
	w.think(true, "I had better look.")
	w.write("I look ", "it up.")
	found := w.begins("search", event.ByRemote, false)
	w.argue(found, `{"q":`, `"mars"}`)
	lost := w.begins("fetch", event.ByRemote, false)
	w.argue(lost, `{}`)
	for _, c := range w.calls {
		w.put(event.ToolArgs, c.internal, w.runID(), event.ToolArgsData{CallID: c.id, Name: c.name, Index: c.index, Args: c.args})
	}
	w.last = w.msg
	w.closeMessage()
	w.forget()
	w.fails(lost, event.CodeToolError, event.OutcomeFailed, "nothing there")
	w.progress(found, 1, 2, "half")
	w.returns(found, event.ToolCompletedData{Content: []event.Part{event.TextPart("a planet")}})
	w.add(event.StateDelta, event.StateDeltaData{Patch: json.RawMessage(`[{"op":"replace","path":"/n","value":2}]`)})
}

func (w *script) mark(m event.RemoteMark) {
	w.put(event.Custom, true, w.runID(), event.CustomData{Name: event.RemoteEvent, Value: event.Encode(m)})
}

func largeResult(w *script) {
	w.startStep()
	c := w.begins("read_file", event.ByWorker, false)
	w.argue(c, `{"path":"big.txt"}`)
	w.finishMessage()
	w.status(event.WaitingTool)
	w.starts(c, 1)
	whole := w.file(c, "read_file-result.txt", "text/plain; charset=utf-8", 3<<20)
	size := w.in.Big
	if size == 0 {
		size = 2 << 10
	}
	line := "All work and no play makes \"Jack\" a dull boy — \\o/ 🌤.\n"
	w.returns(c, event.ToolCompletedData{Content: []event.Part{event.TextPart(strings.Repeat(line, size/len(line)))}, Truncated: true, Artifact: &whole})
	w.status(event.Running)
	w.ends("It is long.")
}

// Oddities are what careless readers of lines, of JSON and of Unicode stumble over.
var Oddities = []string{
	"data: x\n\nid: 7\r\nevent: y\r\r", "\u2028\u2029\u0085", "\x00\x01\x1f\x7f", "\ufeffBOM", "👩\u200d👩\u200d👧\u200d👦🏳️\u200d🌈", "e\u0301 é", "\u202ertl\u202c עברית", "</script><!--",
	"\ufffd", "\U0010ffff", "\\u0041 \\n", "[DONE]", "", " trailing  ",
}

func unicode(w *script) {
	w.startStep()
	w.think(true, "想\u2028", "💭")
	w.write(Oddities...)
	c := w.begins("名前.ü-x", event.ByWorker, false)
	w.argue(c, `{"a":"\ud83d`, `\ude00","b":1e400,"c":"\u0000","é":-0.0}`)
	w.finishMessage()
	w.status(event.WaitingTool)
	w.starts(c, 1)
	w.progress(c, 0.5, 0, "½\u2028")
	w.returns(c, event.ToolCompletedData{Content: []event.Part{event.TextPart(strings.Join(Oddities, "|"))}, Structured: json.RawMessage(`{"n":1e400}`)})
	w.status(event.Running)
	w.ends("終わり", "🎌")
}

func queued(w *script) {
	other, third := w.in.RunID+"b", w.in.RunID+"c"
	w.startStep()
	w.write("One")
	for _, run := range []string{other, third} {
		w.put(event.RunQueued, false, run, event.RunQueuedData{Agent: w.in.Agent, CommandID: run + ".invoke",
			Messages: []event.InputMessage{{MessageID: "msg_of_" + run, Role: event.RoleUser, Parts: []event.Part{event.TextPart("and " + run)}}}})
	}
	w.put(event.RunCancelled, false, other, event.RunCancelledData{By: "client"})
	w.write(".")
	id := w.msg
	w.finishMessage()
	w.complete(id)
	w.run, w.step, w.usage = third, 0, event.Usage{}
	w.add(event.RunStarted, event.RunStartedData{Agent: w.in.Agent, Attempt: 1})
	w.said(event.InputMessage{MessageID: "msg_of_" + third, Role: event.RoleUser, Parts: []event.Part{event.TextPart("and " + third)}})
	w.status(event.Running)
	w.ends("Two.")
}
