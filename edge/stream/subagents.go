package stream

import (
	"context"

	"github.com/runlog-dev/runlog/event"
)

// A subRun is a run that was met in the session, and whether it belongs to the
// viewer's run: as a sub-agent's, or a sub-agent's of that.
type subRun struct {
	id   string
	mine bool
}

// mine reports whether an event belongs to the viewer's run, or to a sub-agent's run
// below it. If the event alone does not say that, the session is read.
func (v *Viewer) mine(ctx context.Context, out *output, e *entry) (bool, error) {
	mine, known := v.ofRun(e)
	if known {
		return mine, nil
	}
	mine, err := v.descends(ctx, out, e)
	if err == nil {
		v.sub = subRun{e.RunID, mine}
	}
	return mine, err
}

// ofRun is mine without reading. Events of sub-agents name their agent; which run is
// above them is known only of the run that was met last.
func (v *Viewer) ofRun(e *entry) (mine, known bool) {
	switch {
	case v.req.RunID == "" || e.RunID == v.req.RunID:
		return true, true
	case e.Agent == "" || e.hidden:
		return false, true
	case e.RunID == v.sub.id:
		return v.sub.mine, true
	}
	return false, false
}

// descends reads the session to find out whether an event's run works for the viewer's.
func (v *Viewer) descends(ctx context.Context, out *output, e *entry) (bool, error) {
	f := &v.topic.fold
	if err := v.lockFolds(ctx, out); err != nil {
		return false, err
	}
	defer f.mu.Unlock()
	v.topic.keepFold()
	s := f.beyond(e.Seq - 1) // whose a run is does not change
	if s == nil {
		gate := v.entrance()
		defer gate.hold.Drop()
		var err error
		if s, err = v.foldAt(ctx, e.Seq-1, gate.pass); err != nil {
			return false, err
		}
	}
	run := e.RunID
	if e.Type == event.RunStarted { // the session before it does not know the run
		var d event.RunStartedData
		if e.Into(&d) == nil {
			run = d.ParentRunID
		}
	}
	return s.Within(run, v.req.RunID), nil
}
