// Package migrations holds the catalog's schema as numbered SQL, one text for
// Postgres and SQLite, and brings a database up to it.
//
// A migration has to leave the schema usable by the release before it: new
// processes run with it while old ones still do.
package migrations

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed *.sql
var files embed.FS

// Table records which migrations a database has had. The name is our own, so
// that an application in the same database may use the same tool.
const Table = "runlog_schema"

// lockID is the advisory lock that processes migrating at once wait for.
const lockID = 0x72756e6c6f67 // "runlog"

// Latest returns the number of the newest migration.
func Latest() int64 {
	names, err := fs.Glob(files, "*.sql")
	if err != nil || len(names) == 0 {
		panic("migrations: no SQL embedded")
	}
	last := names[len(names)-1] // Glob sorts, and numbers have four digits
	digits, _, _ := strings.Cut(last, "_")
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		panic("migrations: " + last + " has no number")
	}
	return n
}

// Postgres applies what is missing and returns the names of what it applied.
// Any number of processes may call it at once: one works, the others wait.
func Postgres(ctx context.Context, db *sql.DB) ([]string, error) {
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockID(lockID), lock.WithLockTimeout(1, 300))
	if err != nil {
		return nil, fmt.Errorf("lock for migrations: %w", err)
	}
	return up(ctx, db, goose.DialectPostgres, goose.WithSessionLocker(locker))
}

// SQLite is Postgres for the SQLite database in file, which db has open.
// Processes wait for each other by a lock on the file beside it, file-migrate.
func SQLite(ctx context.Context, db *sql.DB, file string) ([]string, error) {
	return up(ctx, db, goose.DialectSQLite3, goose.WithLocker(&fileLock{path: file + "-migrate"}))
}

func up(ctx context.Context, db *sql.DB, dialect goose.Dialect, locker goose.ProviderOption) ([]string, error) {
	p, err := goose.NewProvider(dialect, db, files, locker,
		goose.WithTableName(Table), goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
	if err != nil {
		return nil, fmt.Errorf("read migrations: %w", err)
	}
	results, err := p.Up(ctx)
	if err != nil {
		return nil, fmt.Errorf("migrate the catalog: %w", err)
	}
	var applied []string
	for _, r := range results {
		applied = append(applied, path.Base(r.Source.Path))
	}
	return applied, nil
}
