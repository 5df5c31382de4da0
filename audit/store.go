package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// Options of an Auditor; the zero value works.
type Options struct {
	// Grace is how long something may be on its way before it counts as left
	// behind: a command that is answered but still in the inbox, work without a
	// ticket. Default: 3 leases.
	Grace time.Duration
	// Parallel is how many sessions are read at once, default 4.
	Parallel int
}

// An Auditor checks the sessions of an installation, which may be at work
// meanwhile. It changes nothing. Safe for concurrent use.
type Auditor struct {
	log  *eventlog.Log
	opts Options
	seed maphash.Seed
}

// A Report counts what was read.
type Report struct {
	Sessions int64 `json:"sessions"`
	Runs     int64 `json:"runs"`
	Frames   int64 `json:"frames"`
	Events   int64 `json:"events"`
	Bytes    int64 `json:"bytes"`
	Findings int64 `json:"findings"`
}

// New returns an Auditor.
func New(log *eventlog.Log, opts Options) *Auditor {
	opts.Grace = cmp.Or(opts.Grace, 3*log.Lease())
	opts.Parallel = cmp.Or(opts.Parallel, 4)
	return &Auditor{log: log, opts: opts, seed: maphash.MakeSeed()}
}

// Session checks one session. An error means that it could not be read, not that
// something is wrong with it.
func (a *Auditor) Session(ctx context.Context, k eventlog.Key) ([]Finding, Report, error) {
	var all []Finding
	pass := a.pass(func(f Finding) { all = append(all, f) })
	err := pass.session(ctx, k)
	return all, pass.report(), err
}

// All checks every session of a tenant, or of all tenants for "", and that no
// accepted run is missing. found is called for each finding, one at a time.
func (a *Auditor) All(ctx context.Context, tenant string, found func(Finding)) (Report, error) {
	pass := a.pass(found)
	err := pass.sessions(ctx, tenant)
	if err == nil {
		err = a.log.Accepted(ctx, tenant, func(k eventlog.Key, ref eventlog.RunRef) error { return pass.accepted(ctx, k, ref) })
	}
	return pass.report(), err
}

// A pass is one reading of an installation.
type pass struct {
	*Auditor
	count struct{ sessions, runs, frames, events, bytes, findings atomic.Int64 }

	mu    sync.Mutex
	found func(Finding)
	seen  map[uint64]event.Seq // hash of tenant, session and run -> the run's first event
}

func (a *Auditor) pass(found func(Finding)) *pass {
	return &pass{Auditor: a, found: found, seen: map[uint64]event.Seq{}}
}

func (p *pass) report() Report {
	return Report{p.count.sessions.Load(), p.count.runs.Load(), p.count.frames.Load(), p.count.events.Load(), p.count.bytes.Load(), p.count.findings.Load()}
}

func (p *pass) tell(k eventlog.Key, list ...Finding) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range list {
		f.Tenant, f.Session = k.Tenant, k.Session
		p.count.findings.Add(1)
		p.found(f)
	}
}

// sessions checks the logs of all partitions, and what has only an inbox.
func (p *pass) sessions(ctx context.Context, tenant string) error {
	keys, err := p.keys(ctx, tenant)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(p.opts.Parallel)
	for _, k := range keys {
		g.Go(func() error { return p.session(ctx, k) })
	}
	return g.Wait()
}

// keys lists the sessions that have a log or a command, each once.
func (p *pass) keys(ctx context.Context, tenant string) ([]eventlog.Key, error) {
	var all []eventlog.Key
	for partition := range p.log.Partitions() {
		keys, err := p.log.Sessions(ctx, partition, tenant)
		if err != nil {
			return nil, err
		}
		for _, k := range keys {
			if home := p.log.Partition(k); home != partition {
				p.tell(k, Finding{Rule: FramePlace, Detail: fmt.Sprintf("its log is in partition %d, it belongs to %d", partition, home)})
				continue
			}
			all = append(all, k)
		}
	}
	commanded, err := p.log.Commanded(ctx, tenant)
	all = append(all, commanded...)
	slices.SortFunc(all, eventlog.Key.Compare)
	return slices.Compact(all), err
}

// session reads what is stored of a session in an order in which a live one
// cannot look broken: the inbox and the snapshot before the head.
func (p *pass) session(ctx context.Context, k eventlog.Key) error {
	p.count.sessions.Add(1)
	waiting, err := p.log.Inbox(ctx, k)
	if err != nil {
		return err
	}
	c := NewChecker(k)
	snapshot, err := p.log.Snapshot(ctx, k)
	switch {
	case errors.Is(err, eventlog.ErrUnavailable) || ctx.Err() != nil:
		return err
	case err != nil:
		p.tell(k, Finding{Rule: Unreadable, Detail: err.Error()})
	default:
		c.Snapshot(snapshot)
	}
	head, err := p.log.Head(ctx, k)
	if errors.Is(err, eventlog.ErrUnavailable) || ctx.Err() != nil {
		return err
	}
	if err != nil {
		p.tell(k, Finding{Rule: Unreadable, Detail: err.Error()})
		return nil
	}
	if err := p.frames(ctx, c, k, head); err != nil {
		return err
	}
	p.tell(k, c.Findings()...)
	p.remember(k, c)
	return p.beside(ctx, k, c, head, waiting)
}

func (p *pass) frames(ctx context.Context, c *Checker, k eventlog.Key, head eventlog.Head) error {
	for f, err := range p.log.Stored(ctx, k, head) {
		if err != nil && f.Pos == 0 {
			return err
		}
		c.Frame(f, err)
		p.count.frames.Add(1)
		p.count.bytes.Add(int64(len(f.Data)))
	}
	p.count.events.Add(int64(c.Seq()))
	if c.Seq() != head.Seq {
		p.tell(k, Finding{Rule: SeqDense, Detail: fmt.Sprintf("the log ends at event %d, its head says %d", c.Seq(), head.Seq)})
	}
	return nil
}

// remember notes which runs the log has.
func (p *pass) remember(k eventlog.Key, c *Checker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range c.Session().Runs {
		p.count.runs.Add(1)
		p.seen[p.hash(k, r.RunID)] = r.Book.First
	}
}

func (p *pass) hash(k eventlog.Key, runID string) uint64 {
	return maphash.Comparable(p.seed, [3]string{k.Tenant, k.Session, runID})
}

// accepted checks that a run of the runs index is there, and where it was
// promised to be.
func (p *pass) accepted(ctx context.Context, k eventlog.Key, ref eventlog.RunRef) error {
	p.mu.Lock()
	first, there := p.seen[p.hash(k, ref.RunID)]
	p.mu.Unlock()
	if !there {
		var err error
		if first, there, err = p.find(ctx, k, ref.RunID); err != nil {
			return err
		}
	}
	if !there {
		p.tell(k, Finding{RunID: ref.RunID, Rule: RunLost, Detail: "the run was accepted and is neither in the log nor in the inbox"})
	}
	if first != 0 && first <= ref.After {
		p.tell(k, Finding{Seq: first, RunID: ref.RunID, Rule: RunLost, Detail: fmt.Sprintf("the run begins here, clients read it after event %d", ref.After)})
	}
	return nil
}

// find looks for a run that came while the sessions were read.
func (p *pass) find(ctx context.Context, k eventlog.Key, runID string) (first event.Seq, there bool, err error) {
	waiting, err := p.log.Inbox(ctx, k)
	if err != nil {
		return 0, false, err
	}
	for _, w := range waiting {
		there = there || w.RunID == runID
	}
	s, _, err := p.log.Load(ctx, k)
	if err != nil {
		return 0, there, err
	}
	if r := s.Run(runID); r != nil {
		return r.Book.First, true, nil
	}
	return 0, there, nil
}

// beside checks what belongs to a session besides its log.
func (p *pass) beside(ctx context.Context, k eventlog.Key, c *Checker, head eventlog.Head, waiting []eventlog.Waiting) error {
	s := c.Session()
	var late []string // commands that somebody should have taken
	for _, w := range waiting {
		if time.Since(w.Stored) > p.opts.Grace {
			late = append(late, w.CommandID)
		}
	}
	if err := p.waits(ctx, k, s, head); err != nil {
		return err
	}
	if len(late) == 0 && (s.Idle() || time.Since(head.Time) < p.opts.Grace) {
		return nil
	}
	return p.attended(ctx, k, s, head, late)
}

// waits checks that the wait of a parked run ends.
func (p *pass) waits(ctx context.Context, k eventlog.Key, s *event.Session, head eventlog.Head) error {
	run := s.Parked()
	if run == nil || run.ExpiresAt == nil || time.Since(head.Time) < p.opts.Grace {
		return nil
	}
	until := run.ExpiresAt.Format(time.RFC3339)
	if time.Since(run.ExpiresAt.Time) > p.opts.Grace {
		p.tell(k, Finding{Seq: s.Seq, RunID: run.RunID, Rule: WaitOverdue, Detail: fmt.Sprintf("the run still waits (%s), it was to go on at %s", run.Status, until)})
		return nil
	}
	timed, err := p.log.Timed(ctx, k)
	if err != nil || timed {
		return err
	}
	if ticketed, err := p.log.Ticketed(ctx, k); err != nil || ticketed {
		return err // its owner is still at it
	}
	now, err := p.log.Head(ctx, k)
	if err == nil && now.Pos == head.Pos {
		p.tell(k, Finding{Seq: s.Seq, RunID: run.RunID, Rule: WaitTimed, Detail: fmt.Sprintf("the run waits (%s) until %s, and nothing will end that", run.Status, until)})
	}
	return err
}

// attended checks that somebody looks after a session with work, or soon will.
func (p *pass) attended(ctx context.Context, k eventlog.Key, s *event.Session, head eventlog.Head, late []string) error {
	ticketed, err := p.log.Ticketed(ctx, k)
	if err != nil || ticketed {
		return err
	}
	now, err := p.log.Head(ctx, k) // it may have been done meanwhile
	if err != nil || now.Pos != head.Pos {
		return err
	}
	if !s.Idle() {
		p.tell(k, Finding{Seq: head.Seq, Rule: TicketMissing, Detail: "there is a run to go on with and no ticket: nobody will look"})
	}
	waiting, err := p.log.Inbox(ctx, k)
	if err != nil {
		return err
	}
	for _, w := range waiting {
		switch {
		case !slices.Contains(late, w.CommandID):
		case s.Knows(w.CommandID):
			p.tell(k, Finding{Seq: head.Seq, RunID: w.RunID, Rule: InboxAnswered, Detail: fmt.Sprintf("command %s (%s) is answered and still in the inbox", w.CommandID, w.Kind)})
		default:
			p.tell(k, Finding{Seq: head.Seq, RunID: w.RunID, Rule: TicketMissing, Detail: fmt.Sprintf("command %s (%s) waits since %s without a ticket", w.CommandID, w.Kind, w.Stored.Format(time.RFC3339))})
		}
	}
	return nil
}
