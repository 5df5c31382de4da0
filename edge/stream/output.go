package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// output writes to one client. It has a buffer only while there is something to write,
// so that a silent stream costs none.
type output struct {
	w         io.Writer    // nil: what is put stays in the buffer, for take
	sendAlong func() error // what w has kept back
	timeout   time.Duration

	setDeadline func(time.Time) error
	deadline    time.Time // that the connection has

	buf     *[]byte
	chunked bool                // the buffer begins with room for a chunk's head
	lines   bool                // w takes whole lines
	ends    bool                // a deadline that passes ends the answer even while nothing is being written
	hurry   func(time.Duration) // sets a deadline, also while something is being written
	hurried atomic.Bool         // hurry was called: the deadline stays

	events, bytes int   // put since the last flush
	written       int64 // of the body
}

// flushAt is the size at which a buffer is written.
const flushAt = 32 << 10

var buffers = sync.Pool{New: func() any { b := make([]byte, 0, flushAt+4<<10); return &b }}

// newOutput writes an answer's body.
func newOutput(w http.ResponseWriter, timeout time.Duration) *output {
	rc := http.NewResponseController(w)
	_, lines := w.(interface{ WholeLines() })
	e, ok := w.(interface{ DeadlineEnds() bool })
	o := &output{w: w, sendAlong: rc.Flush, setDeadline: rc.SetWriteDeadline, timeout: timeout, lines: lines, ends: ok && e.DeadlineEnds()}
	o.hurry = func(within time.Duration) { _ = rc.SetWriteDeadline(time.Now().Add(within)) }
	if h, ok := w.(interface{ Hurry(time.Duration) }); ok {
		o.hurry = h.Hurry
	}
	return o
}

// endWithin leaves the client so long for what is being written to it. It may be called
// while somebody writes.
func (o *output) endWithin(d time.Duration) {
	o.hurried.Store(true)
	o.hurry(d)
}

// newChunkedOutput writes the rest of a body to a connection that was taken over.
func newChunkedOutput(conn net.Conn, timeout time.Duration) *output {
	return &output{w: conn, sendAlong: func() error { return nil }, setDeadline: conn.SetWriteDeadline, timeout: timeout, chunked: true,
		hurry: func(within time.Duration) { _ = conn.SetWriteDeadline(time.Now().Add(within)) }}
}

// lastWrite is how long a client has for what is being written to it when its stream is
// broken off.
const lastWrite = time.Second

// endWith keeps a client that takes nothing from holding up the end of its stream: when
// ctx ends, what is being written has lastWrite left. The client loses nothing that it
// would have kept. After stop the connection is left alone.
func (o *output) endWith(ctx context.Context) (stop func()) {
	done := make(chan struct{})
	unless := context.AfterFunc(ctx, func() {
		defer close(done)
		o.endWithin(lastWrite)
	})
	return func() {
		if !unless() {
			<-done
		}
	}
}

// buffer is where the next message is appended; put takes it back.
func (o *output) buffer() []byte {
	if o.buf == nil {
		o.buf = buffers.Get().(*[]byte)
		o.empty()
	}
	return *o.buf
}

// empty leaves nothing in the buffer but the room that a chunk's head needs.
func (o *output) empty() {
	*o.buf = (*o.buf)[:0]
	if o.chunked {
		*o.buf = append(*o.buf, chunkHead...)
	}
}

// put takes back the buffer with a message appended. It writes when there is enough.
func (o *output) put(b []byte) error {
	*o.buf = b
	if len(b) < flushAt || o.w == nil {
		return nil
	}
	return o.write()
}

// add puts a message that other viewers may share. One that would fill a buffer is not
// copied but written as it is, so that clients that do not take it share it, too.
func (o *output) add(message []byte) error {
	if len(message) < flushAt || o.w == nil {
		return o.put(append(o.buffer(), message...))
	}
	head, end := "", ""
	if o.chunked {
		head, end = strconv.FormatInt(int64(len(message)), 16)+"\r\n", "\r\n"
	}
	_ = o.buffer() // there is something to flush
	err := o.write()
	for _, b := range [][]byte{[]byte(head), message, []byte(end)} {
		if err == nil && len(b) > 0 {
			err = o.hand(b)
		}
	}
	o.written += int64(len(message))
	return err
}

// flushers reports whether the output is that of a flusher, which must not wait.
func (o *output) flushers() bool { return o != nil && o.w == nil }

// take returns what is to be written: size bytes of the body, framed as a chunk if the
// body is chunked.
func (o *output) take() (b []byte, size int) {
	switch {
	case o.buf == nil:
		return nil, 0
	case !o.chunked:
		return *o.buf, len(*o.buf)
	}
	if size = len(*o.buf) - len(chunkHead); size == 0 {
		return nil, 0
	}
	*o.buf = append(*o.buf, "\r\n"...)
	return chunk(*o.buf), size
}

// write hands the buffer to the client, who must take it in time.
func (o *output) write() error {
	if o.w == nil {
		return nil
	}
	b, size := o.take()
	if size == 0 {
		return nil
	}
	o.written += int64(size)
	if err := o.hand(b); err != nil {
		o.buf = nil // HTTP/2 may still be reading it: it is nobody else's
		return err
	}
	o.empty()
	return nil
}

// hand writes what take returned.
func (o *output) hand(b []byte) (err error) {
	if o.lines {
		o.extend()
		_, err = o.w.Write(b)
	} else {
		_, err = InPieces(o.w, b, o.extend)
	}
	return o.late(err)
}

// late makes a write that failed after its deadline an os.ErrDeadlineExceeded: HTTP/2
// gives another error then.
func (o *output) late(err error) error {
	switch {
	case err == nil:
		return nil
	case !o.deadline.IsZero() && !time.Now().Before(o.deadline) && !errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("write to the client: %w: %w", os.ErrDeadlineExceeded, err)
	}
	return fmt.Errorf("write to the client: %w", err)
}

// piece is how much a client has to take within a write's time.
const piece = 64 << 10

// InPieces writes b, however large it is, so that a client has as long for each piece
// of it as for a small message. extend is called before each.
func InPieces(w io.Writer, b []byte, extend func()) (n int, err error) {
	for {
		extend()
		m, err := w.Write(b[n:min(n+piece, len(b))])
		if n += m; err != nil || n >= len(b) {
			return n, err
		}
	}
}

// extend gives the client between three quarters of the timeout and all of it. It does
// not move the deadline at each write: that would cost more than all other bookkeeping.
func (o *output) extend() {
	now := time.Now()
	if o.deadline.Sub(now) < o.timeout*3/4 {
		o.deadline = now.Add(o.timeout)
		_ = o.setDeadline(o.deadline) // a recorder in a test has none
		if o.hurried.Load() {
			o.hurry(lastWrite)
		}
	}
}

// flush sends everything now and gives the buffer back.
func (o *output) flush() error {
	if o.buf == nil || o.w == nil {
		return nil
	}
	err := o.write()
	if err == nil {
		err = o.late(o.sendAlong())
	}
	o.release()
	if err == nil && o.ends {
		o.deadline = time.Time{}
		_ = o.setDeadline(o.deadline)
	}
	return err
}

// release gives the buffer back.
func (o *output) release() {
	if o.buf != nil && cap(*o.buf) <= 4*flushAt { // a giant is left to the collector
		buffers.Put(o.buf)
	}
	o.buf = nil
}
