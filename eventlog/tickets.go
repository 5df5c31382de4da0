package eventlog

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

// Ticket puts the session into the work queue. ErrTicketed if a ticket is
// outstanding, which does not prove that its holder will still look: see Wake.
func (l *Log) Ticket(ctx context.Context, k Key) error {
	_, err := l.js.Publish(ctx, "jobs."+k.suffix(), nil)
	if apiCode(err) == errPerSubject {
		return ErrTicketed
	}
	if err != nil {
		return unavailable(fmt.Errorf("ticket for %s: %w", k, err))
	}
	return nil
}

// Tickets hands out tickets to the workers of this process.
type Tickets struct {
	log   *Log
	heard atomic.Int64 // when the server last answered, Unix nanoseconds
}

// Silence is how long the server has answered none of those who wait in Next:
// with a ticket, or with signs of life while there is none.
func (t *Tickets) Silence() time.Duration { return time.Since(time.Unix(0, t.heard.Load())) }

// Tickets opens the work queue.
func (l *Log) Tickets(ctx context.Context) (*Tickets, error) {
	if _, err := l.js.Consumer(ctx, jobsStream, l.consumer()); err != nil {
		return nil, unavailable(fmt.Errorf("open tickets: %w", err))
	}
	t := &Tickets{log: l}
	t.heard.Store(time.Now().UnixNano())
	return t, nil
}

// A Ticket says that a session has something to do. Its holder keeps it alive
// and releases it; a ticket that is not kept alive for a lease is handed out
// again. Holding one is no proof of owning the session.
type Ticket struct {
	Key       Key
	Delivered int    // how often it was handed out: 1, 2, …
	Pos       uint64 // its stream position, the same each time
	Placed    time.Time

	log *Log
	ack string // where to answer
}

// Next waits for one ticket. It takes no more than it returns.
func (t *Tickets) Next(ctx context.Context) (*Ticket, error) {
	for {
		var ticket *Ticket
		err := t.log.pull(ctx, jobsStream, t.log.consumer(), 1, func(msg *nats.Msg) (err error) {
			ticket, err = t.ticket(msg)
			return err
		})
		if errors.Is(err, errSilent) {
			err = t.log.Flush() // whoever hears nothing must not ask: a ticket sent to it is lost for a lease
			if err == nil {
				continue // Silence tells how long this goes on
			}
		}
		if err == nil {
			t.heard.Store(time.Now().UnixNano())
		}
		if ticket != nil {
			return ticket, nil
		}
		if err != nil {
			return nil, fmt.Errorf("next ticket: %w", err)
		}
	}
}

func (t *Tickets) ticket(msg *nats.Msg) (*Ticket, error) {
	meta, err := msg.Metadata()
	if err != nil {
		return nil, fmt.Errorf("next ticket: %w", err)
	}
	tk := tokens(msg.Subject)
	if len(tk) != 3 {
		return nil, errors.Join(fmt.Errorf("ticket on subject %q", msg.Subject), t.log.answer(msg.Reply, never))
	}
	k, err := parseKey(tk[1], tk[2])
	if err != nil {
		return nil, errors.Join(err, t.log.answer(msg.Reply, never))
	}
	return &Ticket{Key: k, Delivered: int(meta.NumDelivered), Pos: meta.Sequence.Stream, Placed: meta.Timestamp, log: t.log, ack: msg.Reply}, nil
}

// KeepAlive extends the ticket by a lease. Its failure is no loss of ownership.
func (t *Ticket) KeepAlive() error { return t.log.answer(t.ack, inProgress) }

// Release takes the ticket out of the queue. It deletes it by its stream
// position: unlike an ack, that lets the next ticket in at once. Whoever
// releases looks at the inbox again afterwards.
func (t *Ticket) Release(ctx context.Context) error {
	return t.log.deleteMsg(ctx, jobsStream, t.Pos)
}

// Return gives the ticket to another worker at once.
func (t *Ticket) Return() error { return t.log.answer(t.ack, notNow) }

// ReturnIn gives the ticket to any worker after a while.
func (t *Ticket) ReturnIn(wait time.Duration) error {
	return t.log.answer(t.ack, fmt.Sprintf(`%s {"delay":%d}`, notNow, wait.Nanoseconds()))
}
