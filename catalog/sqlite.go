package catalog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ncruces/go-sqlite3"
	_ "github.com/ncruces/go-sqlite3/driver" // registers sqlite3

	"github.com/runlog-dev/runlog/migrations"
)

// readers is how many queries of one process run at once.
const readers = 4

// openSQLite opens one connection that writes and some that read; in WAL mode
// they do not wait for each other. Every commit is synced: a revoked key must
// not work again after a power cut.
func openSQLite(file string) (engine, error) {
	path, err := sqliteFile(file)
	if err != nil {
		return engine{}, err
	}
	write, err := sql.Open("sqlite3", sqliteURI(path, "journal_mode(wal)", "synchronous(full)"))
	if err != nil {
		return engine{}, err
	}
	write.SetMaxOpenConns(1)
	if err := awaitTurn(write.Ping); err != nil { // sets WAL mode before anyone reads
		return engine{}, errors.Join(fmt.Errorf("%s: %w", path, err), write.Close())
	}
	read, err := sql.Open("sqlite3", sqliteURI(path, "query_only(1)"))
	if err != nil {
		return engine{}, errors.Join(err, write.Close())
	}
	read.SetMaxOpenConns(readers)
	read.SetMaxIdleConns(readers)
	return engine{
		name:    "sqlite",
		write:   write,
		read:    read,
		rows:    "json_each($1) as j",
		empty:   []string{"delete from sessions", "delete from runs", "delete from tool_calls", "delete from artifacts"},
		migrate: func(ctx context.Context) ([]string, error) { return migrations.SQLite(ctx, write, path) },
		sort:    sortSQLite,
		close:   func() error { return errors.Join(read.Close(), write.Close()) },
	}, nil
}

// busy is how long a process waits while others use the database.
const busy = 10 * time.Second

// awaitTurn tries again as long as the database is locked: of several processes
// that set WAL mode at once, SQLite refuses all but one without waiting.
func awaitTurn(do func() error) error {
	for end := time.Now().Add(busy); ; time.Sleep(10 * time.Millisecond) {
		if err := do(); !errors.Is(err, sqlite3.BUSY) || time.Now().After(end) {
			return err
		}
	}
}

// sqliteFile creates the file, since it holds key hashes for its owner alone.
func sqliteFile(file string) (string, error) {
	if file == "" || strings.HasPrefix(file, ":") {
		return "", errors.New("no file: use sqlite:FILE, such as sqlite:catalog.db")
	}
	path, err := filepath.Abs(file)
	if err != nil {
		return "", err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	return path, f.Close()
}

// sqliteURI gives the files beside the database, which hold what it holds, its
// mode. SQLite reads + as itself.
func sqliteURI(path string, pragmas ...string) string {
	query := url.Values{"_pragma": append([]string{fmt.Sprintf("busy_timeout(%d)", busy.Milliseconds())}, pragmas...), "modeof": {path}}
	u := url.URL{Scheme: "file", Opaque: (&url.URL{Path: filepath.ToSlash(path)}).EscapedPath(),
		RawQuery: strings.ReplaceAll(query.Encode(), "+", "%20")}
	return u.String()
}

func sortSQLite(err error) error {
	switch {
	case errors.Is(err, sqlite3.TOOBIG), errors.Is(err, sqlite3.CONSTRAINT), errors.Is(err, sqlite3.MISMATCH):
		return ErrRefused
	case err != nil && (strings.Contains(err.Error(), "no such table") || strings.Contains(err.Error(), "no such column")):
		return ErrOldSchema
	case errors.Is(err, sqlite3.ERROR): // malformed JSON and other faults of the statement
		return ErrRefused
	}
	return ErrUnavailable
}
