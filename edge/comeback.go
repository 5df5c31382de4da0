package edge

import (
	"net"
	"sync"

	"github.com/runlog-dev/runlog/edge/stream"
)

// A comeback is a listener that gives an HTTP server connections back. They were taken
// over from it for streams, which have ended properly, and serve the clients' next
// requests.
type comeback struct {
	addr  net.Addr
	conns chan net.Conn

	closed chan struct{}

	mu    sync.Mutex
	quiet map[*returned]struct{} // given back, and nothing was asked yet; nil when closed
}

func newComeback(addr net.Addr) *comeback {
	return &comeback{addr: addr, conns: make(chan net.Conn), closed: make(chan struct{}), quiet: map[*returned]struct{}{}}
}

// give gives a connection back to the server, unless that stops. early is what was read
// from it beyond its last request.
func (b *comeback) give(conn net.Conn, early []byte) bool {
	if r, ok := conn.(*returned); ok {
		early = append(early, r.early...)
		conn = r.limitedConn
	}
	limited, ok := conn.(*limitedConn)
	if !ok {
		return false
	}
	r := &returned{limitedConn: limited, home: b, early: early}
	b.mu.Lock()
	open := b.quiet != nil
	if open {
		b.quiet[r] = struct{}{}
	}
	b.mu.Unlock()
	if !open {
		return false
	}
	select {
	case b.conns <- r:
		return true
	case <-b.closed:
		return false
	}
}

// forget takes out a connection that is not quiet any more.
func (b *comeback) forget(r *returned) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.quiet, r)
}

// Accept waits for a connection that is given back.
func (b *comeback) Accept() (net.Conn, error) {
	select {
	case c := <-b.conns:
		return c, nil
	case <-b.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept, and closes the connections on which nothing was asked since they
// were given back: the server's Shutdown takes them for new ones and would wait for
// their first requests.
func (b *comeback) Close() error {
	b.mu.Lock()
	quiet := b.quiet
	b.quiet = nil
	b.mu.Unlock()
	if quiet == nil {
		return nil
	}
	close(b.closed)
	for r := range quiet {
		_ = r.limitedConn.Close()
	}
	return nil
}

func (b *comeback) Addr() net.Addr { return b.addr }

// A returned is a connection that was given back. It is quiet until something is read
// from it.
type returned struct {
	*limitedConn
	home  *comeback
	asked sync.Once
	early []byte // is read first
}

func (r *returned) Read(b []byte) (n int, err error) {
	if len(r.early) > 0 && len(b) > 0 {
		n = copy(b, r.early)
		r.early = r.early[n:]
	} else {
		n, err = r.limitedConn.Read(b)
	}
	if n > 0 {
		r.asked.Do(func() { r.home.forget(r) })
	}
	return n, err
}

func (r *returned) Close() error {
	r.home.forget(r)
	return r.limitedConn.Close()
}

// reuse is what takes a call's connection after its stream. It is nil if nothing does, or
// if a part of the request may still be unread in it.
func (s *Server) reuse(c *call) stream.Reuse {
	if s.comeback == nil || c.closes || c.body != nil && !c.body.whole {
		return nil
	}
	return s.comeback.give
}
