package artifacts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/minio/minio-go/v7"
)

// A reader asks for a window at a time: small at first and after a seek, since
// a ranged request may want little, then growing, since a long read pays per
// request. The body streams; nothing of it is kept in memory.
const (
	firstWindow = 128 << 10
	maxWindow   = 8 << 20
	// drainMax is the rest of a window that is read away to keep the connection.
	drainMax = 128 << 10
	// stallTime ends a request whose bytes stop coming.
	stallTime  = 30 * time.Second
	readTries  = 4 // without a byte of progress
	retryPause = 100 * time.Millisecond
)

func (s *s3Store) Open(ctx context.Context, key Key) (Object, error) {
	rec, etag, err := s.stat(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("open artifact %s: %w", key, err)
	}
	return &s3Object{store: s, ctx: ctx, info: rec.info(), etag: etag, window: firstWindow}, nil
}

// s3Object reads one version of one object by ranges.
type s3Object struct {
	store  *s3Store
	ctx    context.Context
	info   Info
	etag   string // every range must be of this version
	pos    int64
	window int64     // length of the next range
	cur    *s3Window // nil between ranges
	closed bool
}

// s3Window is one ranged request whose body is being read.
type s3Window struct {
	body   io.ReadCloser
	left   int64
	stall  *time.Timer // cancels the request
	cancel context.CancelFunc
}

func (o *s3Object) Info() Info { return o.info }

func (o *s3Object) Read(p []byte) (int, error) {
	switch {
	case o.closed:
		return 0, fs.ErrClosed
	case len(p) == 0:
		return 0, nil
	case o.pos >= o.info.Bytes:
		return 0, io.EOF
	}
	for try := 1; ; try++ {
		n, err := o.readOnce(p)
		if n > 0 || err == nil {
			return n, nil
		}
		if try == readTries || !errors.Is(err, ErrUnavailable) || !o.pause(try) {
			return 0, fmt.Errorf("read artifact %s at %d: %w", o.info.Key, o.pos, err)
		}
	}
}

// pause waits before another try, except the first, which is due to one broken
// connection as a rule; false when the context ended.
func (o *s3Object) pause(try int) bool {
	select {
	case <-time.After(time.Duration(try-1) * retryPause):
		return true
	case <-o.ctx.Done():
		return false
	}
}

// readOnce reads from the current range, or from a new one.
func (o *s3Object) readOnce(p []byte) (int, error) {
	if o.cur == nil {
		if err := o.fetch(int64(len(p))); err != nil {
			return 0, err
		}
	}
	n, err := o.cur.read(p)
	o.pos += int64(n)
	if o.cur.left == 0 {
		o.drop()
		o.window = min(o.window*4, maxWindow)
		return n, nil
	}
	if err != nil { // the end comes early as well: a broken connection
		o.drop()
		if cause := o.ctx.Err(); cause != nil {
			return n, s3Error(o.ctx, err)
		}
		return n, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return n, nil
}

// fetch requests the next range, of at least want bytes if there are so many.
func (o *s3Object) fetch(want int64) error {
	n := min(max(o.window, min(want, maxWindow)), o.info.Bytes-o.pos)
	var opt minio.GetObjectOptions
	if err := opt.SetRange(o.pos, o.pos+n-1); err != nil {
		return err
	}
	if err := opt.SetMatchETag(o.etag); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(o.ctx)
	body, got, _, err := o.store.api.GetObject(ctx, o.store.bucket, o.store.blob(o.info.Key), opt)
	if err != nil {
		cancel()
		if err = s3Error(o.ctx, err); errors.Is(err, errPrecondition) {
			err = ErrNotFound // deleted, and another one written since
		}
		return err
	}
	if got.Size != n {
		body.Close()
		cancel()
		return fmt.Errorf("server answered a range of %d bytes with %d", n, got.Size)
	}
	stall := time.AfterFunc(stallTime, cancel)
	stall.Stop()
	o.cur = &s3Window{body: body, left: n, stall: stall, cancel: cancel}
	return nil
}

func (w *s3Window) read(p []byte) (int, error) {
	w.stall.Reset(stallTime)
	n, err := w.body.Read(p[:min(int64(len(p)), w.left)])
	w.stall.Stop()
	w.left -= int64(n)
	return n, err
}

// drop ends the current range and keeps its connection if that is cheap.
func (o *s3Object) drop() {
	if o.cur == nil {
		return
	}
	if o.cur.left <= drainMax {
		o.cur.stall.Reset(stallTime)
		io.CopyN(io.Discard, o.cur.body, o.cur.left+1) //nolint:errcheck // the connection is lost then, no more
		o.cur.stall.Stop()
	}
	o.cur.body.Close()
	o.cur.cancel()
	o.cur = nil
}

func (o *s3Object) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekStart:
	case io.SeekCurrent:
		offset += o.pos
	case io.SeekEnd:
		offset += o.info.Bytes
	default:
		return 0, fmt.Errorf("seek artifact %s: unknown whence %d", o.info.Key, whence)
	}
	if o.closed {
		return 0, fs.ErrClosed
	}
	if offset < 0 {
		return 0, fmt.Errorf("seek artifact %s: negative position %d", o.info.Key, offset)
	}
	if offset != o.pos {
		o.drop()
		o.pos, o.window = offset, firstWindow
	}
	return offset, nil
}

func (o *s3Object) Close() error {
	o.closed = true
	o.drop()
	return nil
}
