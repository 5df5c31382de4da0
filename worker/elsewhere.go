package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// Not every worker must have every agent: a new one comes to them one after the
// other, and some are kept for workers with a GPU or with secrets of their own. A
// worker without the agent gives the ticket back, untouched, for another one;
// when nobody has taken it for Options.Elsewhere, the run fails.

// errElsewhere: another worker may have the agent.
var errElsewhere = errors.New("this worker does not have the agent")

// wanted is the agent that the session's next work needs, empty if any will do.
func wanted(fold *event.Session, waiting []eventlog.Waiting) string {
	if run := fold.Active(); run != nil {
		return run.Agent
	}
	if len(fold.Book.Queue) > 0 {
		return fold.Book.Queue[0].Agent
	}
	for _, c := range waiting {
		if c.Kind == event.Invoke && !fold.Knows(c.CommandID) {
			return c.Agent
		}
	}
	return ""
}

// elsewhere says that this worker should leave the session to others: it lacks
// the agent, and nobody has waited for too long yet. To cancel takes no agent.
func (t *turn) elsewhere(fold *event.Session, head eventlog.Head, waiting []eventlog.Waiting) bool {
	name := wanted(fold, waiting)
	cancel := func(c eventlog.Waiting) bool { return c.Kind == event.Cancel }
	if name == "" || t.w.agents[name] != nil || t.w.opts.Exclusive || slices.ContainsFunc(waiting, cancel) {
		return false
	}
	since := t.ticket.Placed
	if head.Time.After(since) {
		since = head.Time
	}
	t.nobody = time.Since(since) >= t.w.opts.Elsewhere
	return !t.nobody
}

// pass gives the ticket back, the later the more often that has happened.
func (t *turn) pass() error {
	if t.w.opts.Observe.Passed != nil {
		t.w.opts.Observe.Passed()
	}
	wait := 50 * time.Millisecond << min(t.ticket.Delivered, 5)
	return errors.Join(errElsewhere, t.ticket.ReturnIn(wait))
}

// without ends a run whose agent this worker does not have, or leaves it to
// others. ctx is the run's: it may be cancelled.
func (t *turn) without(ctx context.Context, run *event.Run) error {
	if ctx.Err() == nil && !t.nobody && !t.w.opts.Exclusive {
		return errElsewhere
	}
	why := fmt.Sprintf("this worker has no agent %q; it has %s", run.Agent, t.w.names())
	if t.nobody {
		why += fmt.Sprintf(", and no other took the run within %s", t.w.opts.Elsewhere)
	}
	return t.fail(ctx, run, event.CodeNotFound, why)
}

// names are the agents of this worker.
func (w *Worker) names() string {
	return strings.Join(slices.Sorted(maps.Keys(w.agents)), ", ")
}
