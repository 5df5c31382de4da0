package eventlog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/runlog-dev/runlog/event"
)

// runsKept is how long run ids and idempotency keys are looked up here.
const runsKept = 72 * time.Hour

// A RunRef says where a run is: the entry of the runs index, kept for
// runsKept after the run was accepted.
type RunRef struct {
	RunID     string     `json:"run_id"`
	SessionID string     `json:"session_id"`
	TraceID   string     `json:"trace_id"`
	Agent     string     `json:"agent"`
	CommandID string     `json:"command_id"`
	After     event.Seq  `json:"after"` // the run's events come after this one
	BodyHash  string     `json:"body_hash"`
	Accepted  bool       `json:"accepted,omitempty"` // command and ticket are placed
	Created   event.Time `json:"created"`
	// Continues is the run that this id is another name for, as a client calls
	// what follows After of it.
	Continues string `json:"continues,omitempty"`

	key      string
	revision uint64
}

// Reserve writes the run's entry if it is new. If the idempotency key, or
// without one the run id, is known already, it returns that entry instead and
// existed; with another body hash ErrMismatch. A reserved entry that is not
// Accepted was left half way: repeat the missing steps, then Accept.
func (l *Log) Reserve(ctx context.Context, tenant, idempotencyKey string, want RunRef) (ref RunRef, existed bool, err error) {
	if idempotencyKey != "" {
		ref, existed, err = l.reserve(ctx, idemKey(tenant, idempotencyKey), want)
		if err != nil {
			return ref, existed, err
		}
		want = ref // of the first request with this key
	}
	byRun, known, err := l.reserve(ctx, runKey(tenant, want.RunID), want)
	return byRun, existed || known, err
}

func runKey(tenant, runID string) string { return "run." + token(tenant) + "." + token(runID) }

func idemKey(tenant, key string) string {
	sum := sha256.Sum256([]byte(key))
	return "key." + token(tenant) + "." + hex.EncodeToString(sum[:16])
}

func (l *Log) reserve(ctx context.Context, key string, want RunRef) (RunRef, bool, error) {
	var ref RunRef
	existed := false
	err := settled(ctx, func() (pending bool, err error) {
		rev, err := l.runs.Create(ctx, key, event.Encode(want))
		if existed = errors.Is(err, jetstream.ErrKeyExists); !existed {
			ref = want
			ref.key, ref.revision = key, rev
			return false, unavailable(err)
		}
		ref, err = l.runRef(ctx, key)
		return errors.Is(err, ErrNotFound), err // of a request whose entry is not in yet
	})
	if err == nil && !existed {
		return ref, false, nil
	}
	if err == nil && ref.BodyHash != want.BodyHash {
		err = ErrMismatch
	}
	if err != nil {
		return RunRef{}, existed, fmt.Errorf("reserve run: %w", err)
	}
	return ref, true, nil
}

func (l *Log) runRef(ctx context.Context, key string) (RunRef, error) {
	m, err := l.leaderKV(ctx, "RUNS", key)
	if err != nil {
		return RunRef{}, err
	}
	var ref RunRef
	if err := json.Unmarshal(m.Data, &ref); err != nil {
		return RunRef{}, fmt.Errorf("entry %s: %w", key, err)
	}
	ref.key, ref.revision = key, m.Pos
	return ref, nil
}

// Accept marks that the run's command and ticket are placed. Losing the race
// against another request that did the same is fine.
func (l *Log) Accept(ctx context.Context, ref RunRef) error {
	ref.Accepted = true
	_, err := l.runs.Update(ctx, ref.key, event.Encode(ref), ref.revision)
	if code := apiCode(err); err != nil && code != errWrongLast && code != errInProcess {
		return unavailable(fmt.Errorf("accept run %s: %w", ref.RunID, err))
	}
	return nil
}

// stale is how old a reservation gets before it counts as given up.
const stale = time.Minute

// FindRun looks a run up by its id, at the leader. ErrNotFound if it was never
// accepted here, or so long ago that only the catalog knows it. A reservation
// whose client gave up is not found either.
func (l *Log) FindRun(ctx context.Context, tenant, runID string) (RunRef, error) {
	ref, err := l.runRef(ctx, runKey(tenant, runID))
	if err != nil {
		return RunRef{}, fmt.Errorf("find run %s: %w", runID, err)
	}
	if ref.Accepted || time.Since(ref.Created.Time) < stale {
		return ref, nil
	}
	there, err := l.holds(ctx, Key{tenant, ref.SessionID}, ref)
	if err == nil && !there {
		err = ErrNotFound
	}
	if err != nil {
		return RunRef{}, fmt.Errorf("find run %s: %w", runID, err)
	}
	return ref, nil
}

// holds reports whether the run's command is in the inbox or was answered.
func (l *Log) holds(ctx context.Context, k Key, ref RunRef) (bool, error) {
	waiting, err := l.Inbox(ctx, k)
	if err != nil {
		return false, err
	}
	if slices.ContainsFunc(waiting, func(w Waiting) bool { return w.RunID == ref.RunID }) {
		return true, nil
	}
	s, _, err := l.Load(ctx, k)
	if err != nil {
		return false, err
	}
	return s.Run(ref.RunID) != nil, nil
}
