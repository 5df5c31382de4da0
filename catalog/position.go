package catalog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// Position returns the stream sequence of the last frame of a partition that
// has been projected, 0 before the first.
func (db *DB) Position(ctx context.Context, partition int) (uint64, error) {
	var seq int64
	err := db.do(ctx, func(ctx context.Context) error {
		row := db.read.QueryRowContext(ctx, "select stream_seq from positions where part = $1", partition)
		if err := row.Scan(&seq); !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("read position of partition %d: %w", partition, err)
	}
	return uint64(seq), nil
}

// move makes the position upto if it is after, and keeps the row locked until
// the transaction ends.
func move(ctx context.Context, tx *sql.Tx, partition int, after, upto uint64) error {
	if err := addPosition(ctx, tx, partition); err != nil {
		return err
	}
	done, err := tx.ExecContext(ctx, "update positions set stream_seq = $1 where part = $2 and stream_seq = $3",
		int64(upto), partition, int64(after))
	if err != nil {
		return err
	}
	if n, err := done.RowsAffected(); err != nil || n == 1 {
		return err
	}
	return ErrMoved
}

func addPosition(ctx context.Context, tx *sql.Tx, partition int) error {
	_, err := tx.ExecContext(ctx, `insert into positions (part, stream_seq, holder, held_until)
		values ($1, 0, '', 0) on conflict (part) do nothing`, partition)
	return err
}

// Lead makes holder the one that records a partition, for as long as lease from
// now, and reports whether it is. Who holds it extends it by calling again. It
// only spares others the work of reading: what makes a second recorder harmless
// is ApplyAt's position, so that clocks need not agree.
func (db *DB) Lead(ctx context.Context, partition int, holder string, lease time.Duration) (bool, error) {
	now, led := time.Now(), int64(0)
	err := db.change(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if err := addPosition(ctx, tx, partition); err != nil {
			return err
		}
		done, err := tx.ExecContext(ctx, `update positions set holder = $1, held_until = $2
			where part = $3 and (holder = $1 or held_until < $4)`,
			holder, now.Add(lease).UnixMicro(), partition, now.UnixMicro())
		if err == nil {
			led, err = done.RowsAffected()
		}
		return err
	})
	if err != nil {
		return false, fmt.Errorf("lead partition %d: %w", partition, err)
	}
	return led == 1, nil
}

// Release ends holder's lease, if it has it, so that another one need not wait.
func (db *DB) Release(ctx context.Context, partition int, holder string) error {
	err := db.change(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "update positions set held_until = 0 where part = $1 and holder = $2", partition, holder)
		return err
	})
	if err != nil {
		return fmt.Errorf("release partition %d: %w", partition, err)
	}
	return nil
}

// Reset drops the projection and sets every position to 0; keys stay. Recorders
// at work notice by ErrMoved and begin anew. It is not bound by Options.Timeout.
func (db *DB) Reset(ctx context.Context) error {
	err := db.checkSchema(ctx)
	if err == nil {
		err = inTx(ctx, db.write, db.reset)
	}
	if err != nil {
		return fmt.Errorf("reset the projection: %w", db.classify(ctx, err))
	}
	return nil
}

// reset takes the positions first, as ApplyAt does, so that the two wait for
// each other instead of deadlocking.
func (db *DB) reset(ctx context.Context, tx *sql.Tx) error {
	statements := append([]string{"update positions set stream_seq = 0"}, db.empty...)
	for _, s := range statements {
		if _, err := tx.ExecContext(ctx, s); err != nil {
			return err
		}
	}
	return nil
}
