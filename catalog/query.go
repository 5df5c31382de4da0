package catalog

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/runlog-dev/runlog/event"
)

// How many runs a page has.
const (
	DefaultLimit = 50
	MaxLimit     = 500
)

// A Filter narrows a search for runs. Zero fields do not.
type Filter struct {
	Trace   string
	Status  event.Status
	Agent   string
	Tool    string // the run called a tool of this name
	Session string
	Since   time.Time // created then or later
	Until   time.Time // created before
	Limit   int       // DefaultLimit if 0, at most MaxLimit
	Cursor  string    // of the page before
}

// A Page of runs, the newest first.
type Page struct {
	Runs []Run
	Next string // cursor of the page that follows, empty if this is the last
}

// Run returns one run. Where two sessions used one run id, long after each
// other, it is the newer one.
func (db *DB) Run(ctx context.Context, tenant, runID string) (Run, error) {
	q := runTable.of(tenant).where("run_id = ?", ident(runID))
	return one(ctx, db, runTable, q.end("order by created desc, session_id desc limit 1"), (*runRow).public)
}

// Session returns one session.
func (db *DB) Session(ctx context.Context, tenant, sessionID string) (Session, error) {
	q := sessionTable.of(tenant).where("session_id = ?", ident(sessionID))
	return one(ctx, db, sessionTable, q, (*sessionRow).public)
}

// Artifact returns one artifact.
func (db *DB) Artifact(ctx context.Context, tenant, artifactID string) (Artifact, error) {
	q := artifactTable.of(tenant).where("artifact_id = ?", ident(artifactID))
	return one(ctx, db, artifactTable, q.end("order by created desc, session_id desc limit 1"), (*artifactRow).public)
}

// RunsOfTrace returns every run under a trace, the oldest first, in however
// many sessions they are.
func (db *DB) RunsOfTrace(ctx context.Context, tenant, trace string) ([]Run, error) {
	q := runTable.of(tenant).where("trace_id = ?", ident(trace))
	return all(ctx, db, runTable, q.end("order by created, run_id, session_id"), (*runRow).public)
}

// ToolCalls returns a run's calls in the order in which they began.
func (db *DB) ToolCalls(ctx context.Context, tenant, runID string) ([]ToolCall, error) {
	q := callTable.of(tenant).where("run_id = ?", ident(runID))
	return all(ctx, db, callTable, q.end("order by session_id, opened"), (*callRow).public)
}

// Artifacts returns a session's artifacts in the order in which they began.
func (db *DB) Artifacts(ctx context.Context, tenant, sessionID string) ([]Artifact, error) {
	q := artifactTable.of(tenant).where("session_id = ?", ident(sessionID))
	return all(ctx, db, artifactTable, q.end("order by opened"), (*artifactRow).public)
}

// Runs searches. Runs that appear while somebody turns the pages are newer than
// the first page; no other is shown twice or left out.
func (db *DB) Runs(ctx context.Context, tenant string, f Filter) (Page, error) {
	limit := f.limit()
	q := f.query(tenant)
	if f.Cursor != "" {
		after, err := readCursor(f.Cursor)
		if err != nil {
			return Page{}, err
		}
		q.where("(created, run_id, session_id) < (?, ?, ?)", after.Created, after.Run, after.Session)
	}
	q.end("order by created desc, run_id desc, session_id desc limit " + strconv.Itoa(limit+1))
	runs, err := all(ctx, db, runTable, q, (*runRow).public)
	if err != nil || len(runs) <= limit {
		return Page{Runs: runs}, err
	}
	return Page{Runs: runs[:limit], Next: newCursor(runs[limit-1])}, nil
}

func (f Filter) limit() int {
	if f.Limit <= 0 {
		return DefaultLimit
	}
	return min(f.Limit, MaxLimit)
}

func (f Filter) query(tenant string) *query {
	q := runTable.of(tenant)
	q.optional("trace_id = ?", ident(f.Trace))
	q.optional("status = ?", label(string(f.Status)))
	q.optional("agent = ?", label(f.Agent))
	q.optional("session_id = ?", ident(f.Session))
	q.optional(`exists (select 1 from tool_calls t where t.tenant = runs.tenant and t.run_id = runs.run_id
		and t.session_id = runs.session_id and t.name = ?)`, label(f.Tool))
	if !f.Since.IsZero() {
		q.where("created >= ?", event.At(f.Since).UnixMicro())
	}
	if !f.Until.IsZero() {
		q.where("created < ?", event.At(f.Until).UnixMicro())
	}
	return q
}

// cursor is the key of the last run of a page.
type cursor struct {
	Created int64  `json:"c"`
	Run     string `json:"r"`
	Session string `json:"s"`
}

func newCursor(r Run) string {
	b, _ := json.Marshal(cursor{r.CreatedAt.UnixMicro(), r.RunID, r.SessionID}) // always can be
	return base64.RawURLEncoding.EncodeToString(b)
}

func readCursor(s string) (cursor, error) {
	var c cursor
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || json.Unmarshal(b, &c) != nil || c.Run == "" {
		return cursor{}, fmt.Errorf("%w: %q", ErrBadCursor, cut(s, 64))
	}
	c.Run, c.Session = ident(c.Run), ident(c.Session)
	return c, nil
}

// A query is built condition by condition; ? in a condition is its value.
type query struct {
	sql  strings.Builder
	args []any
	tail string
	what string // is read, for errors
}

// of selects the rows of a tenant.
func (t table[R]) of(tenant string) *query {
	q := &query{what: t.name}
	q.sql.WriteString("select " + t.list() + " from " + t.name)
	return q.where("tenant = ?", ident(tenant))
}

func (q *query) where(condition string, args ...any) *query {
	word := " where "
	if len(q.args) > 0 {
		word = " and "
	}
	q.sql.WriteString(word)
	for _, arg := range args {
		before, after, _ := strings.Cut(condition, "?")
		q.args = append(q.args, arg)
		q.sql.WriteString(before + "$" + strconv.Itoa(len(q.args)))
		condition = after
	}
	q.sql.WriteString(condition)
	return q
}

func (q *query) optional(condition, value string) {
	if value != "" {
		q.where(condition, value)
	}
}

func (q *query) end(tail string) *query {
	q.tail = " " + tail
	return q
}

func all[R, V any](ctx context.Context, db *DB, t table[R], q *query, public func(*R) V) ([]V, error) {
	var list []V
	err := db.do(ctx, func(ctx context.Context) error {
		rows, err := db.read.QueryContext(ctx, q.sql.String()+q.tail, q.args...)
		if err != nil {
			return err
		}
		found, err := t.scan(rows)
		for _, r := range found {
			list = append(list, public(r))
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", q.what, err)
	}
	return list, nil
}

func one[R, V any](ctx context.Context, db *DB, t table[R], q *query, public func(*R) V) (V, error) {
	list, err := all(ctx, db, t, q, public)
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("read %s: %w", q.what, ErrNotFound)
	}
	if err != nil {
		var none V
		return none, err
	}
	return list[0], nil
}
