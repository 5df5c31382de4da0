package artifacts

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"time"
)

// Writer is a write in progress; use it from one goroutine. The pattern is
// Create, defer Abort, Write …, Commit.
type Writer struct {
	ctx  context.Context // of Create
	rec  record
	sink sink
	sum  hash.Hash
	n    int64
	max  int64
	err  error // sticky, of the first Write that failed
	done bool
}

// sink is where a store takes the bytes of one write.
type sink interface {
	// write stores p, all of it or an error.
	write(ctx context.Context, p []byte) error
	// commit makes the bytes visible under rec, durably and at most once. After
	// ErrUnavailable or a context error it may be called again.
	commit(ctx context.Context, rec record) error
	// abort removes what write and a failed commit left. Called at most once,
	// never after a successful commit.
	abort()
}

var errWriterDone = errors.New("write after Commit or Abort")

func newWriter(ctx context.Context, rec record, sink sink, max int64) *Writer {
	return &Writer{ctx: ctx, rec: rec, sink: sink, sum: sha256.New(), max: max}
}

// writeID returns a name for one write that no other write ever has.
func writeID() string { return rand.Text() }

// Write adds p to the artifact. It may block while the store takes a part. An
// error is final for this Writer: ErrTooLarge, ErrUnavailable, ErrAbandoned or
// the error of Create's context.
func (w *Writer) Write(p []byte) (int, error) {
	switch {
	case w.done:
		return 0, errWriterDone
	case w.err != nil:
		return 0, w.err
	case int64(len(p)) > w.max-w.n:
		w.err = fmt.Errorf("write artifact %s: %w: the limit is %d bytes", w.rec.key(), ErrTooLarge, w.max)
		return 0, w.err
	}
	if err := w.sink.write(w.ctx, p); err != nil {
		w.err = fmt.Errorf("write artifact %s: %w", w.rec.key(), err)
		return 0, w.err
	}
	w.sum.Write(p)
	w.n += int64(len(p))
	return len(p), nil
}

// Bytes returns how many bytes were written so far.
func (w *Writer) Bytes() int64 { return w.n }

// Commit makes the artifact visible and returns it. When it returns nil the
// artifact is durable: synced to the disk (dir), acknowledged by the server
// (S3). Of several commits on one key exactly one succeeds.
//
// ErrExists: another commit won and nothing of this write is left behind.
// ErrAbandoned: Sweep took the write. ErrUnavailable or a context error: not
// committed as far as the store can tell, though a store that could not be
// asked may have taken it; Commit may be called again and recognises its own
// earlier success, or Abort.
func (w *Writer) Commit(ctx context.Context) (Info, error) {
	if w.done {
		return Info{}, errWriterDone
	}
	if w.err != nil {
		w.Abort()
		return Info{}, w.err
	}
	if err := ctx.Err(); err != nil {
		return Info{}, fmt.Errorf("commit artifact %s: %w", w.rec.key(), err)
	}
	if w.rec.SHA256 == "" {
		w.rec = w.rec.sealed(w.n, hex.EncodeToString(w.sum.Sum(nil)), time.Now())
	}
	if err := w.sink.commit(ctx, w.rec); err != nil {
		if !mayCommitAgain(err) {
			w.Abort()
		}
		return Info{}, fmt.Errorf("commit artifact %s: %w", w.rec.key(), err)
	}
	w.done = true
	return w.rec.info(), nil
}

func mayCommitAgain(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// Abort drops the write and what it left in the store. After Commit succeeded,
// or a second time, it does nothing. What it cannot remove Sweep will.
func (w *Writer) Abort() {
	if w.done {
		return
	}
	w.done = true
	w.sink.abort()
}
