package catalog

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/runlog-dev/runlog/event"
)

// Events are events of one tenant, of any sessions. Those of one session are in
// their order.
type Events struct {
	Tenant string
	Events []event.Event
}

// Apply projects a batch in one transaction, whatever a position says: for
// tests and tools, since it may come between a Reset and the rebuild. Events that were applied before
// change nothing, so that a batch may be repeated, begin earlier than the last
// one ended, and be applied by several processes at once. An event whose data
// is not what its type says is logged and passed over. ErrRefused means that
// the database will not take the batch however often it is tried.
func (db *DB) Apply(ctx context.Context, tenant string, batch []event.Event) error {
	facts := db.facts([]Events{{tenant, batch}})
	err := db.change(ctx, func(ctx context.Context, tx *sql.Tx) error { return db.project(ctx, tx, facts) })
	if err != nil {
		return fmt.Errorf("apply %d events: %w", len(batch), err)
	}
	return nil
}

// ApplyAt projects what the frames of one partition's stream after position
// after, up to and including upto, hold, and moves the partition's position
// from after to upto in the same transaction. If the position is not after, it
// writes nothing and returns ErrMoved: of several recorders one goes on. upto
// may be after itself, for a part of the next frame.
func (db *DB) ApplyAt(ctx context.Context, partition int, after, upto uint64, batch []Events) error {
	if upto < after {
		return fmt.Errorf("apply frames %d to %d of partition %d: a position moves only forward", after, upto, partition)
	}
	facts := db.facts(batch)
	err := db.change(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if err := move(ctx, tx, partition, after, upto); err != nil {
			return err
		}
		return db.project(ctx, tx, facts)
	})
	if err != nil {
		return fmt.Errorf("apply frames %d to %d of partition %d: %w", after, upto, partition, err)
	}
	return nil
}

// facts reads what is projected of a batch.
func (db *DB) facts(batch []Events) []*fact {
	var facts []*fact
	for _, b := range batch {
		for _, e := range b.Events {
			if Projects(e.Type) {
				facts = append(facts, newFact(b.Tenant, e))
			}
		}
	}
	return facts
}

func (db *DB) project(ctx context.Context, tx *sql.Tx, facts []*fact) error {
	if len(facts) == 0 {
		return nil
	}
	p, err := db.load(ctx, tx, facts)
	if err != nil {
		return err
	}
	var passed []*fact
	for _, f := range facts {
		if !p.apply(f) {
			passed = append(passed, f)
		}
	}
	if err := db.store(ctx, tx, p); err != nil {
		return err
	}
	for _, f := range passed {
		db.log.Error("event passed over: its data is not what its type says", "tenant", f.tenant,
			"session", f.SessionID, "seq", f.Seq, "type", f.Type, "err", f.broken)
	}
	return nil
}

// load locks the batch's sessions and reads the rows that its events touch.
func (db *DB) load(ctx context.Context, tx *sql.Tx, facts []*fact) (*page, error) {
	w, p := wanted(facts), newPage()
	if err := db.lockSessions(ctx, tx, p, w.sessions); err != nil {
		return nil, err
	}
	if err := db.loadCalls(ctx, tx, p, w); err != nil {
		return nil, err
	}
	if err := db.loadArtifacts(ctx, tx, p, w); err != nil {
		return nil, err
	}
	for _, c := range p.calls {
		w.runs[place{c.tenant, c.SessionID, c.RunID}] = true
	}
	runs, err := runTable.load(ctx, tx, db.engine, runTable.key, w.runs.rows(3), "")
	for _, r := range runs {
		p.runs[place{r.tenant, r.SessionID, r.RunID}] = r
	}
	return p, err
}

// lockSessions makes sure that there is a row to lock for each session, new
// ones included, and takes the locks in one order.
func (db *DB) lockSessions(ctx context.Context, tx *sql.Tx, p *page, sessions places) error {
	keys := sessions.rows(2)
	made := make([]*sessionRow, len(keys))
	for i, k := range keys {
		made[i] = &sessionRow{tenant: k[0], Session: Session{SessionID: k[1]}}
	}
	if err := sessionTable.upsert(ctx, tx, db.engine, made); err != nil {
		return err
	}
	rows, err := sessionTable.load(ctx, tx, db.engine, sessionTable.key, keys, " order by tenant, session_id"+db.lock)
	for _, s := range rows {
		if s.Seq > 0 {
			p.sessions[place{s.tenant, s.SessionID, ""}] = s
		}
	}
	return err
}

func (db *DB) loadCalls(ctx context.Context, tx *sql.Tx, p *page, w wants) error {
	calls, err := callTable.load(ctx, tx, db.engine, callTable.key, w.calls.rows(3), "")
	if err != nil {
		return err
	}
	discarded, err := callTable.load(ctx, tx, db.engine, []string{"tenant", "session_id", "message_id"}, w.discarded.rows(3), "")
	for _, c := range append(calls, discarded...) {
		p.calls[place{c.tenant, c.SessionID, c.CallID}] = c
	}
	return err
}

func (db *DB) loadArtifacts(ctx context.Context, tx *sql.Tx, p *page, w wants) error {
	artifacts, err := artifactTable.load(ctx, tx, db.engine, artifactTable.key, w.artifacts.rows(3), "")
	if err != nil {
		return err
	}
	open, err := artifactTable.load(ctx, tx, db.engine, []string{"tenant", "session_id", "run_id"}, w.ending.rows(3), " and status = 'writing'")
	for _, a := range append(artifacts, open...) {
		p.artifacts[place{a.tenant, a.SessionID, a.ArtifactID}] = a
	}
	return err
}

// store writes what changed. Rows that did not are kept from being written by
// their seq.
func (db *DB) store(ctx context.Context, tx *sql.Tx, p *page) error {
	if len(p.dirty) == 0 {
		return nil
	}
	if err := callTable.remove(ctx, tx, db.engine, places(p.dropped).rows(3)); err != nil {
		return err
	}
	if err := callTable.upsert(ctx, tx, db.engine, inOrder(p.calls)); err != nil {
		return err
	}
	if err := artifactTable.upsert(ctx, tx, db.engine, inOrder(p.artifacts)); err != nil {
		return err
	}
	if err := runTable.upsert(ctx, tx, db.engine, inOrder(p.runs)); err != nil {
		return err
	}
	return sessionTable.upsert(ctx, tx, db.engine, inOrder(p.sessions))
}

// wants are the rows that a batch touches.
type wants struct {
	sessions, runs, calls, artifacts places
	discarded                        places // calls of these messages
	ending                           places // open artifacts of these runs
}

func wanted(facts []*fact) wants {
	w := wants{places{}, places{}, places{}, places{}, places{}, places{}}
	for _, f := range facts {
		w.sessions[f.session()] = true
		w.runs.add(f, f.RunID)
		w.calls.add(f, f.data.CallID)
		w.artifacts.add(f, f.data.ArtifactID)
		switch {
		case f.Type == event.MessageDiscarded:
			w.discarded.add(f, f.data.MessageID)
		case f.Type == event.RunRecovered, f.Type.Terminal():
			w.ending.add(f, f.RunID)
		}
	}
	return w
}

// places is a set of keys.
type places map[place]bool

func (s places) add(f *fact, id string) { s[f.at(id)] = true }

// rows lists the first n parts of each key, in order.
func (s places) rows(n int) [][]string {
	rows := make([][]string, 0, len(s))
	for _, at := range sorted(s) {
		rows = append(rows, []string{at.tenant, at.session, at.id}[:n])
	}
	return rows
}

func sorted[V any](rows map[place]V) []place {
	keys := make([]place, 0, len(rows))
	for at := range rows {
		keys = append(keys, at)
	}
	slices.SortFunc(keys, place.compare)
	return keys
}

func inOrder[R any](rows map[place]*R) []*R {
	list := make([]*R, 0, len(rows))
	for _, at := range sorted(rows) {
		list = append(list, rows[at])
	}
	return list
}
