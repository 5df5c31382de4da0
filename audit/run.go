package audit

import (
	"slices"

	"github.com/runlog-dev/runlog/event"
)

// run is what the log has told of a run.
type run struct {
	id, trace string
	parent    string
	agent     string // of a sub-agent
	parentOf  string // the parent's call
	queued    bool
	started   bool
	ended     bool
	status    event.Status
	expires   event.Time
	attempt   int
	step      int
	inStep    bool
	usage     event.Usage // of its steps
	children  bool
	paused    bool         // it waits for a larger budget
	reasoning []*reasoning // of the answer that has not begun
	message   *message     // the answer that is being written
	answer    string       // the last message it completed
}

// active is the run that was started and has not ended, not a sub-agent's.
func (c *Checker) active() *run {
	if c.current != nil && c.current.ended {
		c.current = nil
	}
	return c.current
}

// top is the run at the head of a sub-agent's line.
func (c *Checker) top(r *run) *run {
	for range len(c.runs) {
		p := c.runs[r.parent]
		if p == nil {
			break
		}
		r = p
	}
	return r
}

// run holds when events of a run may come; false if the rest of the rules cannot
// be applied to this one.
func (c *Checker) run(e event.Event) bool {
	if e.RunID == "" {
		return c.runless(e)
	}
	if e.Type == event.CommandIgnored {
		return false // it tells of a run that may not even be there
	}
	r := c.runs[e.RunID]
	if r == nil {
		r = &run{id: e.RunID, trace: e.TraceID, status: event.Pending}
		c.runs[e.RunID] = r
	}
	if e.TraceID != r.trace {
		c.wrong(RunStart, "has trace %q, the run began with %q", e.TraceID, r.trace)
	}
	if r.started && e.Agent != r.agent {
		c.wrong(EventForm, "names the agent %q, its run is of the sub-agent %q", e.Agent, r.agent)
	}
	if r.ended && !e.Internal {
		c.wrong(RunEnd, "the run has ended before")
		return false
	}
	if c.owner.recover == r.id && e.Type != event.RunRecovered {
		c.wrong(ClaimRecovered, "the run was taken over and is not recovered yet")
		c.owner.recover = ""
	}
	return c.life(e, r)
}

// runless are events that belong to no run.
func (c *Checker) runless(e event.Event) bool {
	switch e.Type {
	case event.SessionCreated, event.SessionClaimed, event.SessionReleased, event.CommandIgnored, event.Custom, event.Raw:
		return false
	case event.StateSnapshot, event.StateDelta, event.ActivitySnapshot, event.ActivityDelta:
		return true
	}
	if known(e.Type) {
		c.wrong(EventForm, "belongs to no run")
	}
	return false
}

func known(t event.Type) bool {
	for _, k := range event.Types {
		if k == t {
			return true
		}
	}
	return false
}

// life follows a run from its beginning to its end.
func (c *Checker) life(e event.Event, r *run) bool {
	switch {
	case e.Type == event.RunQueued:
		if r.queued || r.started {
			c.wrong(RunStart, "the run was accepted before")
		}
		r.queued = true
		return false
	case e.Type == event.RunStarted:
		c.started(e, r)
		return false
	case !r.started && e.Type.Terminal(): // while it was waiting
		r.ended = true
		return false
	case !r.started:
		c.wrong(RunStart, "the run has not started")
		return false
	}
	if a := c.active(); a != nil && c.top(r) != a {
		c.wrong(RunInterleave, "run %s is going on", a.id)
	}
	switch e.Type {
	case event.RunRecovered:
		c.recovered(e, r)
	case event.RunStatus:
		c.status(e, r)
	case event.RunCompleted, event.RunFailed, event.RunCancelled:
		c.ended(e, r)
	default:
		return true
	}
	return false
}

func (c *Checker) started(e event.Event, r *run) {
	d, ok := data[event.RunStartedData](c, e)
	if !ok {
		return
	}
	if r.started {
		c.wrong(RunStart, "the run has started before")
	}
	r.parent, r.parentOf = d.ParentRunID, d.ParentCallID
	if r.parent != "" {
		r.agent = d.Agent
	}
	if e.Agent != r.agent {
		c.wrong(EventForm, "names the agent %q, its run is of the sub-agent %q", e.Agent, r.agent)
	}
	a := c.active()
	r.started, r.attempt = true, d.Attempt
	if r.attempt != 1 {
		c.wrong(RunStart, "begins with attempt %d", r.attempt)
	}
	switch {
	case r.parent == "" && a != nil && a != r:
		c.wrong(RunInterleave, "run %s is going on", a.id)
	case r.parent == "":
		c.current = r
	default:
		c.childStarted(r)
	}
}

// childStarted: a sub-agent's run begins within the call that asked for it.
func (c *Checker) childStarted(r *run) {
	p, call := c.runs[r.parent], c.calls[r.parentOf]
	if p == nil || !p.started || p.ended {
		c.wrong(RunInterleave, "its parent %s is not running", r.parent)
		return
	}
	p.children = true
	if r.parentOf != "" && (call == nil || call.run != p.id || call.done || call.attempts == 0) {
		c.wrong(RunInterleave, "its parent's call %s is not running", r.parentOf)
	}
}

func (c *Checker) recovered(e event.Event, r *run) {
	d, ok := data[event.RunRecoveredData](c, e)
	if !ok {
		return
	}
	if c.owner.found != r.id {
		c.wrong(ClaimRecovered, "nobody has taken the run over")
	}
	c.owner.recover, c.owner.found = "", ""
	if d.Attempt != r.attempt+1 {
		c.wrong(ClaimRecovered, "is attempt %d, after attempt %d", d.Attempt, r.attempt)
	}
	if d.FromSeq != c.owner.seq-1 {
		c.wrong(ClaimRecovered, "goes on from event %d, the last one before the claim is %d", d.FromSeq, c.owner.seq-1)
	}
	r.attempt = d.Attempt
}

// moves says which status may follow which.
var moves = map[event.Status][]event.Status{
	event.Pending:         {event.Running},
	event.Running:         {event.WaitingTool, event.WaitingApproval},
	event.WaitingTool:     {event.Running, event.WaitingApproval, event.WaitingTool},
	event.WaitingApproval: {event.Running, event.WaitingTool, event.WaitingApproval},
}

func (c *Checker) status(e event.Event, r *run) {
	d, ok := data[event.RunStatusData](c, e)
	if !ok {
		return
	}
	if d.Previous != r.status {
		c.wrong(RunStatus, "says it was %s, it was %s", d.Previous, r.status)
	}
	if !slices.Contains(moves[r.status], d.Status) {
		c.wrong(RunStatus, "goes from %s to %s", r.status, d.Status)
	}
	if r.inStep {
		c.wrong(RunStatus, "becomes %s within a step", d.Status)
	}
	for _, call := range c.calls {
		if d.Status == event.Running && call.run == r.id && call.held && !call.done {
			c.wrong(RunStatus, "goes on while call %s runs", call.id)
		}
	}
	r.status, r.expires = d.Status, event.Time{}
	r.paused = d.Status == event.WaitingApproval && d.Reason == "budget"
	if d.ExpiresAt != nil {
		r.expires = *d.ExpiresAt
	}
	if d.Status == event.WaitingApproval && r.expires.IsZero() {
		c.wrong(RunExpiry, "waits for an approval without an end")
	}
}

// ended: everything of the run is closed, and its result is true.
func (c *Checker) ended(e event.Event, r *run) {
	for _, what := range c.open(r) {
		c.wrong(RunClosed, "%s is open", what)
	}
	if e.Type == event.RunCompleted {
		c.completed(e, r)
	}
	c.spent(e)
	r.ended, r.reasoning, r.message = true, nil, nil
	if c.owner.recover == r.id {
		c.owner.recover = ""
	}
}

// spent holds that an event counts no usage that cannot be.
func (c *Checker) spent(e event.Event) {
	var d struct {
		Usage event.Usage `json:"usage"`
	}
	if e.Into(&d) != nil {
		return // what is not of its type is told elsewhere
	}
	if err := d.Usage.Check(); err != nil {
		c.wrong(RunResult, "counts what cannot be: %v", err)
	}
}

// open lists what a run has open.
func (c *Checker) open(r *run) (list []string) {
	if r.inStep {
		list = append(list, "its step")
	}
	if r.message != nil {
		list = append(list, "message "+r.message.id)
	}
	for _, t := range r.reasoning {
		if !t.done {
			list = append(list, "reasoning "+t.id)
		}
	}
	for _, call := range c.calls {
		if call.run == r.id && !call.done {
			list = append(list, "call "+call.id)
		}
	}
	for _, child := range c.runs {
		if child.parent == r.id && !child.ended {
			list = append(list, "run "+child.id+" of a sub-agent")
		}
	}
	return list
}

func (c *Checker) completed(e event.Event, r *run) {
	d, ok := data[event.RunCompletedData](c, e)
	if !ok {
		return
	}
	if id := d.Output.MessageID; id != "" && id != r.answer {
		c.wrong(RunResult, "gives message %s, its last one is %q", id, r.answer)
	}
	if r.status != event.Running && d.FinishReason != event.FinishStopped {
		c.wrong(RunStatus, "completes while %s", r.status)
	}
	u := d.Usage
	if !r.children && (u.InputTokens != r.usage.InputTokens || u.OutputTokens != r.usage.OutputTokens || u.Steps != r.step) {
		c.wrong(RunResult, "counts %d tokens in, %d out, %d steps; its steps come to %d, %d, %d",
			u.InputTokens, u.OutputTokens, u.Steps, r.usage.InputTokens, r.usage.OutputTokens, r.step)
	}
}

// step holds the order of a run's steps.
func (c *Checker) step(e event.Event) {
	r := c.runs[e.RunID]
	switch e.Type {
	case event.StepStarted:
		d, ok := data[event.StepStartedData](c, e)
		if !ok {
			return
		}
		if r.inStep || d.Step != r.step+1 {
			c.wrong(StepOrder, "step %d begins after step %d, open: %v", d.Step, r.step, r.inStep)
		}
		if r.status != event.Running {
			c.wrong(RunStatus, "step %d begins while %s", d.Step, r.status)
		}
		for _, call := range c.calls {
			if call.run == r.id && !call.done && call.executor != event.ByRemote {
				c.wrong(StepOrder, "call %s has no result yet", call.id)
			}
		}
		r.step, r.inStep = d.Step, true
	case event.StepCompleted:
		d, ok := data[event.StepCompletedData](c, e)
		if !ok {
			return
		}
		if !r.inStep || d.Step != r.step || r.message != nil {
			c.wrong(StepOrder, "step %d ends, step %d is open: %v, and its message: %v", d.Step, r.step, r.inStep, r.message != nil)
		}
		c.spent(e)
		r.inStep = false
		r.usage.Add(d.Usage)
	}
}
