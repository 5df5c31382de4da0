package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
	"github.com/runlog-dev/runlog/worker/agent"
	"github.com/runlog-dev/runlog/worker/redact"
)

// snapshotEvery is how many events a session's snapshot may lack.
const snapshotEvery = 500

// A journal is the claimed log of a session together with its fold. It is what
// the agent loop appends to, and safe for concurrent use.
type journal struct {
	log      *eventlog.Log
	key      eventlog.Key
	writer   *eventlog.Writer
	redactor *redact.Redactor

	mu       sync.Mutex
	fold     *event.Session
	saved    event.Seq // of the last snapshot
	saving   sync.WaitGroup
	onAppend func(event.Event)
}

func newJournal(l *eventlog.Log, k eventlog.Key, fold *event.Session, head eventlog.Head, r *redact.Redactor) *journal {
	return &journal{log: l, key: k, writer: l.Writer(k, head), redactor: r, fold: fold, saved: fold.Seq}
}

// Append redacts, appends and folds events, all or none.
func (j *journal) Append(events ...event.Event) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.append(events)
}

func (j *journal) append(events []event.Event) error {
	j.name(events)
	for i := range events {
		if !delta(events[i].Type) {
			j.redact(&events[i])
		}
	}
	stored, err := j.writer.Append(events...)
	if err != nil {
		return err
	}
	for _, e := range stored {
		if err := j.fold.Apply(e); err != nil {
			return err // a programming error: what we wrote does not fold
		}
		if j.onAppend != nil {
			j.onAppend(e)
		}
	}
	if j.fold.Seq-j.saved >= snapshotEvery {
		j.snapshot()
	}
	return nil
}

// name puts the agent's name on the events of sub-agents' runs: whoever reads the
// run above tells them apart by that.
func (j *journal) name(events []event.Event) {
	began := map[string]string{} // runs that begin here, and their agents
	for i, e := range events {
		var d event.RunStartedData
		if e.Type == event.RunStarted && e.Into(&d) == nil && d.ParentRunID != "" {
			began[e.RunID] = d.Agent
		}
		if r := j.fold.Run(e.RunID); r != nil && r.ParentRunID != "" {
			events[i].Agent = r.Agent
		} else if r == nil {
			events[i].Agent = began[e.RunID]
		}
	}
}

// redact cuts the secrets out of an event. The hash of a message is that of what
// is left.
func (j *journal) redact(e *event.Event) {
	clean := j.redactor.JSON(e.Data)
	var d event.MessageCompletedData
	if e.Type == event.MessageCompleted && !bytes.Equal(clean, e.Data) && json.Unmarshal(clean, &d) == nil {
		d.SHA256 = event.TextHash(d.Parts)
		clean = event.Encode(d)
	}
	e.Data = clean
}

// delta reports whether an event's text was redacted as part of its stream: a
// second look at a piece alone could see a secret where the whole has none.
func delta(t event.Type) bool {
	return t == event.TextDelta || t == event.ReasoningDelta || t == event.ToolArgsDelta
}

// AppendIf appends if nothing was appended since the fold stood at seq.
func (j *journal) AppendIf(seq event.Seq, events ...event.Event) (bool, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.fold.Seq != seq {
		return false, nil
	}
	return true, j.append(events)
}

// With appends what decide makes of the fold, while nobody else appends.
func (j *journal) With(decide func(*event.Session) []event.Event) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.append(decide(j.fold))
}

// Sync waits until everything appended is committed.
func (j *journal) Sync(ctx context.Context) error { return j.writer.Sync(ctx) }

// Own makes sure, before a side effect, that the session is still ours: a
// commit sent less than a third of a lease ago proves it, else the leader is
// asked.
func (j *journal) Own(ctx context.Context) error {
	if j.writer.Fresh(j.log.Lease() / 3) {
		return nil
	}
	return j.writer.Check(ctx)
}

// View is a copy of the fold for reading.
func (j *journal) View() *event.Session {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.fold.View()
}

// Look shows the fold while nobody appends.
func (j *journal) Look(look func(*event.Session)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	look(j.fold)
}

// snapshot stores the fold once what it holds is committed, behind the caller's
// back. The caller holds mu.
func (j *journal) snapshot() {
	view := j.fold.View() // encoded behind the back as well: of a long session that takes its time
	j.saved = view.Seq
	j.saving.Add(1)
	go func() {
		defer j.saving.Done()
		if err := j.store(view); err != nil && !errors.Is(err, eventlog.ErrFenced) && !errors.Is(err, eventlog.ErrClosed) {
			j.log.Logger().Warn("snapshot not stored", "tenant", j.key.Tenant, "session", j.key.Session, "err", err)
		}
	}()
}

func (j *journal) store(view *event.Session) (err error) {
	defer agent.Caught(&err)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return j.save(ctx, view.Seq, view.Encode())
}

func (j *journal) save(ctx context.Context, seq event.Seq, encoded []byte) error {
	if err := j.writer.Sync(ctx); err != nil {
		return fmt.Errorf("snapshot at %d: %w", seq, err)
	}
	return j.log.SaveSnapshot(ctx, j.key, encoded, seq)
}

// closing is how long the last snapshot may take: without it the next load is
// slower, nothing is lost.
const closing = 2 * time.Second

// Close stores a last snapshot if there is something new, and ends the writer.
func (j *journal) Close() {
	j.mu.Lock()
	if j.fold.Seq > j.saved && j.writer.Err() == nil {
		j.snapshot()
	}
	j.mu.Unlock()
	stop := time.AfterFunc(closing, j.writer.Close)
	defer stop.Stop()
	j.saving.Wait()
	j.writer.Close()
}
