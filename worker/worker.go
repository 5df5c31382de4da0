package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/runlog-dev/runlog/artifacts"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
	"github.com/runlog-dev/runlog/worker/agent"
	"github.com/runlog-dev/runlog/worker/redact"
)

// Options of a Worker; the zero value works.
type Options struct {
	Slots     int           // sessions at once, default 64
	PerTenant int           // of them of one tenant, so that none has them all; default 0: no limit
	Grace     time.Duration // for running tools when the worker stops, default 10 s
	Redactor  *redact.Redactor
	Logger    *slog.Logger
	Observe   Observer
	Tunables  agent.Tunables
	// Elsewhere is how long a run waits for a worker that has its agent, default
	// 5 min; then a worker without it fails the run.
	Elsewhere time.Duration
	// Exclusive says that no other worker can be alive, because this process
	// has the log to itself: a claim that was not released is a dead one's.
	Exclusive bool
	// Ready, if set, is called once edges know the agents and tickets are taken.
	Ready func()
}

// An Observer is told what happens, for metrics. Any field may be nil.
type Observer struct {
	Started   func(queued time.Duration) // a run began so long after its command came
	Takeover  func()
	Passed    func() // a ticket was handed on, or back, for want of its session's agent
	Full      func() // a ticket was handed back because its tenant has what it may have
	Ended     func(status event.Status, took time.Duration, usage event.Usage)
	FirstText func(after time.Duration) // of a run
}

// A Worker runs agents. New starts nothing; Run blocks until all is handed over.
type Worker struct {
	id        string
	log       *eventlog.Log
	artifacts artifacts.Store
	agents    map[string]*agent.Agent
	opts      Options
	patience  time.Duration // for each thing that a release asks of the log, and with the log at all when the worker stops

	mu    sync.Mutex
	held  map[eventlog.Key]*holder
	of    map[string]int // how many of them are a tenant's
	seats []*seat        // free slots

	pulling sync.WaitGroup // slots that wait for a ticket
	tickets atomic.Pointer[eventlog.Tickets]
}

// New returns a worker for the given agents.
func New(log *eventlog.Log, store artifacts.Store, agents map[string]*agent.Agent, opts Options) *Worker {
	opts.Slots = cmp.Or(opts.Slots, 64)
	opts.Grace = cmp.Or(opts.Grace, 10*time.Second)
	opts.Elsewhere = cmp.Or(opts.Elsewhere, 5*time.Minute)
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Redactor == nil {
		opts.Redactor = redact.New(redact.Options{})
	}
	return &Worker{id: event.NewID("wrk"), log: log, artifacts: store, agents: agents, opts: opts, patience: 10 * time.Second, held: map[eventlog.Key]*holder{}, of: map[string]int{}}
}

// Run works until ctx ends, then hands over what it has: model calls are broken
// off, running tools get a grace. A log that does not answer keeps it for 10 s more.
func (w *Worker) Run(ctx context.Context) error {
	tickets, err := w.begin(ctx)
	if err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	w.tickets.Store(tickets)
	if w.opts.Ready != nil {
		w.opts.Ready()
	}
	stopOffers, err := w.takeOffers()
	if err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	context.AfterFunc(ctx, stopOffers)
	g := errgroup.Group{}
	for range w.opts.Slots {
		g.Go(func() error { w.slot(ctx, tickets); return nil })
	}
	g.Go(func() error { w.janitor(ctx); return nil })
	g.Go(func() error { w.timers(ctx); return nil })
	_ = g.Wait()
	return ctx.Err()
}

// begin announces the agents and asks for tickets. A log that does not answer in time
// is asked again: a process that ended for it would ask no sooner.
func (w *Worker) begin(ctx context.Context) (*eventlog.Tickets, error) {
	for {
		err := w.announce(ctx)
		if err == nil {
			var tickets *eventlog.Tickets
			if tickets, err = w.log.Tickets(ctx); err == nil {
				return tickets, nil
			}
		}
		if !errors.Is(err, eventlog.ErrUnavailable) {
			return nil, err
		}
		w.opts.Logger.Warn("the worker cannot begin yet, trying again", "err", err)
		if pause(ctx, time.Second) != nil {
			return nil, err
		}
	}
}

// announce tells the edges which agents can run.
func (w *Worker) announce(ctx context.Context) error {
	for name, a := range w.agents {
		about := event.Encode(map[string]string{"name": name, "description": a.Definition.Description, "model": a.Definition.Model.Name})
		if err := w.log.Announce(ctx, name, about); err != nil {
			return err
		}
	}
	return nil
}

// slot takes one ticket after the other. It asks for one only when it is free,
// so no ticket waits in a worker.
func (w *Worker) slot(ctx context.Context, tickets *eventlog.Tickets) {
	for ctx.Err() == nil {
		ticket, err := w.pull(ctx, tickets)
		if err != nil {
			if ctx.Err() == nil {
				w.opts.Logger.Warn("no ticket, trying again", "err", err)
			}
			_ = pause(ctx, time.Second)
			continue
		}
		w.serve(ctx, ticket)
	}
}

// pull waits for a ticket and counts as pulling meanwhile; see idle.
func (w *Worker) pull(ctx context.Context, tickets *eventlog.Tickets) (*eventlog.Ticket, error) {
	w.mu.Lock()
	if err := ctx.Err(); err != nil {
		w.mu.Unlock()
		return nil, err
	}
	w.pulling.Add(1)
	w.mu.Unlock()
	defer w.pulling.Done()
	ctx, seat := w.sit(ctx)
	ticket, err := tickets.Next(ctx)
	given := w.leave(seat)
	if given == nil {
		return ticket, err
	}
	if ticket != nil { // both at once
		_ = ticket.Return() // or else it comes back after a lease
	}
	return given, nil
}

// Ready says what keeps the worker from taking work: above all that it asks for
// tickets and hears nothing, which no ping of the server would show.
func (w *Worker) Ready() error {
	tickets := w.tickets.Load()
	if tickets == nil {
		return errors.New("the worker has not begun")
	}
	if silence := tickets.Silence(); w.free() > 0 && silence > 2*w.log.Lease() {
		return fmt.Errorf("the worker asks for tickets and has heard nothing for %s", silence.Round(time.Second))
	}
	return nil
}

// idle waits, once the worker stops, until it asks for no ticket any more.
func (w *Worker) idle() error {
	w.mu.Lock()   // no slot begins to pull after this
	w.mu.Unlock() //nolint:staticcheck // the section is empty on purpose
	w.pulling.Wait()
	return w.log.Flush()
}

// serve looks after one session until nothing is left to do.
func (w *Worker) serve(ctx context.Context, ticket *eventlog.Ticket) {
	mine := w.hold(ctx, ticket)
	if mine == nil {
		return
	}
	defer w.let(mine)
	t := &turn{w: w, key: ticket.Key, ticket: ticket, log: w.opts.Logger.With("tenant", ticket.Key.Tenant, "session", ticket.Key.Session)}
	began := time.Now()
	err := t.guarded(ctx)
	attrs := []any{"took", time.Since(began), "runs", t.runs, "takeover", t.takeover, "worker", w.id}
	switch {
	case err == nil:
		t.log.Info("turn", attrs...)
	case errors.Is(err, errElsewhere):
		t.log.Debug("turn passed on", append(attrs, "err", err)...)
	case errors.Is(err, agent.ErrDrained), errors.Is(err, eventlog.ErrFenced), errors.Is(err, eventlog.ErrClosed):
		t.log.Info("turn handed over", append(attrs, "err", err)...)
	default:
		t.log.Error("turn broken off", append(attrs, "err", err)...)
		t.giveUp(err)
	}
}

// guarded is run for a process that others share: what panics here is this
// session's alone, and comes back with its ticket.
func (t *turn) guarded(ctx context.Context) (err error) {
	defer agent.Caught(&err)
	return t.run(ctx)
}

// A holder is the turn of this process that looks after a session.
type holder struct {
	key    eventlog.Key
	ticket uint64 // stream position
	done   chan struct{}
}

// hold makes the ticket's session this turn's. A ticket that came back to its
// own holder, who keeps it alive, gives nil, as does one whose tenant has all the
// slots that it may have; a new one waits for the turn before.
func (w *Worker) hold(ctx context.Context, ticket *eventlog.Ticket) *holder {
	for {
		w.mu.Lock()
		there := w.held[ticket.Key]
		if there == nil && w.full(ticket.Key.Tenant) {
			w.mu.Unlock()
			w.handBack(ticket)
			return nil
		}
		if there == nil {
			h := &holder{ticket.Key, ticket.Pos, make(chan struct{})}
			w.held[ticket.Key] = h
			w.of[ticket.Key.Tenant]++
			w.mu.Unlock()
			return h
		}
		w.mu.Unlock()
		if there.ticket == ticket.Pos {
			return nil
		}
		select {
		case <-there.done:
		case <-ctx.Done():
			_ = ticket.Return()
			return nil
		}
	}
}

func (w *Worker) let(h *holder) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.held, h.key)
	if w.of[h.key.Tenant]--; w.of[h.key.Tenant] == 0 {
		delete(w.of, h.key.Tenant)
	}
	close(h.done)
}

// full reports whether a tenant has all the slots it may have. The caller holds mu.
func (w *Worker) full(tenant string) bool {
	return w.opts.PerTenant > 0 && w.of[tenant] >= w.opts.PerTenant
}

// handBack gives a ticket to any worker after a while. Tickets of others behind it
// in the queue are handed out meanwhile.
func (w *Worker) handBack(t *eventlog.Ticket) {
	if w.opts.Observe.Full != nil {
		w.opts.Observe.Full()
	}
	if err := t.ReturnIn(100 * time.Millisecond << min(t.Delivered, 5)); err != nil {
		w.opts.Logger.Warn("ticket not returned: it comes back by itself after a lease", "tenant", t.Key.Tenant, "session", t.Key.Session, "err", err)
	}
}

// timers delivers what is due, such as the expiry of an approval.
func (w *Worker) timers(ctx context.Context) {
	for ctx.Err() == nil {
		if err := w.log.Timers(ctx); err != nil && ctx.Err() == nil {
			w.opts.Logger.Warn("timers", "err", err)
		}
		_ = pause(ctx, time.Second)
	}
}

// janitor re-tickets sessions whose commands nobody took: after a crash between
// the release of a ticket and the last look, or a lost ticket. Runs that have
// begun have an alarm: see keepTicket.
func (w *Worker) janitor(ctx context.Context) {
	for pause(ctx, w.log.Lease()) == nil {
		if err := w.sweep(ctx); err != nil && ctx.Err() == nil {
			w.opts.Logger.Warn("janitor", "err", err)
		}
	}
}

func (w *Worker) sweep(ctx context.Context) error {
	keys, err := w.log.Overdue(ctx, w.log.Lease())
	if err != nil {
		return err
	}
	for _, k := range keys {
		if err := w.log.Ticket(ctx, k); err != nil && !errors.Is(err, eventlog.ErrTicketed) {
			return err
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
