package eventlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/runlog-dev/runlog/event"
)

// MaxCommand is the largest encoded command an inbox takes, in bytes.
const MaxCommand = 512 << 10

// inboxSubject: what brings input waits in q, what concerns a running run in c,
// so that a full queue never refuses a cancel.
func inboxSubject(k Key, kind event.Kind) string {
	lane := ".c"
	if kind == event.Invoke || kind == event.Steer {
		lane = ".q"
	}
	return "inbox." + k.suffix() + lane
}

// Submit puts a command into the session's inbox. Once it returns nil the
// command is kept until the session's owner has answered it with an event.
// Submitting the same command again within two minutes changes nothing; later,
// its owner will know it by its id. ErrInboxFull, ErrTooLarge, ErrUnavailable.
func (l *Log) Submit(ctx context.Context, k Key, cmd event.Command) error {
	cmd.V = event.Version
	data := event.Encode(cmd)
	if len(data) > MaxCommand {
		return fmt.Errorf("command of %d bytes, at most %d: %w", len(data), MaxCommand, ErrTooLarge)
	}
	err := settled(ctx, func() (bool, error) {
		_, err := l.js.Publish(ctx, inboxSubject(k, cmd.Kind), data, jetstream.WithMsgID(k.suffix()+"."+cmd.CommandID))
		return apiCode(err) == errSameInProcess, err
	})
	if apiCode(err) == errPerSubject {
		return fmt.Errorf("submit to %s: %d commands wait: %w", k, maxWaiting, ErrInboxFull)
	}
	if err != nil {
		return unavailable(fmt.Errorf("submit to %s: %w", k, err))
	}
	return nil
}

// A Waiting is a command in an inbox. Its position orders and removes it.
type Waiting struct {
	event.Command
	Pos    uint64
	Stored time.Time
}

// Inbox reads the waiting commands from the leader: those about running runs
// first, then input, each in order.
func (l *Log) Inbox(ctx context.Context, k Key) ([]Waiting, error) {
	var all []Waiting
	for _, kind := range []event.Kind{event.Cancel, event.Invoke} {
		list, err := l.lane(ctx, inboxSubject(k, kind))
		if err != nil {
			return nil, fmt.Errorf("inbox of %s: %w", k, err)
		}
		all = append(all, list...)
	}
	return all, nil
}

func (l *Log) lane(ctx context.Context, subject string) ([]Waiting, error) {
	var list []Waiting
	for pos := uint64(1); ; {
		m, err := l.leaderGet(ctx, inboxStream, getRequest{Seq: pos, NextBy: subject})
		if errors.Is(err, ErrNotFound) {
			return list, nil
		}
		if err != nil {
			return nil, err
		}
		w := Waiting{Pos: m.Pos, Stored: m.Time}
		if err := json.Unmarshal(m.Data, &w.Command); err != nil {
			w.Command = event.Command{Kind: "unreadable", Reason: err.Error()}
		}
		list, pos = append(list, w), m.Pos+1
	}
}

// Answered removes a command whose answering event is committed. Removing one
// that is gone already is fine.
func (l *Log) Answered(ctx context.Context, pos uint64) error {
	return l.deleteMsg(ctx, inboxStream, pos)
}

// deleteMsg removes a message by stream position, without overwriting its bytes. One that
// is gone already is fine.
func (l *Log) deleteMsg(ctx context.Context, stream string, pos uint64) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req := struct {
		Seq     uint64 `json:"seq"`
		NoErase bool   `json:"no_erase"`
	}{pos, true}
	msg, err := l.nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.DELETE."+stream, event.Encode(req))
	if err != nil {
		return unavailable(fmt.Errorf("delete %d of %s: %w", pos, stream, err))
	}
	var res struct {
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(msg.Data, &res); err != nil {
		return fmt.Errorf("delete %d of %s: %w", pos, stream, err)
	}
	if res.Error == nil || res.Error.Code == 404 {
		return nil
	}
	switch res.Error.ErrorCode {
	case errNoMessage, errNoSequence, errNotDeleted:
		return nil
	}
	return unavailable(fmt.Errorf("delete %d of %s: %w", pos, stream, res.Error))
}

// OnCommand calls fn, from one goroutine, whenever a command reaches the
// session's inbox. Calls may be lost with the connection: look as well from
// time to time.
func (l *Log) OnCommand(k Key, fn func()) (stop func(), err error) {
	sub, err := l.nc.Subscribe("wake."+k.suffix()+".*", func(*nats.Msg) { fn() })
	if err != nil {
		return nil, unavailable(fmt.Errorf("listen for commands of %s: %w", k, err))
	}
	return func() { _ = sub.Unsubscribe() }, nil
}

// Overdue lists the sessions whose inbox holds a command older than age.
func (l *Log) Overdue(ctx context.Context, age time.Duration) ([]Key, error) {
	limit := time.Now().Add(-age)
	seen := map[Key]bool{}
	var keys []Key
	for pos := uint64(1); ; {
		m, err := l.leaderGet(ctx, inboxStream, getRequest{Seq: pos, NextBy: "inbox.>"})
		if errors.Is(err, ErrNotFound) {
			return keys, nil
		}
		if err != nil {
			return keys, fmt.Errorf("look for overdue commands: %w", err)
		}
		if m.Time.After(limit) {
			return keys, nil // the rest is younger
		}
		pos = m.Pos + 1
		if t := tokens(m.Subject); len(t) == 4 {
			if k, err := parseKey(t[1], t[2]); err == nil && !seen[k] {
				seen[k] = true
				keys = append(keys, k)
			}
		}
	}
}
