package edge

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/runlog-dev/runlog/edge/stream"
	"github.com/runlog-dev/runlog/event"
)

// listen takes the client's messages until it leaves.
func (k *socket) listen() {
	defer close(k.read)
	for {
		kind, raw, share, err := k.message()
		var full *Problem
		switch {
		case errors.Is(err, websocket.ErrMessageTooBig):
			k.refuse(websocket.StatusMessageTooBig, "the message is too large")
			return
		case errors.As(err, &full):
			k.refuse(closeTryLater, string(full.Code))
			return
		case err != nil:
			k.cancel(errClientLeft)
			return
		case kind != websocket.MessageText:
			share.GiveUp()
			k.refuse(websocket.StatusUnsupportedData, "messages are JSON texts")
			return
		}
		select {
		case k.first <- raw: // it is waited for
			share.GiveUp()
		case <-k.begun:
			k.command(raw, share)
		case <-k.ctx.Done():
			share.GiveUp()
			return
		}
	}
}

// message reads one. What it takes is counted as a body is, since whoever has sent
// most of it may leave it at that; the share is the caller's to give up.
func (k *socket) message() (kind websocket.MessageType, raw []byte, share *bodyShare, err error) {
	kind, r, err := k.conn.Reader(k.ctx)
	if err != nil {
		return kind, nil, nil, err
	}
	s := k.srv.bodyShare()
	share = &s
	select {
	case <-k.begun:
		share.Tenant = k.call.who.Tenant
	default: // it may be anybody
	}
	if raw, err = io.ReadAll(countedBody{r, share}); err != nil {
		share.GiveUp()
	}
	return kind, raw, share, err
}

// refuse closes the WebSocket for what its client has sent. For a moment it takes
// what still comes: a connection that is closed on unread bytes is reset, and a
// client that is not through with its message would get no code. Only then is the
// stream ended, which aborts the connection.
func (k *socket) refuse(code websocket.StatusCode, reason string) {
	_ = k.out.SetReadDeadline(time.Now().Add(refusalTimeout))
	k.sayGoodbye(code, reason)
	k.cancel(errClientLeft)
}

// keepAlive pings until stop is called; a client that does not answer within the time
// that it has to take a write is dead. Between pings it holds no goroutine.
func (k *socket) keepAlive() (stop func()) {
	every := k.srv.opts.SocketPing
	var mu sync.Mutex
	var timer *time.Timer
	beat := func() {
		ctx, cancel := context.WithTimeout(k.ctx, k.srv.hub.WriteTimeout())
		defer cancel()
		taken := k.out.taken.Load()
		if k.conn.Ping(ctx) != nil && k.out.taken.Load() == taken { // else it is behind what the client reads slowly
			k.cancel(errClientDead)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if k.ctx.Err() == nil {
			timer.Reset(every)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(every, beat)
	return func() { timer.Stop() }
}

// send sends one value as a message.
func (k *socket) send(v any) error {
	return k.conn.Write(k.ctx, websocket.MessageText, event.Encode(v))
}

// A socketWriter is the answer that a stream's handler writes: each line becomes
// a message. Status and header have no place there: an error is the handler's
// result, and what would be 204 is the end.
type socketWriter struct {
	socket *socket
	header http.Header
}

func (w *socketWriter) Header() http.Header {
	if w.header == nil {
		w.header = http.Header{}
	}
	return w.header
}

func (w *socketWriter) WriteHeader(status int) {
	if status == http.StatusNoContent {
		w.socket.call.ended = "run_over"
	}
}

// WholeLines tells a stream so.
func (w *socketWriter) WholeLines() {}

// Write takes whole lines.
func (w *socketWriter) Write(b []byte) (int, error) {
	k := w.socket
	if bytes.Count(b, []byte("\n")) > 1 {
		k.out.cork()
	}
	for line := range bytes.Lines(b) {
		if err := k.conn.Write(k.ctx, websocket.MessageText, line[:len(line)-1]); err != nil {
			return 0, err
		}
	}
	k.call.bytes += int64(len(b))
	return len(b), k.out.uncork()
}

// Flush: Write has sent everything.
func (w *socketWriter) Flush() {}

// SetWriteDeadline: each write to the connection has one.
func (w *socketWriter) SetWriteDeadline(time.Time) error { return nil }

// Hurry ends all writes within a time: the WebSocket is about to be closed.
func (w *socketWriter) Hurry(within time.Duration) { w.socket.out.hurry(within) }

// A hijacker puts a corked connection under a WebSocket.
type hijacker struct {
	http.ResponseWriter
	timeout time.Duration
	conn    *corked
}

func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	_ = conn.SetDeadline(time.Time{})
	h.conn = &corked{Conn: conn, timeout: h.timeout}
	rw.Writer.Reset(h.conn)
	return h.conn, rw, nil
}

// A corked connection can gather the frames of many messages into one write.
// Every write has a deadline.
type corked struct {
	net.Conn
	timeout time.Duration

	mu     sync.Mutex
	gather bool
	buf    []byte

	taken atomic.Int64 // pieces of data that went to the client
	last  atomic.Int64 // when all writes have to be over, Unix nanoseconds; 0: at no time
}

func (c *corked) hurry(within time.Duration) {
	last := time.Now().Add(within)
	c.last.Store(last.UnixNano())
	_ = c.SetWriteDeadline(last)
}

// calm takes hurry back: the stream is over, what ends the WebSocket is not.
func (c *corked) calm() { c.last.Store(0) }

// allow gives the client time for the next write.
func (c *corked) allow() {
	_ = c.SetWriteDeadline(time.Now().Add(c.timeout))
	if last := c.last.Load(); last > 0 {
		_ = c.SetWriteDeadline(time.Unix(0, last))
	}
}

// maxControl is how large the frame of a ping, pong or close is at most.
const maxControl = 127

func (c *corked) cork() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gather = true
}

func (c *corked) uncork() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	buf := c.buf
	c.buf, c.gather = nil, false
	if len(buf) == 0 {
		return nil
	}
	_, err := c.write(buf)
	return err
}

func (c *corked) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gather {
		c.buf = append(c.buf, b...)
		return len(b), nil
	}
	return c.write(b)
}

// write writes in pieces, each of which has its time. The caller holds mu.
func (c *corked) write(b []byte) (int, error) {
	return stream.InPieces(c.Conn, b, func() {
		c.allow()
		if len(b) > maxControl {
			c.taken.Add(1)
		}
	})
}
