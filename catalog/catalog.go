// Package catalog says who may ask, what there is, and where to find it, in
// Postgres or SQLite: the API keys, which live here alone, and a projection of
// the log (sessions, runs, tool calls, artifacts), which can be dropped and
// rebuilt. Nothing on the way of a run needs it: whatever it is asked while the
// database is away ends with ErrUnavailable.
package catalog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/runlog-dev/runlog/migrations"
)

// A DB is a catalog. It is safe for concurrent use.
type DB struct {
	engine
	log     *slog.Logger
	timeout time.Duration
	current atomic.Bool // the schema has been seen to be new enough
}

// Options of Open. The zero value works.
type Options struct {
	// Migrate brings the schema up to date first, and Open fails if it cannot.
	Migrate bool
	// Timeout bounds each operation; 10 s if zero.
	Timeout time.Duration
	// Log hears of events that could not be recorded; silent if nil.
	Log *slog.Logger
}

// engine is what Postgres and SQLite do differently.
type engine struct {
	name    string
	write   *sql.DB
	read    *sql.DB  // the same one where the engine needs no distinction
	rows    string   // table expression: the elements of the JSON array $1, as column value
	lock    string   // ends a select whose rows the transaction will change
	empty   []string // statements that empty the projection
	migrate func(context.Context) ([]string, error)
	sort    func(error) error // the sentinel that a driver's error stands for
	close   func() error
}

// Open opens the catalog at postgres://… or sqlite:FILE; FILE is created if it
// is missing, its directory is not. A server that does not answer is no error:
// operations give ErrUnavailable until it does. A schema older than this
// program gives ErrOldSchema, at once or as soon as the server answers; a newer
// one is fine.
func Open(ctx context.Context, url string, o Options) (*DB, error) {
	e, err := openEngine(url)
	if err != nil {
		return nil, fmt.Errorf("open catalog: %w", err)
	}
	db := &DB{engine: e, log: o.Log, timeout: o.Timeout}
	if db.log == nil {
		db.log = slog.New(slog.DiscardHandler)
	}
	if db.timeout == 0 {
		db.timeout = 10 * time.Second
	}
	if err := db.prepare(ctx, o.Migrate); err != nil {
		return nil, errors.Join(fmt.Errorf("open catalog: %w", err), db.Close())
	}
	return db, nil
}

func openEngine(url string) (engine, error) {
	scheme, rest, _ := strings.Cut(url, ":")
	switch scheme {
	case "postgres", "postgresql":
		return openPostgres(url)
	case "sqlite":
		return openSQLite(rest)
	}
	return engine{}, fmt.Errorf("scheme %q is not known: use postgres://… or sqlite:FILE", scheme)
}

func (db *DB) prepare(ctx context.Context, migrate bool) error {
	if migrate {
		_, err := db.Migrate(ctx)
		return err
	}
	err := db.do(ctx, func(context.Context) error { return nil })
	if errors.Is(err, ErrUnavailable) {
		db.log.Warn("the catalog does not answer yet", "err", err)
		return nil
	}
	return err
}

// Close ends all connections. Operations still running fail.
func (db *DB) Close() error { return db.close() }

// Migrate brings the schema up to date and returns the names of the migrations
// that were missing. Any number of processes may do so at once.
func (db *DB) Migrate(ctx context.Context) ([]string, error) {
	applied, err := db.migrate(ctx)
	if err != nil {
		return applied, db.classify(ctx, err)
	}
	db.current.Store(true)
	return applied, nil
}

// do runs one operation within the time limit, on a schema that is new enough,
// and sorts its error.
func (db *DB) do(ctx context.Context, operation func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, db.timeout)
	defer cancel()
	err := db.checkSchema(limited)
	if err == nil {
		err = operation(limited)
	}
	return db.classify(ctx, err)
}

func (db *DB) checkSchema(ctx context.Context) error {
	if db.current.Load() {
		return nil
	}
	version, err := db.schema(ctx)
	if err != nil {
		return err
	}
	if want := migrations.Latest(); version < want {
		return fmt.Errorf("%w: it has version %d, this program needs %d", ErrOldSchema, version, want)
	}
	db.current.Store(true)
	return nil
}

// schema returns the number of the newest migration applied, 0 before the first.
func (db *DB) schema(ctx context.Context) (int64, error) {
	var version sql.NullInt64
	row := db.read.QueryRowContext(ctx, "select max(version_id) from "+migrations.Table)
	err := row.Scan(&version)
	if err != nil && errors.Is(db.sort(err), ErrOldSchema) {
		return 0, nil // not even the table of versions is there
	}
	return version.Int64, err
}

// change runs one transaction that writes.
func (db *DB) change(ctx context.Context, operation func(context.Context, *sql.Tx) error) error {
	return db.do(ctx, func(ctx context.Context) error { return inTx(ctx, db.write, operation) })
}

func inTx(ctx context.Context, db *sql.DB, operation func(context.Context, *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after Commit there is nothing to roll back
	if err := operation(ctx, tx); err != nil {
		return err
	}
	return tx.Commit()
}
