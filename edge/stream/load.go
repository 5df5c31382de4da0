package stream

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/edge/room"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// Whole conversations are as large as they have become, and what is done with them takes
// some times as much again. So those that are not small
//
//   - are loaded a few at a time: each has a turn, until its fold is not needed or has
//     become what the client is told (loads);
//   - are told to so many clients at a time as there is room for: what one is told counts
//     from then on until the client has taken it or has gone (told).
//
// Whoever finds no turn or no room waits for a while, and is told then that there is none.
type loads struct {
	turns turns
	told  room.Room
	wait  time.Duration
}

// smallFold is up to which size a conversation is loaded and told without a turn or room.
const smallFold = 64 << 10

// ErrCrowded: a large conversation can neither be loaded nor told now.
var ErrCrowded = errors.New("too many large conversations are being read at this edge; try again, or another one")

// atOnce is how many folds are made at once: it takes a processor, and some times the
// size of the conversation in memory.
func atOnce(memory int64) int {
	n := runtime.GOMAXPROCS(0)
	if memory > 0 {
		n = min(n, max(1, int(memory>>26)))
	}
	return n
}

func (l *loads) init(o *Options) {
	l.turns.init(atOnce(o.Memory))
	l.told.Most = o.ToldBytes
	l.wait = o.LoadWait
}

// A Hold is what somebody who tells a whole conversation has of it in memory. It is used
// by one goroutine at a time; the zero Hold counts nothing.
type Hold struct {
	share room.Share
	turn  func() // nil: it has none
}

// Hold returns one for what a tenant is told.
func (h *Hub) Hold(tenant string) *Hold {
	return &Hold{share: room.Share{Room: &h.loads.told, Tenant: tenant}}
}

// Encoded says that the fold is not needed any more, but the n bytes that it has become.
func (h *Hold) Encoded(n int) {
	if n <= smallFold {
		n = 0
	}
	h.share.Set(int64(n))
	h.endTurn()
}

// Drop says that nothing of it is needed any more. It may be called again.
func (h *Hold) Drop() {
	if h != nil {
		h.share.GiveUp()
		h.endTurn()
	}
}

func (h *Hold) endTurn() {
	if h.turn != nil {
		h.turn()
		h.turn = nil
	}
}

// Load returns a session's fold as eventlog.Log.Load does, or ErrCrowded. Whoever wants
// to tell it brings a Hold, and says there what becomes of it: its turn ends no sooner.
// Without one the fold is only looked at.
func (h *Hub) Load(ctx context.Context, k eventlog.Key, hold *Hold) (*event.Session, eventlog.Head, error) {
	e := entrance{hub: h, tenant: k.Tenant, hold: hold}
	if hold == nil {
		e.hold = &Hold{}
		defer e.hold.Drop()
	}
	e.hold.endTurn() // nobody has two
	s, head, err := h.log.LoadThrough(ctx, k, e.pass)
	if err != nil {
		e.hold.Drop()
	}
	return s, head, err
}

// An entrance is the gate of a load, whose hold gets what it needs once it is not small
// any more.
type entrance struct {
	hub    *Hub
	tenant string
	hold   *Hold
}

func (e *entrance) pass(ctx context.Context, bytes int) error {
	if bytes <= smallFold || e.hold.turn != nil {
		return nil
	}
	return e.hub.patiently(ctx, func(ctx context.Context) error { return e.enter(ctx, int64(bytes)) })
}

// enter waits for room and then for a turn, by which others may have become larger than
// they were when they were let in.
func (e *entrance) enter(ctx context.Context, n int64) error {
	share := &e.hold.share
	for {
		if err := share.Await(ctx, n); err != nil {
			return err
		}
		turn, err := e.hub.loads.turns.take(ctx, e.tenant)
		if err != nil {
			return err
		}
		if share.Fits() {
			e.hold.turn = turn
			return nil
		}
		turn()
		share.Set(share.Size() - n)
	}
}

// patiently waits, but no longer than anybody waits for room.
func (h *Hub) patiently(ctx context.Context, wait func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, h.loads.wait, ErrCrowded)
	defer cancel()
	err := wait(ctx)
	if fn := h.opts.Observe.Crowded; fn != nil && errors.Is(err, ErrCrowded) {
		fn()
	}
	return err
}

// keep counts what the viewer's encoder keeps, and will say once more, and what becomes of
// the event that it is given next. For a replay there has to be room; one that nobody
// reads meanwhile is a load like others. A run that is going on is followed all the same:
// it grows no faster than a model speaks, and could not be asked for again.
func (v *Viewer) keep(ctx context.Context, e *entry) error {
	k, ok := v.encoder.(dialect.Keeping)
	if !ok {
		return nil
	}
	n := 2*k.Kept() + 4*len(e.line)
	if n <= smallFold {
		n = 0
	}
	if v.req.Hold != nil && !v.caught {
		gate := entrance{hub: v.hub, tenant: v.req.Key.Tenant, hold: v.kept}
		if err := gate.pass(ctx, n); err != nil {
			return err
		}
	} else if more := int64(n) - v.kept.share.Size(); more > 0 && !v.caught && !v.kept.share.Grow(more) {
		return v.hub.patiently(ctx, func(ctx context.Context) error { return v.kept.share.Await(ctx, more) })
	}
	v.kept.share.Set(int64(n))
	return nil
}
