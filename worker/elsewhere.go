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
// worker without the agent hands the ticket, untouched, to one that has it. While
// there is none the ticket goes back, to be handed out again; when that has gone on
// for Options.Elsewhere, the run fails.

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

// elsewhere names the agent for which this worker should leave the session to
// others: it lacks it, and nobody has waited for too long yet. To cancel takes no
// agent.
func (t *turn) elsewhere(fold *event.Session, head eventlog.Head, waiting []eventlog.Waiting) (name string, leave bool) {
	name = wanted(fold, waiting)
	cancel := func(c eventlog.Waiting) bool { return c.Kind == event.Cancel }
	if name == "" || t.w.agents[name] != nil || t.w.opts.Exclusive || slices.ContainsFunc(waiting, cancel) {
		return "", false
	}
	since := t.ticket.Placed
	if head.Time.After(since) {
		since = head.Time
	}
	t.nobody = time.Since(since) >= t.w.opts.Elsewhere
	return name, !t.nobody
}

// pass hands the ticket to a worker that has the agent, or gives it back for a
// while.
func (t *turn) pass(ctx context.Context, name string) error {
	if t.w.opts.Observe.Passed != nil {
		t.w.opts.Observe.Passed()
	}
	err := t.ticket.Offer(ctx, name)
	if errors.Is(err, eventlog.ErrNotFound) || errors.Is(err, eventlog.ErrBusy) {
		wait := 50 * time.Millisecond << min(t.ticket.Delivered, 5)
		err = errors.Join(err, t.ticket.ReturnIn(wait))
	}
	return errors.Join(errElsewhere, err)
}

// takeOffers lets other workers hand on what needs an agent of this one.
func (w *Worker) takeOffers() (stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, stop := range stops {
			stop()
		}
	}
	for name := range w.agents {
		one, err := w.log.OnOffer(name, w.give)
		if err != nil {
			stop()
			return nil, err
		}
		stops = append(stops, one)
	}
	return stop, nil
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
