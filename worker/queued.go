package worker

import (
	"context"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
	"github.com/runlog-dev/runlog/worker/agent"
)

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
// ended meanwhile has not.
func expireQueued(s *event.Session, c eventlog.Waiting) []event.Event {
	if !isQueued(s, c.RunID) || c.Time.After(time.Now()) {
		return ignored(c.Command, "the run does not wait in the queue any more")
	}
	return named(c.CommandID, c.RunID, c.TraceID, []event.Event{event.New(event.RunFailed, event.RunFailedData{
		Code: event.CodeExpired, Message: "the session was busy with other runs for longer than limits.queued", Retryable: true})})
}
