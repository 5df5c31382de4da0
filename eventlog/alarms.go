package eventlog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// An alarm is a timer without a command: a ticket for a session whose own was
// lost. Tickets can be lost: the deletion of one may be under way when its holder
// dies, and come through after the next holder has begun. An owner sets an alarm
// and moves it as long as it lives, so that it never goes off; the server keeps
// it, whoever dies.

// alarmDelay is when an alarm goes off, counted from when it was last set.
func (l *Log) alarmDelay() time.Duration { return l.opts.Lease * 3 / 2 }

// alarmed begins the names of alarms.
const alarmed = "alarm-"

// SetAlarm has the session looked at in one and a half leases, if it has no
// ticket then. Each owner has its own, so that a late one takes none away but
// what it set itself. Setting it again moves it.
func (l *Log) SetAlarm(ctx context.Context, k Key, owner string) error {
	if err := l.schedule(ctx, k, alarmed+owner, nil, time.Now().Add(l.alarmDelay())); err != nil {
		return fmt.Errorf("alarm for %s: %w", k, err)
	}
	return nil
}

// StopAlarm forgets an owner's alarm; none is fine.
func (l *Log) StopAlarm(ctx context.Context, k Key, owner string) error {
	return l.StopTimer(ctx, k, alarmed+owner)
}

// alarm places a ticket. Where there is one, its holder may be alive, or dead, or
// about to delete it: it is looked at again later, until the session has none, or
// its owner takes the alarm back.
func (l *Log) alarm(ctx context.Context, k Key) error {
	err := l.Ticket(ctx, k)
	if errors.Is(err, ErrTicketed) {
		return l.SetAlarm(ctx, k, "again")
	}
	return err
}

// isAlarm tells the subject of an alarm from that of a timer.
func isAlarm(subject string) bool {
	t := tokens(subject)
	return strings.HasPrefix(t[len(t)-1], alarmed)
}
