package eventlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/runlog-dev/runlog/event"
)

// ErrBusy: whoever was asked has no time.
var ErrBusy = errors.New("busy")

// An offer is a ticket on its way from one worker to another.
type offer struct {
	Tenant    string    `json:"tenant"`
	Session   string    `json:"session"`
	Delivered int       `json:"delivered"`
	Pos       uint64    `json:"pos"`
	Placed    time.Time `json:"placed"`
	Ack       string    `json:"ack"`
}

// offerTimeout is how long the worker that is asked may take to answer.
const offerTimeout = 2 * time.Second

// Offer hands the ticket to a worker that has the agent: see OnOffer. ErrNotFound:
// there is none. ErrBusy: the one that was asked has no free slot. After any other
// error it may have the ticket nevertheless; if not, it comes back after a lease.
func (t *Ticket) Offer(ctx context.Context, agent string) error {
	ctx, cancel := context.WithTimeout(ctx, offerTimeout)
	defer cancel()
	o := offer{t.Key.Tenant, t.Key.Session, t.Delivered, t.Pos, t.Placed, t.ack}
	answer, err := t.log.nc.RequestWithContext(ctx, offerSubject(agent), event.Encode(o))
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("offer the ticket of %s: worker with agent %s: %w", t.Key, agent, ErrNotFound)
	case err != nil:
		return unavailable(fmt.Errorf("offer the ticket of %s: %w", t.Key, err))
	case string(answer.Data) != taken:
		return fmt.Errorf("offer the ticket of %s: %w", t.Key, ErrBusy)
	}
	return nil
}

const taken = "taken"

func offerSubject(agent string) string { return "offer." + token(agent) }

// OnOffer calls take, from one goroutine, with tickets of sessions that need the
// agent and that other workers cannot serve. It says whether it takes them, and
// must not wait.
func (l *Log) OnOffer(agent string, take func(*Ticket) bool) (stop func(), err error) {
	sub, err := l.nc.QueueSubscribe(offerSubject(agent), "workers", func(m *nats.Msg) {
		var o offer
		answer := "busy"
		if json.Unmarshal(m.Data, &o) == nil && take(l.offered(o)) {
			answer = taken
		}
		_ = m.Respond([]byte(answer))
	})
	if err != nil {
		return nil, unavailable(fmt.Errorf("listen for offers to %s: %w", agent, err))
	}
	return func() { _ = sub.Unsubscribe() }, nil
}

func (l *Log) offered(o offer) *Ticket {
	return &Ticket{Key: Key{Tenant: o.Tenant, Session: o.Session}, Delivered: o.Delivered, Pos: o.Pos, Placed: o.Placed, log: l, ack: o.Ack}
}
