package audit

import (
	"strings"

	"github.com/runlog-dev/runlog/event"
)

// call is what the log has told of a tool call.
type call struct {
	id, run, message, name string
	index                  int
	executor               event.Executor
	given                  bool // it came with a client's message
	deltas                 strings.Builder
	args                   string
	argsDone, redacted     bool
	attempts               int
	key                    string
	held                   bool // the present owner runs it
	asked                  bool // an approval is awaited
	wasAsked               bool
	doubt                  bool // it was broken off, and somebody was asked about it
	decision               event.Decision
	done, discarded        bool
}

// tool follows calls from their beginning to their result.
func (c *Checker) tool(e event.Event) {
	r := c.runs[e.RunID]
	if e.Type == event.ToolStarted {
		c.callStarted(e, r)
		return
	}
	follow, ok := callEvents[e.Type]
	if !ok {
		return
	}
	d, ok := data[struct {
		CallID string `json:"call_id"`
	}](c, e)
	if !ok {
		return
	}
	call := c.calls[d.CallID]
	if call == nil || call.run != e.RunID || call.discarded {
		c.wrong(CallPair, "call %q was not begun", d.CallID)
		return
	}
	if call.done {
		c.wrong(CallResult, "call %s has its result", call.id)
		return
	}
	follow(c, e, call)
}

var callEvents = map[event.Type]func(*Checker, event.Event, *call){
	event.ToolArgsDelta:     (*Checker).argsDelta,
	event.ToolArgs:          (*Checker).argsClosed,
	event.ToolRunning:       (*Checker).callRunning,
	event.ToolProgress:      (*Checker).callProgress,
	event.ToolCompleted:     (*Checker).callCompleted,
	event.ToolFailed:        (*Checker).callFailed,
	event.ApprovalRequested: (*Checker).approvalRequested,
	event.ApprovalResolved:  (*Checker).approvalResolved,
}

func (c *Checker) callStarted(e event.Event, r *run) {
	d, ok := data[event.ToolStartedData](c, e)
	if !ok {
		return
	}
	if there := c.calls[d.CallID]; d.CallID == "" || there != nil && !there.discarded {
		c.wrong(CallPair, "call %q was begun before", d.CallID)
		return
	}
	call := &call{id: d.CallID, run: r.id, message: d.MessageID, name: d.Name, index: d.Index, executor: d.Executor}
	c.calls[call.id] = call
	if d.Index != c.siblings(d.MessageID)-1 {
		c.wrong(CallPair, "call %s has index %d, its message has %d calls before it", d.CallID, d.Index, c.siblings(d.MessageID)-1)
	}
	if m := r.message; m != nil && m.id == d.MessageID {
		m.parts = append(m.parts, &part{kind: event.PartToolCall, id: d.CallID})
		return
	}
	m := c.texts[d.MessageID]
	call.given = m != nil && m.done && !r.inStep && d.Executor == event.ByClient
	if !call.given {
		c.wrong(CallPair, "call %s begins outside of its message %s", d.CallID, d.MessageID)
	}
}

// siblings counts the calls of a message.
func (c *Checker) siblings(messageID string) (n int) {
	for _, call := range c.calls {
		if call.message == messageID && !call.discarded {
			n++
		}
	}
	return n
}

func (c *Checker) argsDelta(e event.Event, call *call) {
	if d, ok := data[event.ToolArgsDeltaData](c, e); ok {
		if call.argsDone {
			c.wrong(CallArgs, "the arguments of call %s are closed", call.id)
		}
		call.deltas.WriteString(d.Delta)
	}
}

func (c *Checker) argsClosed(e event.Event, call *call) {
	d, ok := data[event.ToolArgsData](c, e)
	if !ok {
		return
	}
	if call.argsDone {
		c.wrong(CallArgs, "the arguments of call %s are closed", call.id)
	}
	c.sameCall(call, d.Name, d.Index)
	if said := call.deltas.String(); said != "" && said != d.Args && !d.Redacted {
		c.wrong(CallArgs, "of call %s: %s", call.id, difference(d.Args, said))
	}
	call.args, call.argsDone, call.redacted = d.Args, true, d.Redacted
}

func (c *Checker) sameCall(call *call, name string, index int) {
	if name != call.name || index != call.index {
		c.wrong(CallPair, "call %s is %q with index %d, it was %q with %d", call.id, name, index, call.name, call.index)
	}
}

func (c *Checker) callRunning(e event.Event, call *call) {
	d, ok := data[event.ToolRunningData](c, e)
	if !ok {
		return
	}
	if !c.answered(call) || call.elsewhere() {
		c.wrong(CallRunning, "call %s runs before its answer is complete, or is not the worker's to run", call.id)
	}
	if s := c.runs[call.run].status; s != event.WaitingTool && s != event.WaitingApproval {
		c.wrong(RunStatus, "call %s runs while the run is %s", call.id, s)
	}
	if call.asked || call.decision == event.Denied {
		c.wrong(CallApproval, "call %s runs without approval", call.id)
	}
	call.doubt = false
	if d.Attempt != call.attempts+1 {
		c.wrong(CallAttempt, "attempt %d of call %s, after attempt %d", d.Attempt, call.id, call.attempts)
	}
	if d.IdempotencyKey == "" || call.key != "" && call.key != d.IdempotencyKey {
		c.wrong(CallAttempt, "call %s has the key %q, it had %q", call.id, d.IdempotencyKey, call.key)
	}
	call.attempts, call.key, call.held = d.Attempt, d.IdempotencyKey, true
}

// elsewhere reports that the call is run by the client, or by an agent that lives
// elsewhere: the log has only what they tell.
func (c *call) elsewhere() bool { return c.executor == event.ByClient || c.executor == event.ByRemote }

// answered reports whether the call's answer and step are complete.
func (c *Checker) answered(call *call) bool {
	m := c.texts[call.message]
	return m != nil && m.done && call.argsDone && !c.runs[call.run].inStep
}

func (c *Checker) callProgress(_ event.Event, call *call) {
	if !call.held && call.executor != event.ByRemote {
		c.wrong(CallRunning, "call %s does not run under the session's owner", call.id)
	}
}

func (c *Checker) callCompleted(e event.Event, call *call) {
	d, ok := data[event.ToolCompletedData](c, e)
	if !ok {
		return
	}
	if !call.held && !call.elsewhere() && !call.doubt {
		c.wrong(CallRunning, "call %s does not run under the session's owner", call.id)
	}
	if call.asked && !call.doubt || call.decision == event.Denied {
		c.wrong(CallApproval, "call %s has a result without approval", call.id)
	}
	c.closed(call, d.Name, d.Index, d.Args)
	if d.Truncated != (d.Artifact != nil) {
		c.wrong(CallResult, "of call %s: truncated %v, the whole is kept: %v", call.id, d.Truncated, d.Artifact != nil)
	}
}

func (c *Checker) callFailed(e event.Event, call *call) {
	d, ok := data[event.ToolFailedData](c, e)
	if !ok {
		return
	}
	c.closed(call, d.Name, d.Index, d.Args)
	switch ran := call.attempts > 0 || call.elsewhere(); {
	case d.Code == "":
		c.wrong(CallOutcome, "call %s fails without a code", call.id)
	case d.Outcome == event.OutcomeUnknown && !ran:
		c.wrong(CallOutcome, "the outcome of call %s is unknown, though it was never run", call.id)
	case d.Outcome == event.OutcomeFailed && d.Code == event.CodeInterrupted && call.attempts > 0:
		c.wrong(CallOutcome, "call %s was interrupted after it began: its outcome is not known to be failed", call.id)
	case d.Outcome == event.OutcomeDenied && ran && !call.elsewhere():
		c.wrong(CallOutcome, "call %s was denied after it ran", call.id)
	case d.Outcome == event.OutcomeDenied && call.asked:
		c.wrong(CallApproval, "call %s was denied by nobody", call.id)
	case call.decision == event.Denied && call.doubt && d.Outcome != event.OutcomeUnknown:
		c.wrong(CallOutcome, "call %s was broken off, is not to run again, and ends as %s", call.id, d.Outcome)
	case call.decision == event.Denied && !call.doubt && d.Outcome != event.OutcomeDenied:
		c.wrong(CallApproval, "call %s was denied and ends as %s", call.id, d.Outcome)
	case d.Outcome != event.OutcomeUnknown && d.Outcome != event.OutcomeFailed && d.Outcome != event.OutcomeDenied && d.Outcome != event.OutcomeCancelled:
		c.wrong(CallOutcome, "call %s has the outcome %q", call.id, d.Outcome)
	}
}

// closed holds what every result says of its call.
func (c *Checker) closed(call *call, name string, index int, args string) {
	call.done = true
	c.sameCall(call, name, index)
	if !call.given && (!call.argsDone || args != call.args) {
		c.wrong(CallArgs, "of call %s in its result: %s", call.id, difference(args, call.args))
	}
	if m := c.texts[call.message]; m == nil || !m.done {
		c.wrong(CallResult, "call %s has a result before its answer is complete", call.id)
	}
	for _, r := range c.runs {
		if r.parentOf == call.id && !r.ended {
			c.wrong(RunInterleave, "call %s has a result, its run %s has not ended", call.id, r.id)
		}
	}
}

func (c *Checker) approvalRequested(e event.Event, call *call) {
	d, ok := data[event.ApprovalRequestedData](c, e)
	if !ok {
		return
	}
	again := call.attempts > 0 && !call.held && !call.asked // its worker was lost
	switch {
	case (call.wasAsked || call.attempts > 0) && !again || !c.answered(call):
		c.wrong(CallApproval, "of call %s was asked for before, or it runs, or its answer is not complete", call.id)
	case again != (d.Reason == event.CodeInterrupted):
		c.wrong(CallApproval, "of call %s is asked for %q after %d attempts", call.id, d.Reason, call.attempts)
	case d.ArgsSHA256 != event.ArgsHash(call.args):
		c.wrong(CallApproval, "of call %s is about other arguments: sha256 %s", call.id, d.ArgsSHA256)
	case d.ExpiresAt.IsZero():
		c.wrong(RunExpiry, "the approval of call %s is awaited without an end", call.id)
	}
	call.asked, call.wasAsked, call.doubt, call.decision = true, true, again, ""
}

func (c *Checker) approvalResolved(e event.Event, call *call) {
	d, ok := data[event.ApprovalResolvedData](c, e)
	if !ok {
		return
	}
	if !call.asked || call.decision != "" {
		c.wrong(CallApproval, "of call %s is not awaited", call.id)
	}
	if d.Decision != event.Approved && d.Decision != event.Denied || d.By == "" {
		c.wrong(CallApproval, "of call %s is %q by %q", call.id, d.Decision, d.By)
	}
	call.asked, call.decision = false, d.Decision
}
