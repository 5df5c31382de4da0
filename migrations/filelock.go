package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"

	_ "github.com/ncruces/go-sqlite3/driver" // locks files alike on every system
)

// A fileLock is held by one process and one caller within it at a time, and
// ends with its process. It is the write lock of an empty SQLite database: the
// catalog's own write lock is taken and given back by each migration, so that
// it cannot span check and change.
type fileLock struct {
	path string
	db   *sql.DB
	conn *sql.Conn // inside a transaction while the lock is held
}

// Lock waits up to five minutes.
func (l *fileLock) Lock(ctx context.Context, _ *sql.DB) error {
	u := url.URL{Scheme: "file", Opaque: (&url.URL{Path: l.path}).EscapedPath(), RawQuery: "_pragma=busy_timeout(300000)"}
	db, err := sql.Open("sqlite3", u.String())
	if err != nil {
		return fmt.Errorf("open lock %s: %w", l.path, err)
	}
	conn, err := hold(ctx, db)
	if err != nil {
		return errors.Join(fmt.Errorf("wait for lock %s: %w", l.path, err), db.Close())
	}
	l.db, l.conn = db, conn
	return nil
}

func hold(ctx context.Context, db *sql.DB) (*sql.Conn, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := conn.ExecContext(ctx, "begin exclusive"); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// Unlock gives the lock back. The file stays: removing it would let two
// processes hold locks on two files of one name.
func (l *fileLock) Unlock(ctx context.Context, _ *sql.DB) error {
	_, err := l.conn.ExecContext(ctx, "rollback")
	return errors.Join(err, l.conn.Close(), l.db.Close())
}
