package audit

import (
	"fmt"

	"github.com/runlog-dev/runlog/event"
)

// owner is who has the session.
type owner struct {
	worker   string
	attempt  int
	seq      event.Seq // of the claim
	released bool
	drained  bool   // it let go with a run to go on with
	found    string // the run that was going on at the claim
	recover  string // the same if it has to be recovered before anything else of it
}

// session holds what concerns the session as a whole.
func (c *Checker) session(e event.Event) {
	if (e.Type == event.SessionCreated) != (e.Seq == 1) {
		c.wrong(SessionFirst, "is event %d", e.Seq)
	}
	switch e.Type {
	case event.SessionCreated:
	case event.SessionClaimed:
		c.claimed(e)
	case event.SessionReleased:
		c.released(e)
	default:
		if c.owner.worker == "" || c.owner.released {
			c.wrong(ClaimOwner, "nobody has the session")
		}
	}
	if (e.Type == event.SessionClaimed || e.Type == event.SessionReleased || e.Type == event.CommandIgnored || e.Type == event.Raw) && !e.Internal {
		c.wrong(EventForm, "is not internal")
	}
}

func (c *Checker) claimed(e event.Event) {
	d, ok := data[event.SessionClaimedData](c, e)
	if !ok {
		return
	}
	if d.Attempt != c.owner.attempt+1 {
		c.wrong(ClaimNumber, "is number %d, after number %d", d.Attempt, c.owner.attempt)
	}
	taken := c.owner.worker != "" && (!c.owner.released || c.owner.drained)
	c.owner = owner{worker: d.Worker, attempt: d.Attempt, seq: e.Seq}
	if run := c.active(); run != nil {
		c.owner.found = run.id
		if taken {
			c.owner.recover = run.id
		}
	}
	for _, call := range c.calls {
		call.held = false // whoever reports on it now has to run it again
	}
}

func (c *Checker) released(e event.Event) {
	d, ok := data[event.SessionReleasedData](c, e)
	if !ok {
		return
	}
	if d.Worker != c.owner.worker || c.owner.released {
		c.wrong(ClaimOwner, "%s lets go of what %s has", d.Worker, c.owner.worker)
	}
	c.owner.released, c.owner.drained = true, d.Reason != ""
	if problem := c.left(); problem != "" && !c.owner.drained {
		c.wrong(RunLeft, "%s", problem)
	}
}

// left says what is wrong with what there is to do, if nobody works on it.
func (c *Checker) left() string {
	run := c.active()
	if run == nil {
		for _, r := range c.runs {
			if r.queued && !r.started && !r.ended {
				return fmt.Sprintf("run %s could begin", r.id)
			}
		}
		return ""
	}
	return c.idle(run)
}

// idle says what is wrong with a run that nobody works on: it waits for nobody,
// or not until a time.
func (c *Checker) idle(run *run) string {
	waits := 0
	if run.paused {
		waits++
	}
	for _, call := range c.calls {
		if call.run != run.id || call.done || run.paused {
			continue
		}
		if call.executor != event.ByClient && !call.asked {
			below := c.below(call)
			if below == nil {
				return fmt.Sprintf("run %s is %s, and nobody works on its call %s", run.id, run.status, call.id)
			}
			if problem := c.idle(below); problem != "" {
				return problem
			}
		}
		waits++
	}
	if waits == 0 {
		return fmt.Sprintf("run %s is %s, and nobody works on it", run.id, run.status)
	}
	if run.expires.IsZero() {
		return fmt.Sprintf("run %s is %s, and does not say until when", run.id, run.status)
	}
	return ""
}

// below is the sub-agent's run that a call waits for, or nil.
func (c *Checker) below(call *call) *run {
	for _, r := range c.runs {
		if r.parent == call.run && r.parentOf == call.id && !r.ended {
			return r
		}
	}
	return nil
}

// end: every prefix of a log is sound while somebody has the session.
func (o owner) end(out *Checker) {
	if o.recover != "" && o.released {
		out.find(Finding{RunID: o.recover, Rule: ClaimRecovered, Detail: "the run was taken over and not recovered"})
	}
}
