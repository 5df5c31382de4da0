package worker

import (
	"context"
	"sync"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
	"github.com/runlog-dev/runlog/worker/agent"
)

// A halt is how the run that a turn performs is brought to its end from outside.
type halt struct {
	mu     sync.Mutex
	run    string // that is performed, if one is
	cancel context.CancelCauseFunc
	step   chan struct{} // closed: end after the step
	stopID string        // the command that said so
	wanted string        // a run that is to end, even if it is parked
}

// begin is about the run that is performed from now on. stopped is closed when it
// is to end after its step, as a command says, which by then names.
func (h *halt) begin(runID string, cancel context.CancelCauseFunc) (stopped <-chan struct{}, by func() string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.run, h.cancel, h.step, h.stopID, h.wanted = runID, cancel, make(chan struct{}), "", ""
	return h.step, func() string {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.stopID
	}
}

// over is about no run any more.
func (h *halt) over() { h.begin("", nil) }

// end cancels or stops a run if it is performed now; if not, it soon is.
func (h *halt) end(c eventlog.Waiting) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wanted = c.RunID
	switch {
	case h.cancel == nil || h.run != c.RunID:
	case c.Kind != event.Stop:
		h.cancel(&agent.Cancelled{By: c.By, Reason: c.Reason, CommandID: c.CommandID})
	case h.stopID == "":
		h.stopID = c.CommandID
		close(h.step)
	}
}

// wants reports whether a run is to end that is not performed.
func (h *halt) wants(runID string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.wanted == runID
}

// cancelWaiting cancels a run that has not begun: one in the queue, or one whose
// invoke is still in the inbox.
func cancelWaiting(s *event.Session, c eventlog.Waiting, invoked *event.Command) []event.Event {
	run := s.Run(c.RunID)
	if run != nil && run.Status.Terminal() {
		return ignored(c.Command, "the run has ended: "+string(run.Status))
	}
	var traceID string
	switch {
	case run != nil:
		traceID = run.TraceID
	case invoked != nil:
		traceID = invoked.TraceID
	default:
		return ignored(c.Command, "there is no such run in this session")
	}
	if c.Reason == "" && c.Kind == event.Stop {
		c.Reason = "stopped before it began"
	}
	e := event.New(event.RunCancelled, event.RunCancelledData{By: c.By, Reason: c.Reason})
	e.RunID, e.TraceID, e.CommandID = c.RunID, traceID, c.CommandID
	out := []event.Event{e}
	if invoked != nil {
		out = append(out, ignored(*invoked, "cancelled before it began")...)
	}
	return out
}
