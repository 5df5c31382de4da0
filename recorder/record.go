package recorder

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/runlog-dev/runlog/catalog"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

const (
	forever = math.MaxUint64
	// maxBytes bounds a batch besides the number of its events.
	maxBytes = 4 << 20
	// ahead is how many frames are read before they are asked for.
	ahead = 16
	// quiet is how much longer than others frames wait in which nothing is
	// projected: only the position has to be moved for them.
	quiet = 20
)

// record goes on from the catalog's position until it is at end, and asks every
// third of a lease whether to go on: nil ends it too.
func (p *partition) record(ctx context.Context, end uint64, goOn func(context.Context) (bool, error)) error {
	if err := p.locate(ctx); err != nil || p.at >= end {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	frames, ended := p.pump(ctx)
	defer func() {
		stop()
		for range ended { // until the goroutine is done
		}
	}()

	tick := time.NewTicker(p.opts.Lease / 3)
	defer tick.Stop()
	due := time.NewTimer(time.Hour)
	defer due.Stop()
	for b := (batch{upto: p.at}); p.at < end; {
		flush := false
		select {
		case <-tick.C:
			if led, err := goOn(ctx); err != nil || !led {
				return err
			}
		case <-due.C:
			flush = true
		case f, ok := <-frames:
			if !ok { // what was read stays read, or a frame that cannot be would be met for ever
				return errors.Join(<-ended, p.flush(ctx, b))
			}
			if wait, sooner := b.add(f, p.opts.Wait); sooner {
				due.Reset(wait)
			}
			flush = b.events >= p.opts.Batch || b.bytes >= maxBytes || b.upto >= end
		}
		if !flush {
			continue
		}
		if err := p.flush(ctx, b); err != nil {
			return err
		}
		b = batch{upto: p.at}
	}
	return nil
}

// locate reads where to go on.
func (p *partition) locate(ctx context.Context) error {
	at, err := p.db.Position(ctx, p.n)
	if err != nil {
		return err
	}
	p.at, p.located = at, true
	end, err := p.source.End(ctx, p.n)
	if err != nil {
		return err
	}
	if at > end {
		return fmt.Errorf("the catalog has recorded up to frame %d, the log ends at %d: %w", at, end, ErrAhead)
	}
	return nil
}

// A frame is what the catalog wants of a stored one.
type frame struct {
	pos    uint64
	tenant string
	events []event.Event
	bytes  int
}

// pump reads the log until ctx ends or reading fails, a few frames ahead. ended
// gives the reason and is closed when the goroutine is done.
func (p *partition) pump(ctx context.Context) (<-chan frame, <-chan error) {
	frames, ended := make(chan frame, ahead), make(chan error, 1)
	after := p.at
	go func() {
		defer close(ended)
		defer close(frames)
		ended <- p.read(ctx, after, frames)
	}()
	return frames, ended
}

func (p *partition) read(ctx context.Context, after uint64, to chan<- frame) error {
	for f, err := range p.source.Frames(ctx, p.n, after) {
		switch {
		case err == nil:
		case f.Pos > after && ctx.Err() == nil:
			p.passed("frame passed over: it cannot be read", "position", f.Pos, "err", err)
			f.Data = nil
		default:
			return fmt.Errorf("read the log: %w", err)
		}
		after = f.Pos
		select {
		case to <- p.pick(f):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return errEnded
}

var errEnded = errors.New("the log's stream of frames ended")

// pick decodes what is projected of a frame. A line that is no event is passed
// over: the log cannot be mended, and what follows is worth having.
func (p *partition) pick(f eventlog.Frame) frame {
	picked := frame{pos: f.Pos, tenant: f.Key.Tenant}
	for line := range f.Lines() {
		e, err := event.Decode(line)
		if err != nil {
			p.passed("event passed over: it cannot be read", "tenant", f.Key.Tenant, "session", f.Key.Session, "position", f.Pos, "err", err)
			continue
		}
		if catalog.Projects(e.Type) {
			picked.events = append(picked.events, e)
			picked.bytes += len(line)
		}
	}
	return picked
}

func (p *partition) passed(what string, args ...any) {
	p.log.Error(what, args...)
	if p.opts.Observe.Passed != nil {
		p.opts.Observe.Passed(p.n)
	}
}

// A batch is frames that are written in one transaction.
type batch struct {
	frames []frame // those with events
	events int
	bytes  int
	upto   uint64 // position of the last frame
	waits  bool   // a frame has come
}

func (b *batch) empty() bool { return !b.waits }

// add reports whether the batch is due sooner than it was, and when.
func (b *batch) add(f frame, wait time.Duration) (due time.Duration, sooner bool) {
	first, firstEvents := !b.waits, b.events == 0 && len(f.events) > 0
	b.upto, b.waits = f.pos, true
	if len(f.events) > 0 {
		b.frames = append(b.frames, f)
		b.events += len(f.events)
		b.bytes += f.bytes
	}
	if firstEvents {
		return wait, true
	}
	return quiet * wait, first
}

func (b *batch) content() []catalog.Events {
	content := make([]catalog.Events, len(b.frames))
	for i, f := range b.frames {
		content[i] = catalog.Events{Tenant: f.tenant, Events: f.events}
	}
	return content
}

// flush writes the batch and moves the position.
func (p *partition) flush(ctx context.Context, b batch) error {
	if b.empty() {
		return nil
	}
	began := time.Now()
	err := p.db.ApplyAt(ctx, p.n, p.at, b.upto, b.content())
	if errors.Is(err, catalog.ErrRefused) {
		err = p.sift(ctx, b)
	}
	if err != nil {
		return err
	}
	p.at, p.pause = b.upto, 0
	if p.opts.Observe.Recorded != nil {
		p.opts.Observe.Recorded(p.n, b.events, p.at, time.Since(began))
	}
	return nil
}

// sift writes a batch that the catalog refuses event by event, so that only what
// it will never take is left out, and then moves the position.
func (p *partition) sift(ctx context.Context, b batch) error {
	for _, f := range b.frames {
		for _, e := range f.events {
			err := p.db.ApplyAt(ctx, p.n, p.at, p.at, []catalog.Events{{Tenant: f.tenant, Events: []event.Event{e}}})
			if errors.Is(err, catalog.ErrRefused) {
				p.passed("event passed over: the catalog refuses it", "tenant", f.tenant, "session", e.SessionID,
					"run", e.RunID, "seq", e.Seq, "type", e.Type, "err", err)
			} else if err != nil {
				return err
			}
		}
	}
	return p.db.ApplyAt(ctx, p.n, p.at, b.upto, nil)
}
