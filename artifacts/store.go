// Package artifacts is the blob store of runlog: immutable, content-hashed
// artifacts, written as a stream, committed once, read from any offset.
//
// Two implementations keep the same promises and are held to the one suite in
// artifactstest: a directory (dir:PATH) and an S3 bucket (s3://bucket?…).
// Serve answers an HTTP request from either.
package artifacts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// What callers act on. Every error of this package that is none of these (and
// no context error) is a fault of the set-up or of the store's contents.
var (
	// ErrNotFound: no artifact is committed under this key.
	ErrNotFound = errors.New("artifact not found")
	// ErrExists: another commit on this key won; artifacts never change.
	ErrExists = errors.New("artifact already exists")
	// ErrBadKey: the key can never name an artifact; see Key.
	ErrBadKey = errors.New("bad artifact key")
	// ErrBadMeta: the name or media type cannot be stored; see Meta.
	ErrBadMeta = errors.New("bad artifact metadata")
	// ErrTooLarge: the write passed Options.MaxBytes.
	ErrTooLarge = errors.New("artifact too large")
	// ErrAbandoned: Sweep removed the write before its Commit; start again.
	ErrAbandoned = errors.New("write was swept away as abandoned; start it again")
	// ErrUnavailable: the store cannot be reached or has no room now; the same
	// call may succeed later.
	ErrUnavailable = errors.New("artifact store unavailable")
)

// Store keeps artifacts. All methods are safe for concurrent use, also from
// several processes on the same directory or bucket. A canceled context ends a
// call with the context's error; an expired deadline on S3 is ErrUnavailable
// as well.
type Store interface {
	// Create begins a write. Nothing is visible under key before Commit, and
	// several writers may race for one key. ctx bounds the whole write up to
	// Commit. Errors: ErrBadKey, ErrBadMeta, ErrUnavailable; a taken key is
	// noticed at Commit only.
	Create(ctx context.Context, key Key, meta Meta) (*Writer, error)

	// Open returns the committed artifact, positioned at its start. ctx bounds
	// all reads of the Object. An Object that is open while its artifact is
	// deleted either reads to the end or fails with ErrNotFound; it never
	// yields other bytes. Errors: ErrBadKey, ErrNotFound, ErrUnavailable.
	Open(ctx context.Context, key Key) (Object, error)

	// Stat returns what Commit returned. It sees every commit that returned
	// before it was called. Errors: ErrBadKey, ErrNotFound, ErrUnavailable.
	Stat(ctx context.Context, key Key) (Info, error)

	// Delete removes the artifact for good; deleting what is not there is no
	// error, so that an erasure can be repeated until it succeeds. After an
	// error the artifact may be gone, hidden or there: call again. The key may
	// be written anew afterwards. Errors: ErrBadKey, ErrUnavailable.
	Delete(ctx context.Context, key Key) error

	// Sweep removes the remains of writes that were neither committed nor
	// aborted and that put nothing into the store for olderThan, and counts
	// them. Choose it longer than the longest pause of a living writer (on S3
	// a writer shows life once per part): a living writer that is swept gets
	// ErrAbandoned from Commit, never a damaged artifact. Committed artifacts
	// are never touched. Safe beside everything, other sweeps included.
	// Errors: ErrUnavailable, after having removed what it could.
	Sweep(ctx context.Context, olderThan time.Duration) (int, error)

	// Ping tells whether the store can be used now. Errors: ErrUnavailable.
	Ping(ctx context.Context) error

	// PresignGet returns a URL that serves the artifact to anybody for ttl
	// (one second to seven days), with the disposition that Serve would choose.
	// The directory store has none: errors.ErrUnsupported. Other errors:
	// ErrBadKey, ErrNotFound, ErrUnavailable.
	PresignGet(ctx context.Context, key Key, ttl time.Duration) (string, error)

	// Close releases the store's own resources. Objects and Writers that are
	// still open fail afterwards or finish; they must be closed all the same.
	Close() error
}

// Object reads one committed artifact; use it from one goroutine at a time.
// Seek costs nothing. On S3 reading fetches bounded ranges as it goes.
type Object interface {
	io.ReadSeekCloser
	Info() Info
}

// Info describes a committed artifact.
type Info struct {
	Key
	Meta
	Bytes   int64     // length of the content
	SHA256  string    // of the content, 64 hex digits in lower case
	Created time.Time // of the commit, UTC, by the writer's clock, in milliseconds
}

// Options of a store; the zero value works.
type Options struct {
	// MaxBytes bounds one artifact. 0 means 16 GiB.
	MaxBytes int64
	// PartBytes is what a writer on S3 holds in memory before it uploads: the
	// size of a multipart part, 5 MiB to 1 GiB. 0 means 8 MiB. It is raised
	// where MaxBytes would need more than the 10,000 parts that S3 allows.
	PartBytes int
}

const (
	defaultMaxBytes  = 16 << 30
	defaultPartBytes = 8 << 20
	minPartBytes     = 5 << 20
	maxPartBytes     = 1 << 30
	maxParts         = 10_000
)

// Open returns the store at url:
//
//	dir:PATH                 a directory, created if absent
//	s3://BUCKET[/PREFIX]?…   a bucket, created if absent; see openS3 for the query
//
// It checks that the store can hold the promises made here. Errors:
// ErrUnavailable when the store cannot be reached (try again), anything else
// when the URL or the set-up is wrong. No error shows a credential.
func Open(ctx context.Context, url string, o Options) (Store, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	scheme, rest, _ := strings.Cut(url, ":")
	switch scheme {
	case "dir":
		return openDir(rest, o)
	case "s3":
		return openS3(ctx, url, o)
	}
	return nil, fmt.Errorf("artifacts URL: unknown scheme %q; use dir:PATH or s3://BUCKET?endpoint=http://HOST:PORT", clip(scheme, 20))
}

func (o Options) withDefaults() (Options, error) {
	o.MaxBytes = cmp.Or(o.MaxBytes, defaultMaxBytes)
	o.PartBytes = cmp.Or(o.PartBytes, defaultPartBytes)
	o.PartBytes = max(o.PartBytes, int(min(o.MaxBytes/maxParts+1, maxPartBytes)))
	if o.MaxBytes < 0 || o.PartBytes < minPartBytes || o.PartBytes > maxPartBytes {
		return o, fmt.Errorf("artifacts options: MaxBytes %d, PartBytes %d: want MaxBytes >= 0 and PartBytes of 5 MiB to 1 GiB", o.MaxBytes, o.PartBytes)
	}
	if o.MaxBytes > maxParts*int64(o.PartBytes) {
		return o, fmt.Errorf("artifacts options: MaxBytes %d is more than S3 can hold", o.MaxBytes)
	}
	return o, nil
}

// clip keeps an error message short, and what follows a typo out of it.
func clip(s string, n int) string {
	if len(s) > n {
		return s[:n] + "…"
	}
	return s
}
