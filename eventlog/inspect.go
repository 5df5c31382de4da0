package eventlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/runlog-dev/runlog/event"
)

// What follows is for whoever checks an installation: it shows what is stored,
// whatever is wrong with it.

// Inspect opens an installation as it is. It creates and changes nothing; the
// number of partitions and the lease are those of the installation. ErrNotFound
// if the server holds none.
func Inspect(ctx context.Context, nc *nats.Conn, opts Options) (*Log, error) {
	opts.setDefaults()
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("inspect event log: %w", err)
	}
	l := &Log{nc: nc, js: js, opts: opts}
	if err := l.inspect(ctx); err != nil {
		return nil, fmt.Errorf("inspect event log: %w", err)
	}
	return l, nil
}

func (l *Log) inspect(ctx context.Context) error {
	if err := l.checkServer(); err != nil {
		return err
	}
	for name, kv := range map[string]*jetstream.KeyValue{"RUNS": &l.runs, "SNAPSHOTS": &l.snap, "REGISTRY": &l.reg} {
		var err error
		if *kv, err = l.js.KeyValue(ctx, name); errors.Is(err, jetstream.ErrBucketNotFound) {
			return fmt.Errorf("bucket %s: %w: runlog was never started on this server", name, ErrNotFound)
		} else if err != nil {
			return unavailable(fmt.Errorf("bucket %s: %w", name, err))
		}
	}
	there, err := l.installed(ctx)
	if err != nil {
		return err
	}
	l.epoch = there.Restored
	cons, err := l.js.Consumer(ctx, jobsStream, l.consumer())
	if err != nil {
		return unavailable(fmt.Errorf("consumer of %s: %w", jobsStream, err))
	}
	l.opts.Partitions, l.opts.Lease = there.Partitions, cons.CachedInfo().Config.AckWait
	return nil
}

// Sessions lists the sessions that have a log in a partition, of one tenant or of all for
// "".
func (l *Log) Sessions(ctx context.Context, partition int, tenant string) ([]Key, error) {
	return l.keys(ctx, streamName(partition), fmt.Sprintf("log.%d.", partition), tenant)
}

// Commanded lists the sessions that have a command in their inbox, of one tenant or of all
// for "".
func (l *Log) Commanded(ctx context.Context, tenant string) ([]Key, error) {
	return l.keys(ctx, inboxStream, "inbox.", tenant)
}

// keys lists the sessions whose subjects, which begin with prefix, have messages in a
// stream.
func (l *Log) keys(ctx context.Context, stream, prefix, tenant string) ([]Key, error) {
	filter := prefix + ">"
	if tenant != "" {
		filter = prefix + token(tenant) + ".>"
	}
	s, err := l.js.Stream(ctx, stream)
	if err != nil {
		return nil, unavailable(fmt.Errorf("sessions of %s: %w", stream, err))
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(filter))
	if err != nil {
		return nil, unavailable(fmt.Errorf("sessions of %s: %w", stream, err))
	}
	var keys []Key
	for subject := range info.State.Subjects {
		t := tokens(strings.TrimPrefix(subject, prefix))
		if len(t) < 2 {
			return nil, fmt.Errorf("sessions of %s: there is a subject %q", stream, subject)
		}
		k, err := parseKey(t[0], t[1])
		if err != nil {
			return nil, fmt.Errorf("sessions of %s: %w", stream, err)
		}
		keys = append(keys, k)
	}
	slices.SortFunc(keys, Key.Compare)
	return slices.Compact(keys), nil
}

// Partition is the one in which a session's log has to be.
func (l *Log) Partition(k Key) int { return k.partition(l.opts.Partitions) }

// Stored yields the session's frames as they are stored, from the first one that
// is there to head, gaps or no gaps. A frame whose header cannot be read comes
// with an error and its Pos, and the next one follows; any other error ends it.
func (l *Log) Stored(ctx context.Context, k Key, head Head) iter.Seq2[Frame, error] {
	return func(yield func(Frame, error) bool) {
		pos := uint64(1)
		for behind := lag(0); pos <= head.Pos; {
			from := pos
			for f, err := range l.batch(ctx, k, pos, batchBytes) {
				if errors.Is(err, errSilent) {
					behind += silent - 1
					break
				}
				if f.Pos > head.Pos {
					return
				}
				if !yield(f, err) || err != nil && f.Pos == 0 {
					return
				}
				pos = f.Pos + 1
			}
			if err := behind.after(ctx, pos > from); err != nil {
				yield(Frame{}, fmt.Errorf("read %s from position %d: the head is at %d: %w", k, pos, head.Pos, err))
				return
			}
		}
	}
}

// Ticketed reports whether the session has a ticket, by the leader.
func (l *Log) Ticketed(ctx context.Context, k Key) (bool, error) {
	_, err := l.leaderGet(ctx, jobsStream, getRequest{LastBy: "jobs." + k.suffix()})
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("ticket of %s: %w", k, err)
	}
	return true, nil
}

// Timed reports whether the session has a timer that is not due yet.
func (l *Log) Timed(ctx context.Context, k Key) (bool, error) {
	for pos := uint64(1); ; {
		m, err := l.leaderGet(ctx, timersStream, getRequest{Seq: pos, NextBy: "timer.at." + k.suffix() + ".>"})
		if errors.Is(err, ErrNotFound) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("timers of %s: %w", k, err)
		}
		if !isAlarm(m.Subject) {
			return true, nil
		}
		pos = m.Pos + 1
	}
}

// Snapshot returns the session's stored fold, or nil if there is none that this
// version reads.
func (l *Log) Snapshot(ctx context.Context, k Key) (*event.Session, error) {
	m, err := l.leaderKV(ctx, "SNAPSHOTS", k.suffix())
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("snapshot of %s: %w", k, err)
	}
	var entry snapshotEntry
	if err := json.Unmarshal(m.Data, &entry); err != nil {
		return nil, fmt.Errorf("snapshot of %s: %w", k, err)
	}
	s, err := l.openSnapshot(ctx, entry)
	if errors.Is(err, event.ErrOtherFold) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("snapshot of %s: %w", k, err)
	}
	return s, nil
}

// Accepted calls fn for every run that was accepted, of one tenant or of all for
// "", as long as the runs index knows it, until fn returns an error.
func (l *Log) Accepted(ctx context.Context, tenant string, fn func(Key, RunRef) error) error {
	filter := "run.>"
	if tenant != "" {
		filter = "run." + token(tenant) + ".>"
	}
	w, err := l.runs.Watch(ctx, filter, jetstream.IgnoreDeletes())
	if err != nil {
		return unavailable(fmt.Errorf("read the runs index: %w", err))
	}
	defer func() { _ = w.Stop() }()
	for {
		select {
		case kv, ok := <-w.Updates():
			if !ok {
				return unavailable(fmt.Errorf("read the runs index: %w", nats.ErrDisconnected))
			}
			if kv == nil {
				return nil // that was all there is
			}
			if err := acceptedRun(kv, fn); err != nil {
				return err
			}
		case <-ctx.Done():
			return fmt.Errorf("read the runs index: %w", ctx.Err())
		}
	}
}

func acceptedRun(kv jetstream.KeyValueEntry, fn func(Key, RunRef) error) error {
	var ref RunRef
	if err := json.Unmarshal(kv.Value(), &ref); err != nil {
		return fmt.Errorf("entry %s of the runs index: %w", kv.Key(), err)
	}
	t := tokens(kv.Key())
	if len(t) != 3 || !ref.Accepted {
		return nil
	}
	tenant, err := untoken(t[1])
	if err != nil {
		return fmt.Errorf("entry %s of the runs index: %w", kv.Key(), err)
	}
	return fn(Key{tenant, ref.SessionID}, ref)
}
