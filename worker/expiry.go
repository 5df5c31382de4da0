package worker

import (
	"context"
	"fmt"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
	"github.com/runlog-dev/runlog/worker/agent"
)

// setTimers has the server end the waits of a parked run, and of those under it.
// They are set again each time it parks, which changes nothing where they are
// set.
func (t *turn) setTimers(ctx context.Context, view *event.Session) error {
	for _, run := range view.Runs {
		if run.Status.Terminal() || run.ExpiresAt == nil {
			continue
		}
		for callID, at := range expiries(view, run) {
			id := run.RunID + "." + callID + ".expire"
			if c := view.Call(callID); c != nil && c.InDoubt() { // it may have been asked about before it ran
				id = fmt.Sprintf("%s.%s.%d.expire", run.RunID, callID, c.Attempt)
			}
			if callID == "" { // a run may be paused several times
				id = fmt.Sprintf("%s.%d.expire", run.RunID, at.UnixMicro())
			}
			cmd := event.Command{CommandID: id, Kind: event.Expire, SessionID: t.key.Session,
				RunID: run.RunID, TraceID: run.TraceID, CallID: callID, By: agent.ByExpiry, Time: at}
			if err := t.w.log.SetTimer(ctx, t.key, cmd, at.Time); err != nil {
				return err
			}
		}
	}
	return nil
}

// expiries are the ends of what a run waits for, by call; of a budget, by none.
func expiries(view *event.Session, run *event.Run) map[string]event.Time {
	if run.Paused() {
		return map[string]event.Time{"": *run.ExpiresAt}
	}
	expires := map[string]event.Time{}
	for _, c := range view.ToolCalls {
		if c.RunID == run.RunID && c.Waits() {
			expires[c.CallID] = *run.ExpiresAt
		}
	}
	for _, a := range view.Approvals {
		if a.RunID == run.RunID {
			expires[a.CallID] = a.ExpiresAt
		}
	}
	return expires
}

// limitQueued has the server end a run's wait for the one before it, if its agent
// sets a limit. To set the timer again changes nothing.
func (t *turn) limitQueued(ctx context.Context, c event.Command) error {
	a := t.w.agents[c.Agent]
	if c.Kind != event.Invoke || a == nil || a.Definition.Limits.Queued == 0 || !isQueued(t.View(), c.RunID) {
		return nil
	}
	at := event.At(c.Time.Add(a.Definition.Limits.Queued))
	cmd := event.Command{CommandID: c.RunID + ".queued.expire", Kind: event.Expire, SessionID: t.key.Session,
		RunID: c.RunID, TraceID: c.TraceID, By: agent.ByExpiry, Time: at}
	return t.w.log.SetTimer(ctx, t.key, cmd, at.Time)
}

func isQueued(s *event.Session, runID string) bool {
	for _, q := range s.Book.Queue {
		if q.RunID == runID {
			return true
		}
	}
	return false
}

// expireQueued fails a run that has waited for too long; one that has begun or
// ended meanwhile has not. That it is time the log's server says: this worker's
// clock may be behind, and nobody would come again.
func expireQueued(s *event.Session, c eventlog.Waiting) []event.Event {
	if !isQueued(s, c.RunID) {
		return ignored(c.Command, "the run does not wait in the queue any more")
	}
	return named(c.CommandID, c.RunID, c.TraceID, []event.Event{event.New(event.RunFailed, event.RunFailedData{
		Code: event.CodeExpired, Message: "the session was busy with other runs for longer than limits.queued", Retryable: true})})
}
