package eventlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/runlog-dev/runlog/event"
)

const (
	timersStream   = "TIMERS"
	timersConsumer = "due"
)

func (l *Log) timersConfig() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:              timersStream,
		Description:       "runlog: commands that the server delivers at a later time",
		Subjects:          []string{"timer.at.>", "timer.due.>"},
		Retention:         jetstream.WorkQueuePolicy,
		Storage:           jetstream.FileStorage,
		Replicas:          l.opts.Replicas,
		AllowMsgSchedules: true,
	}
}

// SetTimer has a command submitted to the session at a time, to the second and
// never earlier. Setting the same command again moves it.
func (l *Log) SetTimer(ctx context.Context, k Key, cmd event.Command, at time.Time) error {
	cmd.V = event.Version
	if err := l.schedule(ctx, k, cmd.CommandID, event.Encode(cmd), at); err != nil {
		return fmt.Errorf("timer for %s: %w", k, err)
	}
	return nil
}

// schedule has the server deliver data about the session at a time. What was
// scheduled under the same name before is replaced.
func (l *Log) schedule(ctx context.Context, k Key, name string, data []byte, at time.Time) error {
	if whole := at.Truncate(time.Second); whole.Before(at) {
		at = whole.Add(time.Second) // the server cuts the rest of a second off
	}
	_, err := l.js.Publish(ctx, timerSubject(k, name), data,
		jetstream.WithScheduleAt(at), jetstream.WithScheduleTarget("timer.due."+k.suffix()))
	return unavailable(err)
}

func timerSubject(k Key, commandID string) string {
	return "timer.at." + k.suffix() + "." + token(commandID)
}

// StopTimer forgets a command that is not due yet; one that is gone is fine.
func (l *Log) StopTimer(ctx context.Context, k Key, commandID string) error {
	s, err := l.js.Stream(ctx, timersStream)
	if err == nil {
		err = s.Purge(ctx, jetstream.WithPurgeSubject(timerSubject(k, commandID)))
	}
	if err != nil {
		return unavailable(fmt.Errorf("stop timer of %s: %w", k, err))
	}
	return nil
}

// Timers submits commands that are due until ctx ends. Any number of processes
// may do so.
func (l *Log) Timers(ctx context.Context) error {
	_, err := l.js.CreateOrUpdateConsumer(ctx, timersStream, jetstream.ConsumerConfig{
		Durable: timersConsumer, AckPolicy: jetstream.AckExplicitPolicy, AckWait: l.opts.Lease,
		FilterSubject: "timer.due.>", MaxDeliver: -1, MaxAckPending: -1,
	})
	if err != nil {
		return unavailable(fmt.Errorf("timers: %w", err))
	}
	for ctx.Err() == nil {
		if err := l.someTimers(ctx); err != nil && ctx.Err() == nil {
			return fmt.Errorf("timers: %w", err)
		}
	}
	return ctx.Err()
}

// someTimers moves what is due until a request for it ends. Many may be due at
// once, such as the approvals that a person did not get to over night.
func (l *Log) someTimers(ctx context.Context) error {
	var g errgroup.Group
	g.SetLimit(16)
	err := l.pull(ctx, timersStream, timersConsumer, 64, func(msg *nats.Msg) error {
		g.Go(func() error { return l.due(ctx, msg) })
		return nil
	})
	return errors.Join(err, g.Wait())
}

// due moves one command to its session's inbox. One whose inbox is full comes
// again after a lease.
func (l *Log) due(ctx context.Context, msg *nats.Msg) error {
	t := tokens(msg.Subject)
	if len(t) != 4 {
		return l.answer(msg.Reply, never)
	}
	k, err := parseKey(t[2], t[3])
	if err != nil {
		return l.answer(msg.Reply, never)
	}
	if len(msg.Data) == 0 {
		err = l.alarm(ctx, k)
	} else {
		var cmd event.Command
		if json.Unmarshal(msg.Data, &cmd) != nil {
			return l.answer(msg.Reply, never)
		}
		err = l.submitDue(ctx, k, cmd)
	}
	if errors.Is(err, ErrInboxFull) {
		return nil
	}
	if err != nil {
		return err
	}
	return l.answer(msg.Reply, done)
}

func (l *Log) submitDue(ctx context.Context, k Key, cmd event.Command) error {
	if err := l.Submit(ctx, k, cmd); err != nil {
		return err
	}
	return l.Wake(ctx, k)
}
