package stream

import (
	"fmt"
	"net/http"
	"sync"
	"time"
)

// output writes to one client. Its buffer is lent to it while there is something
// to write, so that a silent stream holds none.
type output struct {
	w       http.ResponseWriter
	rc      *http.ResponseController
	timeout time.Duration

	deadline time.Time // that the connection has
	buf      *[]byte
}

// flushAt is the size at which a buffer is written.
const flushAt = 32 << 10

var buffers = sync.Pool{New: func() any { b := make([]byte, 0, flushAt+4<<10); return &b }}

func newOutput(w http.ResponseWriter, timeout time.Duration) *output {
	return &output{w: w, rc: http.NewResponseController(w), timeout: timeout}
}

// buffer is where the next message is appended; put takes it back.
func (o *output) buffer() []byte {
	if o.buf == nil {
		o.buf = buffers.Get().(*[]byte)
	}
	return *o.buf
}

func (o *output) put(b []byte) error {
	*o.buf = b
	if len(b) < flushAt {
		return nil
	}
	return o.write()
}

func (o *output) add(message []byte) error { return o.put(append(o.buffer(), message...)) }

// write hands the buffer to the client, who must take it in time.
func (o *output) write() error {
	if o.buf == nil || len(*o.buf) == 0 {
		return nil
	}
	o.extend()
	_, err := o.w.Write(*o.buf)
	*o.buf = (*o.buf)[:0]
	if err != nil {
		return fmt.Errorf("write to the client: %w", err)
	}
	return nil
}

// extend gives the client between three quarters of the timeout and all of it: to
// move the deadline at each write costs more than the write's other bookkeeping.
func (o *output) extend() {
	now := time.Now()
	if o.deadline.Sub(now) < o.timeout*3/4 {
		o.deadline = now.Add(o.timeout)
		_ = o.rc.SetWriteDeadline(o.deadline) // a recorder in a test has none
	}
}

// flush sends everything now and gives the buffer back.
func (o *output) flush() error {
	if o.buf == nil {
		return nil
	}
	err := o.write()
	if err == nil {
		err = o.rc.Flush()
	}
	o.release()
	return err
}

func (o *output) release() {
	if o.buf != nil && cap(*o.buf) <= 4*flushAt { // a giant is left to the collector
		buffers.Put(o.buf)
	}
	o.buf = nil
}
