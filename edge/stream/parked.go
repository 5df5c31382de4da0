package stream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"
)

// A Parked is a viewer whose connection was taken over from its HTTP server, and whose
// handler has returned. It is in one of three states, and only what has it in that state
// touches its viewer: it sits in a row of its topic, where flushers move it on; it is
// awake, in a goroutine of its own, to read the log or to wait for a slow client, and
// sits down again; or it is at its end.
type Parked struct {
	v       *Viewer
	conn    net.Conn
	raw     syscall.RawConn // nil: it stays awake
	id      uint64          // in the lot
	until   context.Context // the stream ends when it does; many streams have the same
	unsent  []byte          // of a write that the client has not taken
	written int64           // of the body, since it was parked
	over    func(written int64, err error)
	reuse   Reuse
	early   []byte // what the client has sent after its request

	mu   sync.Mutex
	left error // why it has to go
	row  *row  // where it sits
	wake context.CancelCauseFunc
}

// Reuse takes the connection of a stream whose body has ended, and what its client has
// sent on it already, for the client's next request. It reports whether it does.
type Reuse func(conn net.Conn, early []byte) bool

// ServeOrPark is Serve for an answer in chunks (HTTP/1.1) on a connection in clear text. If
// it returns a Parked, the viewer has shown all there is for now: the handler writes
// nothing any more and returns, and after that somebody has to call Start. ctx may end with
// the handler. until, which ctx ends with, is the whole stream's: see AbortUntil.
func (v *Viewer) ServeOrPark(ctx, until context.Context, w http.ResponseWriter) (*Parked, error) {
	out := newOutput(w, v.hub.opts.WriteTimeout)
	how, err := v.serveWith(ctx, out, v.hub.Parks())
	if err != nil || how == over {
		return nil, err
	}
	if p, err := v.park(until, w); err == nil {
		return p, nil
	}
	defer out.endWith(ctx)()
	_, err = v.follow(ctx, out, false)
	return nil, err
}

// park takes the connection over. The viewer is in the lot before that, so that an Abort
// finds it.
func (v *Viewer) park(until context.Context, w http.ResponseWriter) (*Parked, error) {
	p := &Parked{v: v, until: until}
	v.hub.lot.enter(p)
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		v.hub.lot.forget(p)
		return nil, err
	}
	p.conn, v.parked = conn, true
	if n := rw.Reader.Buffered(); n > 0 {
		early, _ := rw.Reader.Peek(n) // no more than is there
		p.early = bytes.Clone(early)
	}
	if sc, ok := conn.(syscall.Conn); ok {
		p.raw, _ = sc.SyscallConn()
	}
	return p, nil
}

// Start goes on with the stream after the handler that parked it has returned.
// over is called once at its end, which is nil or the error that Serve would have
// returned, with the bytes of the body since then; the client sees the end when
// it has returned. After a proper end reuse, if set, may take the connection, which
// has nothing left of the request; else it is closed.
func (p *Parked) Start(over func(written int64, err error), reuse Reuse) {
	p.over, p.reuse = over, reuse
	if p.raw != nil && p.v.hub.lot.poll.watch(p) == nil {
		p.v.topic.seat(p)
		return
	}
	p.raw = nil
	go p.run()
}

// sit notes that the viewer sits in a row. left: it has to go.
func (p *Parked) sit(r *row) (left bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.row, p.wake = r, nil
	return p.left != nil
}

// rise notes that the viewer is awake, and returns the context in which it reads and
// writes. leave ends it.
func (p *Parked) rise() (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(context.Background())
	p.mu.Lock()
	defer p.mu.Unlock()
	p.row, p.wake = nil, cancel
	if p.left != nil {
		cancel(p.left)
	}
	return ctx, cancel
}

// leave has the stream end with an error, in whatever state the viewer is.
func (p *Parked) leave(cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left != nil {
		return
	}
	p.left = cause
	if p.row != nil {
		p.v.hub.waiting.add(p.row)
	}
	if p.wake != nil {
		p.wake(cause)
	}
}

// leaving is why the stream has to end; nil: it has not.
func (p *Parked) leaving() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.left
}

// wokenCost is about what a viewer that is awake has in memory, besides what it has not
// sent: a goroutine and the buffer of its output.
const wokenCost = 48 << 10

// errNoPatience: the client does not take what it is sent, as thousands do at once where
// their way breaks, and there is no memory for all of them to be waited for.
var errNoPatience = fmt.Errorf("there is no memory to wait for a client that does not take what it is sent: %w", os.ErrDeadlineExceeded)

// run goes on in a goroutine until there is nothing to show again.
func (p *Parked) run() {
	opts := &p.v.hub.opts
	opts.Observe.Woken()
	promise, ok := opts.Ledger.Promise(wokenCost+int64(len(p.unsent)), opts.Budget.Requests)
	if !ok && len(p.unsent) > 0 {
		p.end(errNoPatience)
		return
	}
	defer opts.Ledger.Return(promise)
	ctx, cancel := p.rise()
	defer cancel(nil)
	how, err := p.resume(ctx)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil || how == over {
		p.end(err)
		return
	}
	if err := p.conn.SetWriteDeadline(time.Time{}); err != nil {
		p.end(err)
		return
	}
	p.v.topic.seat(p)
}

func (p *Parked) resume(ctx context.Context) (verdict, error) {
	out := newChunkedOutput(p.conn, p.v.hub.opts.WriteTimeout)
	defer out.release()
	defer out.endWith(ctx)()
	defer func() { p.written += out.written }()
	if len(p.unsent) > 0 {
		if err := out.hand(p.unsent); err != nil {
			return over, err
		}
		p.unsent = nil
	}
	return p.v.follow(ctx, out, p.raw != nil)
}

// end tells that the stream is over, and then the client.
func (p *Parked) end(err error) {
	defer p.v.hub.lot.forget(p)
	p.v.leave()
	p.over(p.written, err)
	if err == nil {
		err = p.finish()
	}
	if err == nil && p.goesBack() {
		return
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		p.reset()
	}
	if err == nil {
		p.linger()
	}
	_ = p.conn.Close()
}

// finish ends the body. A client that does not take even that has lastWrite for it when the
// stream has to go.
func (p *Parked) finish() error {
	p.endsWith(func(error) { _ = p.conn.SetWriteDeadline(time.Now().Add(lastWrite)) })
	_, err := io.WriteString(p.conn, lastChunk)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wake = nil
	return err
}

// endsWith gives the client time for the end of the body, and has leave hurry it.
func (p *Parked) endsWith(hurry context.CancelCauseFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.conn.SetWriteDeadline(time.Now().Add(p.v.hub.opts.WriteTimeout))
	if p.row, p.wake = nil, hurry; p.left != nil {
		hurry(p.left)
	}
}

// goesBack hands the connection on for the client's next request.
func (p *Parked) goesBack() bool {
	if p.reuse == nil || p.leaving() != nil || p.conn.SetDeadline(time.Time{}) != nil {
		return false
	}
	if p.raw != nil {
		p.v.hub.lot.poll.forget(p)
	}
	return p.reuse(p.conn, p.early)
}

// lingering is how long a connection waits for its client to close it too: what
// is closed before all was read is reset, and takes back what the client was sent.
const lingering = 500 * time.Millisecond

// linger waits for the client to close the connection too.
func (p *Parked) linger() {
	half, ok := p.conn.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		return
	}
	_ = p.conn.SetReadDeadline(time.Now().Add(lingering))
	_, _ = io.CopyN(io.Discard, p.conn, 64<<10)
}

// reset has the kernel forget what a client does not take.
func (p *Parked) reset() {
	if c, ok := p.conn.(interface{ SetLinger(int) error }); ok {
		_ = c.SetLinger(0)
	}
}
