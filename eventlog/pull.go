package eventlog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/runlog-dev/runlog/event"
)

// errSilent: the server has not shown for a while that it keeps a request.
var errSilent = errors.New("no sign of life from the server")

// nextRequest asks a consumer for messages.
type nextRequest struct {
	Batch     int           `json:"batch"`
	Expires   time.Duration `json:"expires"`
	Heartbeat time.Duration `json:"idle_heartbeat"`
}

// pull asks once for up to n messages and hands them on as they come; none in
// time is no error, errSilent says that the server has gone silent. The request
// is good for half a lease: those of a process that froze are void before what
// it held comes back, which they would swallow else. When pull returns, the
// request is void too, and what came too late for it is given back: a client of
// the library's own returns before that, and a process that stops would take a
// ticket along.
func (l *Log) pull(ctx context.Context, stream, consumer string, n int, take func(*nats.Msg) error) error {
	msgs := make(chan *nats.Msg, n+8)
	inbox := l.nc.NewInbox()
	sub, err := l.nc.ChanSubscribe(inbox, msgs)
	if err != nil {
		return unavailable(err)
	}
	req := nextRequest{Batch: n, Expires: l.opts.Lease / 2, Heartbeat: l.opts.Lease / 8}
	if err := l.nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+stream+"."+consumer, inbox, event.Encode(req)); err != nil {
		return unavailable(errors.Join(err, sub.Unsubscribe()))
	}
	over, err := receive(ctx, msgs, n, 2*req.Heartbeat, take)
	if over {
		_ = sub.Unsubscribe()
		return err
	}
	l.giveBack(sub, msgs)
	return err
}

// receive takes the answers to a request; over if the server has told its end.
func receive(ctx context.Context, msgs <-chan *nats.Msg, n int, patience time.Duration, take func(*nats.Msg) error) (over bool, err error) {
	silence := time.NewTimer(patience)
	defer silence.Stop()
	for n > 0 {
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-silence.C:
			if len(msgs) == 0 {
				return false, errSilent
			}
			silence.Reset(patience) // it was take that took so long
		case m := <-msgs:
			silence.Reset(patience)
			switch status := m.Header.Get("Status"); status {
			case "":
				n--
				if err := take(m); err != nil {
					return false, err
				}
			case "100": // it lives
			case "404", "408": // nothing came
				return true, nil
			case "503":
				return true, unavailable(nats.ErrNoResponders)
			default: // the consumer has moved to another server, or is gone
				return true, errors.Join(ErrUnavailable, fmt.Errorf("%s %s", status, m.Header.Get("Description")))
			}
		}
	}
	return true, nil
}

// giveBack ends a request of which the server does not know yet that nobody
// waits, and returns what it has sent meanwhile.
func (l *Log) giveBack(sub *nats.Subscription, msgs <-chan *nats.Msg) {
	_ = sub.Drain() // what is on its way still comes
	_ = l.nc.FlushTimeout(2 * time.Second)
	for {
		select {
		case m := <-msgs:
			if m.Header.Get("Status") == "" && m.Reply != "" {
				_ = l.answer(m.Reply, notNow)
			}
		default:
			return
		}
	}
}

// Answers to a message of a work queue.
const (
	done       = "+ACK"
	notNow     = "-NAK"
	inProgress = "+WPI"
	never      = "+TERM"
)

func (l *Log) answer(reply, how string) error {
	if err := l.nc.Publish(reply, []byte(how)); err != nil {
		return unavailable(err)
	}
	return nil
}
