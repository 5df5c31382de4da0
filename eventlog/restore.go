package eventlog

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/runlog-dev/runlog/event"
)

// Restored is what Restore did.
type Restored struct {
	Epoch    event.Epoch // of what is appended from now on
	Sessions int         // that have a log
	Ticketed int         // of them: given to a worker, to go on where the log ends
	Lost     int         // runs that were accepted, and of which neither log nor inbox knows
}

// errAttended: a worker that knows lost events may append to what they were lost from.
var errAttended = errors.New("a worker is running, or was until a moment ago: stop all edges and workers and try again")

// Restore is called once after JetStream was restored from a backup, or lost the end of a
// log in any other way, while no other process uses it. From now on events are of a new
// epoch, so that who has seen the lost ones is found out. What the other streams say of
// what is not in the log is put right: they need not be of the same moment. It may be
// repeated. told, if it is not nil, is called as sessions are done.
func (l *Log) Restore(ctx context.Context, told func(done, all int)) (Restored, error) {
	r := restore{Log: l, told: told, logs: map[Key]ending{}}
	err := l.unattended(ctx)
	if err == nil {
		r.did.Epoch, err = l.newEpoch(ctx)
	}
	if err == nil {
		err = l.ensureConsumer(ctx)
	}
	if err == nil {
		err = r.sessions(ctx)
	}
	if err == nil {
		err = r.runs(ctx)
	}
	if err != nil {
		return r.did, fmt.Errorf("restore: %w", err)
	}
	return r.did, nil
}

// unattended waits until no worker asks for tickets.
func (l *Log) unattended(ctx context.Context) error {
	err := settled(ctx, func() (pending bool, err error) {
		cons, err := l.js.Consumer(ctx, jobsStream, l.consumer())
		if err == nil && cons.CachedInfo().NumWaiting > 0 {
			return true, errAttended
		}
		return false, unavailable(err)
	})
	if errors.Is(err, errAttended) {
		return errAttended
	}
	return err
}

// newEpoch begins an epoch that no log ever had, whichever backup was restored.
func (l *Log) newEpoch(ctx context.Context) (event.Epoch, error) {
	m, err := l.leaderKV(ctx, "REGISTRY", "install")
	var there install
	if err == nil {
		err = json.Unmarshal(m.Data, &there)
	}
	if err == nil {
		there.Restored = max(there.Restored+1, event.Epoch(time.Now().Unix()))
		_, err = l.reg.Update(ctx, "install", event.Encode(there), m.Pos)
	}
	if err != nil {
		return 0, unavailable(fmt.Errorf("install record: %w", err))
	}
	l.epoch = there.Restored
	return l.epoch, nil
}

// A restore is under way.
type restore struct {
	*Log
	told func(done, all int)

	mu   sync.Mutex // of what follows, while sessions are read
	did  Restored
	logs map[Key]ending
}

// restoreAtOnce is how many sessions are read at once. Each is in memory as a whole.
const restoreAtOnce = 16

// An ending is what a log comes to.
type ending struct {
	seq  event.Seq
	runs map[string]bool // that it has; nil if it cannot be read
}

// sessions has a worker look after every session that is not done: its ticket or its timer
// may be what the backup lacks.
func (r *restore) sessions(ctx context.Context) error {
	var all []Key
	for p := range r.opts.Partitions {
		keys, err := r.Sessions(ctx, p, "")
		if err != nil {
			return err
		}
		all = append(all, keys...)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(restoreAtOnce)
	for _, k := range all {
		g.Go(func() error {
			end, ticketed, err := r.session(ctx, k)
			if err == nil {
				r.note(k, end, ticketed, len(all))
			}
			return err
		})
	}
	return g.Wait()
}

// note counts a session that is done.
func (r *restore) note(k Key, end ending, ticketed bool, all int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.logs[k] = end
	r.did.Sessions++
	if ticketed {
		r.did.Ticketed++
	}
	if r.told != nil {
		r.told(r.did.Sessions, all)
	}
}

func (r *restore) session(ctx context.Context, k Key) (end ending, ticketed bool, err error) {
	s, head, err := r.Load(ctx, k)
	if errors.Is(err, ErrUnavailable) || ctx.Err() != nil {
		return end, false, err
	}
	end.seq = head.Seq
	if err != nil { // fsck says what is wrong with it
		r.opts.Logger.Warn("session cannot be read", "tenant", k.Tenant, "session", k.Session, "err", err)
	} else {
		end.runs = make(map[string]bool, len(s.Runs))
		for _, run := range s.Runs {
			end.runs[run.RunID] = true
		}
		if err := r.keepSnapshot(ctx, k, s); err != nil {
			return end, false, err
		}
		if s.Free() {
			return end, false, nil
		}
	}
	if err := r.Ticket(ctx, k); !errors.Is(err, ErrTicketed) {
		return end, true, err
	}
	return end, true, nil
}

// keepSnapshot stores a session anew of which there is a snapshot: that is of before the
// restore, and can be told to be of this log only as long as the log has its last event. The
// log may be purged of what a snapshot has.
func (r *restore) keepSnapshot(ctx context.Context, k Key, s *event.Session) error {
	_, err := r.leaderSnapshot(ctx, k)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return r.SaveSnapshot(ctx, k, s.Encode(), s.Seq)
}

// runs goes through the runs index.
func (r *restore) runs(ctx context.Context) error {
	w, err := r.Log.runs.Watch(ctx, ">", jetstream.IgnoreDeletes())
	if err != nil {
		return unavailable(fmt.Errorf("read the runs index: %w", err))
	}
	defer func() { _ = w.Stop() }()
	for kv := range w.Updates() {
		if kv == nil {
			return nil // that was all there is
		}
		if err := r.run(ctx, kv); err != nil {
			return fmt.Errorf("entry %s of the runs index: %w", kv.Key(), err)
		}
	}
	return unavailable(fmt.Errorf("read the runs index: %w", jetstream.ErrNoStreamResponse))
}

// run puts an entry right that is newer than the log. A run that is lost is forgotten, so
// that whoever asks for it once more with its idempotency key gets it done.
func (r *restore) run(ctx context.Context, kv jetstream.KeyValueEntry) error {
	var ref RunRef
	if err := json.Unmarshal(kv.Value(), &ref); err != nil {
		return err
	}
	t := tokens(kv.Key())
	if len(t) != 3 {
		return nil
	}
	tenant, err := untoken(t[1])
	if err != nil {
		return err
	}
	k := Key{tenant, ref.SessionID}
	if ref.Accepted {
		known, err := r.knows(ctx, k, ref)
		if err != nil {
			return err
		}
		if !known {
			r.did.Lost++
			return unavailable(r.Log.runs.Delete(ctx, kv.Key(), jetstream.LastRevision(kv.Revision())))
		}
	}
	if end := r.logs[k].seq; ref.After > end {
		ref.After = end
		_, err = r.Log.runs.Update(ctx, kv.Key(), event.Encode(ref), kv.Revision())
	}
	return unavailable(err)
}

// knows reports whether an accepted run is in the log, or will be: its command waits.
func (r *restore) knows(ctx context.Context, k Key, ref RunRef) (bool, error) {
	id := cmp.Or(ref.Continues, ref.RunID)
	end, there := r.logs[k]
	if end.runs[id] || there && end.runs == nil {
		return true, nil
	}
	waiting, err := r.Inbox(ctx, k)
	return slices.ContainsFunc(waiting, func(w Waiting) bool { return w.RunID == id }), err
}
