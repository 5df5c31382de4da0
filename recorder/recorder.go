package recorder

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/runlog-dev/runlog/catalog"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// Source is the log as the recorder reads it: *eventlog.Log.
type Source interface {
	Partitions() int
	// End is the stream position of a partition's last frame, 0 before the first.
	End(ctx context.Context, partition int) (uint64, error)
	// Frames yields the frames after a position, then those that come, until
	// ctx ends or an error does. A frame that comes with an error and its Pos
	// cannot be read, ever, and is passed over.
	Frames(ctx context.Context, partition int, after uint64) iter.Seq2[eventlog.Frame, error]
}

// A Recorder projects the log into the catalog. State of its own it has none:
// the position is in the catalog.
type Recorder struct {
	source Source
	db     *catalog.DB
	opts   Options
}

// Options of New. The zero value works.
type Options struct {
	// Name tells this recorder from others; random if empty.
	Name string
	// Batch is how many events are written at once; 500 if 0.
	Batch int
	// Wait is how long an event waits for others to be written with; 50 ms if
	// 0. Frames in which nothing is projected wait twenty times as long.
	Wait time.Duration
	// Lease is how long a partition waits for a recorder that died; 6 s if 0.
	Lease time.Duration
	// Log is silent if nil.
	Log     *slog.Logger
	Observe Observer
}

// An Observer is told what happens, for metrics, by several goroutines. Any
// field may be nil.
type Observer struct {
	// Lag is told how many frames, at most, of a partition are not recorded
	// yet, by the recorder that has its lease: every third of a lease, and
	// after each failure.
	Lag func(partition int, frames uint64)
	// Recorded is told of each transaction: how many events it projected, and
	// the position up to which the partition is recorded.
	Recorded func(partition int, events int, position uint64, took time.Duration)
	// Failed is told when recording has to wait for the catalog or the log.
	Failed func(partition int, err error)
	// Passed is told of an event or frame that can never be recorded.
	Passed func(partition int)
}

// New starts nothing.
func New(source Source, db *catalog.DB, o Options) *Recorder {
	o.Name = cmp.Or(o.Name, event.NewID("recorder"))
	o.Batch = cmp.Or(o.Batch, 500)
	o.Wait = cmp.Or(o.Wait, 50*time.Millisecond)
	o.Lease = cmp.Or(o.Lease, 6*time.Second)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Recorder{source: source, db: db, opts: o}
}

// Run records every partition that no other recorder has, until ctx ends; then
// it gives its leases back and returns nil. Faults of the catalog and of the log
// are waited out.
func (r *Recorder) Run(ctx context.Context) error {
	r.each(func(p *partition) { p.keep(ctx) })
	return nil
}

// Reindex drops the projection and rebuilds it from the beginning of the log, up
// to where the log ended when it was called; keys stay. Recorders at work help.
// Once the projection was dropped only the end of ctx keeps it from finishing,
// and then any recorder that runs finishes it.
func (r *Recorder) Reindex(ctx context.Context) error {
	if err := r.db.Reset(ctx); err != nil {
		return err
	}
	r.each(func(p *partition) { p.rebuild(ctx) })
	return context.Cause(ctx)
}

// each runs do for all partitions at once and waits.
func (r *Recorder) each(do func(*partition)) {
	var group sync.WaitGroup
	for n := range r.source.Partitions() {
		group.Go(func() { do(&partition{Recorder: r, n: n, log: r.opts.Log.With("partition", n)}) })
	}
	group.Wait()
}

// partition is one of the log's streams on its way into the catalog. It belongs
// to one goroutine.
type partition struct {
	*Recorder
	n       int
	log     *slog.Logger
	at      uint64        // the last position known
	located bool          // at was read
	pause   time.Duration // before the next try; 0 after a success
}

// keep records whenever it has the lease.
func (p *partition) keep(ctx context.Context) {
	for ctx.Err() == nil {
		err := p.turn(ctx)
		switch {
		case ctx.Err() != nil:
		case err == nil || errors.Is(err, catalog.ErrMoved): // another one is at it
			sleep(ctx, p.opts.Lease/3)
		default:
			p.failed(ctx, err)
		}
	}
}

// turn records while this recorder has the lease. It returns nil when another
// one has it.
func (p *partition) turn(ctx context.Context) error {
	led, err := p.db.Lead(ctx, p.n, p.opts.Name, p.opts.Lease)
	if err != nil || !led {
		return err
	}
	defer p.release(ctx)
	return p.record(ctx, forever, p.still)
}

// still extends the lease, and notices a projection that was dropped while no
// frames came.
func (p *partition) still(ctx context.Context) (bool, error) {
	p.observeLag(ctx)
	led, err := p.db.Lead(ctx, p.n, p.opts.Name, p.opts.Lease)
	if err != nil || !led {
		return false, err
	}
	at, err := p.db.Position(ctx, p.n)
	if err == nil && at != p.at {
		err = catalog.ErrMoved
	}
	return true, err
}

// release spares the next recorder the wait, also when ctx has ended.
func (p *partition) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := p.db.Release(ctx, p.n, p.opts.Name); err != nil {
		p.log.Debug("the lease of a partition runs out by itself", "err", err)
	}
}

// rebuild records up to where the log ends now, whoever has the lease.
func (p *partition) rebuild(ctx context.Context) {
	for ctx.Err() == nil {
		err := p.catchUp(ctx)
		switch {
		case err == nil:
			return
		case errors.Is(err, catalog.ErrMoved), ctx.Err() != nil:
		default:
			p.failed(ctx, err)
		}
	}
}

func (p *partition) catchUp(ctx context.Context) error {
	end, err := p.source.End(ctx, p.n)
	if err != nil {
		return err
	}
	return p.record(ctx, end, func(context.Context) (bool, error) { return true, nil })
}

// failed tells of a fault and waits, longer each time.
func (p *partition) failed(ctx context.Context, err error) {
	p.pause = min(max(2*p.pause, 100*time.Millisecond), 10*time.Second)
	p.log.Warn("recording waits", "err", err, "pause", p.pause)
	if p.opts.Observe.Failed != nil {
		p.opts.Observe.Failed(p.n, err)
	}
	p.observeLag(ctx)
	sleep(ctx, p.pause)
}

func (p *partition) observeLag(ctx context.Context) {
	if p.opts.Observe.Lag == nil || !p.located {
		return
	}
	if end, err := p.source.End(ctx, p.n); err == nil {
		p.opts.Observe.Lag(p.n, end-min(end, p.at))
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
