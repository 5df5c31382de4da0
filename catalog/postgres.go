package catalog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/runlog-dev/runlog/migrations"
)

// connectTimeout holds unless the URL has a connect_timeout.
const connectTimeout = 5 * time.Second

// openPostgres reads the URL; connections are made when they are needed.
func openPostgres(url string) (engine, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return engine{}, err // pgx leaves the password out
	}
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = connectTimeout
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return engine{}, err
	}
	db := stdlib.OpenDBFromPool(pool)
	return engine{
		name:    "postgres",
		write:   db,
		read:    db,
		rows:    "jsonb_array_elements(cast($1 as jsonb)) as j(value)",
		lock:    " for update",
		empty:   []string{"truncate sessions, runs, tool_calls, artifacts"},
		migrate: func(ctx context.Context) ([]string, error) { return migratePostgres(ctx, db) },
		sort:    sortPostgres,
		close: func() error {
			err := db.Close()
			pool.Close()
			return err
		},
	}, nil
}

// migratePostgres refuses a database that cannot hold every text, before there
// is anything in it.
func migratePostgres(ctx context.Context, db *sql.DB) ([]string, error) {
	var encoding string
	if err := db.QueryRowContext(ctx, "select current_setting('server_encoding')").Scan(&encoding); err != nil {
		return nil, err
	}
	if encoding != "UTF8" {
		return nil, fmt.Errorf("%w: the database's encoding is %s: create it with encoding 'UTF8'", ErrRefused, encoding)
	}
	return migrations.Postgres(ctx, db)
}

// sortPostgres goes by the class of the SQLSTATE. Whatever the server did not
// say itself is a fault of the connection.
func sortPostgres(err error) error {
	var said *pgconn.PgError
	if !errors.As(err, &said) || len(said.Code) != 5 {
		return ErrUnavailable
	}
	switch said.Code {
	case "42P01", "42703", "3F000": // no such table, column, schema
		return ErrOldSchema
	case "42P08", "42P18": // parameter types: our SQL is wrong
		return ErrRefused
	}
	switch said.Code[:2] {
	case "21", "22", "23", "54": // cardinality, data, constraints, limits
		return ErrRefused
	}
	return ErrUnavailable
}
