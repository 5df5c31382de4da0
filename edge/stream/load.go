package stream

import (
	"context"
	"errors"
	"runtime"
	"time"

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
	l := &e.hub.loads
	ctx, cancel := context.WithTimeoutCause(ctx, l.wait, ErrCrowded)
	defer cancel()
	err := e.hold.share.Await(ctx, int64(bytes))
	if err == nil {
		e.hold.turn, err = l.turns.take(ctx, e.tenant)
	}
	if fn := e.hub.opts.Observe.Crowded; fn != nil && errors.Is(err, ErrCrowded) {
		fn()
	}
	return err
}
