package catalog

import (
	"context"
	"errors"
	"fmt"
)

// What callers act on.
var (
	// ErrUnavailable: the database did not answer, or not in time. What was
	// asked may have been done; the next try may succeed.
	ErrUnavailable = errors.New("the catalog is unavailable")
	// ErrOldSchema: the schema is older than this program.
	ErrOldSchema = errors.New("the catalog's schema is too old: run `runlog migrate`")
	// ErrNotFound: the tenant has no such thing.
	ErrNotFound = errors.New("not found in the catalog")
	// ErrRefused: the database will never take these values.
	ErrRefused = errors.New("the catalog refuses the data")
	// ErrMoved: the position is not where the caller believed it to be;
	// nothing was written. Read it again and go on from there.
	ErrMoved = errors.New("the position in the log was moved by another recorder")
	// ErrBadCursor: the page cursor is none that a page came with.
	ErrBadCursor = errors.New("malformed page cursor: use the one the page before came with")
	// ErrRevoked: the key was valid once.
	ErrRevoked = errors.New("the key was revoked")
)

// classify puts the sentinel before a driver's error. The end of the caller's
// own context stays what it is.
func (db *DB) classify(ctx context.Context, err error) error {
	switch {
	case err == nil, isOurs(err):
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: no answer within %s", ErrUnavailable, db.timeout)
	}
	return fmt.Errorf("%w: %w", db.sort(err), err)
}

func isOurs(err error) bool {
	for _, sentinel := range []error{ErrUnavailable, ErrOldSchema, ErrNotFound, ErrRefused, ErrMoved, ErrBadCursor, ErrRevoked} {
		if errors.Is(err, sentinel) {
			return true
		}
	}
	return false
}
