package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/edge/room"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// A whole conversation can be large, and what is done with it takes several times its
// size. So conversations that are not small
//
//   - are loaded a few at a time (turns): each has a turn until its fold is not needed any
//     more, or was encoded for the client;
//   - are sent to as many clients at a time as there is room for (told): what one is sent
//     counts until the client has taken it or has gone.
//
// A load that finds no turn or no room waits for a while, and then fails with ErrCrowded.
type loads struct {
	turns turns
	told  room.Room
}

// smallFold is the size, in bytes, up to which a conversation needs no turn and no room.
const smallFold = 64 << 10

// ErrCrowded: a large conversation can neither be loaded nor told now.
var ErrCrowded = errors.New("too many large conversations are being read at this edge; try again, or another one")

func (l *loads) init(o *Options) {
	l.turns.init(o.Budget.Folds)
	l.told = room.Room{Most: o.Budget.Told, Ledger: o.Ledger, UpTo: o.Budget.Requests}
}

// A Hold is what a request that answers with a whole conversation has in memory. It is
// used by one goroutine at a time. The zero Hold counts nothing.
type Hold struct {
	share   room.Share
	turn    func()    // nil: it has none
	patient bool      // waits for room and a turn as long as its context does
	came    time.Time // since when it waits; zero: since it has to
}

// Hold returns one for an answer to a tenant. Drop it.
func (h *Hub) Hold(tenant string) *Hold {
	return &Hold{share: room.Share{Room: &h.loads.told, Tenant: tenant}}
}

// Encoded says that the fold is not needed any more: it has become n bytes that are sent.
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

func (h *Hold) hasTurn() bool { return h != nil && h.turn != nil }

func (h *Hold) endTurn() {
	if h.turn != nil {
		h.turn()
		h.turn = nil
	}
}

// Load returns a session's fold as eventlog.Log.Load does, or ErrCrowded. A request that
// answers with the conversation brings a Hold, which has the turn until Encoded or Drop.
// Without one the fold is looked at and let go.
func (h *Hub) Load(ctx context.Context, k eventlog.Key, hold *Hold) (*event.Session, eventlog.Head, error) {
	e := entrance{hub: h, tenant: k.Tenant, hold: hold}
	if hold == nil {
		e.hold = &Hold{}
		defer e.hold.Drop()
	}
	e.hold.endTurn() // nobody has two
	for {
		s, head, err := h.log.LoadThrough(ctx, k, e.try)
		var large *largeError
		if errors.As(err, &large) {
			err = e.pass(ctx, large.bytes)
			if err == nil {
				continue
			}
		}
		if err != nil {
			e.hold.Drop()
		}
		return s, head, err
	}
}

// A largeError ends a load that has to wait for room or a turn before it may take so many
// bytes: it lets go of what it has read, waits, and begins again. Hundreds that wait would
// have an event each, which can be large.
type largeError struct{ bytes int }

func (e *largeError) Error() string { return fmt.Sprintf("to load %d bytes takes a turn", e.bytes) }

// An entrance is an eventlog.Gate: its hold gets room and a turn once the load is not
// small any more.
type entrance struct {
	hub    *Hub
	tenant string
	hold   *Hold
}

// entrance is the gate of a fold that is only looked at, until its hold is dropped. A
// viewer that has a turn already needs no second one, for which it could wait in vain.
func (v *Viewer) entrance() *entrance {
	hold := &Hold{}
	if v.kept.hasTurn() {
		hold.turn = func() {}
	}
	return &entrance{hub: v.hub, tenant: v.req.Key.Tenant, hold: hold}
}

// try is the gate of a load that is begun again after a largeError.
func (e *entrance) try(_ context.Context, bytes int) error {
	if bytes <= smallFold || e.hold.turn != nil || e.enterNow(int64(bytes)) {
		return nil
	}
	return &largeError{bytes}
}

// enterNow is enter for whom there is room and a turn.
func (e *entrance) enterNow(n int64) (ok bool) {
	share := &e.hold.share
	if !share.Grow(n) {
		return false
	}
	if e.hold.turn, ok = e.hub.loads.turns.takeNow(e.tenant); !ok {
		share.Set(share.Size() - n)
	}
	return ok
}

// pass is the gate of what waits with all that it has.
func (e *entrance) pass(ctx context.Context, bytes int) error {
	if bytes <= smallFold || e.hold.turn != nil {
		return nil
	}
	if e.hold.patient {
		return e.enter(ctx, int64(bytes))
	}
	return e.hub.patiently(ctx, e.hold.came, func(ctx context.Context) error { return e.enter(ctx, int64(bytes)) })
}

// enter waits for room and then for a turn. Meanwhile others may have become larger than
// when they were let in, so that there is no room any more: then it waits once more.
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

// patiently has somebody who came at a time, zero for now, wait for Options.LoadWait at
// most: then it is ErrCrowded.
func (h *Hub) patiently(ctx context.Context, came time.Time, wait func(context.Context) error) error {
	if came.IsZero() {
		came = time.Now()
	}
	ctx, cancel := context.WithDeadlineCause(ctx, came.Add(h.opts.LoadWait), ErrCrowded)
	defer cancel()
	err := wait(ctx)
	if errors.Is(err, ErrCrowded) {
		h.opts.Observe.Crowded()
	}
	return err
}

// keep counts what the viewer's encoder keeps and will send once more, and what it makes of
// the event that follows. A replay waits for room, and where the client gets an answer
// only at its end (Request.Hold) for a turn too. A run that goes on is followed whether or
// not there is room: it grows no faster than a model speaks, and could not be asked for
// again.
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
		return v.hub.patiently(ctx, time.Time{}, func(ctx context.Context) error { return v.kept.share.Await(ctx, more) })
	}
	v.kept.share.Set(int64(n))
	return nil
}
