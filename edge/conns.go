package edge

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/runlog-dev/runlog/edge/room"
	"github.com/runlog-dev/runlog/event"
)

// A limitListener turns connections away that are too many at once, in all or of one
// address, or for the memory of the process, rather than letting them wait unseen.
// Proxies that are trusted are counted in all alone.
type limitListener struct {
	net.Listener
	opts     *Options
	ledger   *room.Ledger
	cost     int64         // what a connection is promised
	upTo     int64         // see room.Budget.Conns
	vanished time.Duration // see endVanished
	metrics  *metrics
	health   func(*http.Request) []byte // answers a check

	mu   sync.Mutex
	open int
	of   map[string]int // by limitKey; only with Options.AddressConns

	telling atomic.Int64 // connections that are being told why
}

func (s *Server) limits(ln net.Listener) *limitListener {
	l := &limitListener{Listener: ln, opts: &s.opts, ledger: s.ledger, cost: connCost, upTo: s.budget.Conns, vanished: 2 * s.hub.WriteTimeout(), metrics: s.metrics, health: s.rawHealth, of: map[string]int{}}
	if s.opts.TLS != nil {
		l.cost = tlsCost
	}
	return l
}

func (l *limitListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		key := l.key(c)
		if p := l.take(key); p != nil {
			l.turnAway(c, p)
			continue
		}
		promised, ok := l.ledger.Promise(l.cost, l.upTo)
		if !ok {
			l.give(key)
			l.turnAway(c, l.metrics.refuse("memory", noMemory()))
			continue
		}
		endVanished(c, l.vanished)
		return &limitedConn{Conn: c, home: l, key: key, promised: promised}, nil
	}
}

// key is what a connection is counted by besides all; empty: nothing.
func (l *limitListener) key(c net.Conn) string {
	if l.opts.AddressConns <= 0 {
		return ""
	}
	peer := peerOf(c.RemoteAddr().String())
	if l.opts.trusts(peer) {
		return ""
	}
	return limitKey(peer)
}

// take counts a connection in, or says why not.
func (l *limitListener) take(key string) *Problem {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.open >= l.opts.MaxConns:
		return l.metrics.refuse("connections", overloaded("this edge has its limit of %d connections; try another one", l.opts.MaxConns))
	case key != "" && l.of[key] >= l.opts.AddressConns:
		p := problem(http.StatusTooManyRequests, event.CodeRateLimited, "more than %d connections of one address are open at this edge; close some, or send requests over one", l.opts.AddressConns)
		p.retryAfter = time.Second
		return l.metrics.refuse("address_connections", p)
	}
	l.open++
	if key != "" {
		l.of[key]++
	}
	return nil
}

// give counts a connection out.
func (l *limitListener) give(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	if key == "" {
		return
	}
	if l.of[key]--; l.of[key] == 0 {
		delete(l.of, key)
	}
}

// How many refused connections are told why at once, for how long each, and how much
// of that they have to ask in how many bytes, before they are told whatever they ask.
const (
	tellAtOnce = 64
	tellFor    = time.Second
	askFor     = tellFor / 4
	askBytes   = 8 << 10
)

// turnAway closes a connection. In clear text it says why first, as long as there
// are not too many of them, and unless it is that of an EventSource, which comes back
// after that a second or two later. A health check is answered. The goroutine ends after
// tellFor.
func (l *limitListener) turnAway(c net.Conn, p *Problem) {
	if l.opts.TLS != nil || l.telling.Add(1) > tellAtOnce {
		if l.opts.TLS == nil {
			l.telling.Add(-1)
		}
		_ = c.Close()
		return
	}
	go func() {
		defer l.telling.Add(-1)
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(tellFor))
		r := asked(c)
		if r != nil && isEventSource(r) {
			return // a status would be the last one that it asks for
		}
		answer := rawProblem(p)
		if r != nil && isHealthCheck(r) {
			answer = l.health(r)
		}
		if _, err := c.Write(answer); err != nil {
			return
		}
		if half, ok := c.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
		// What is unread when a connection is closed resets it, and the answer may be lost.
		_, _ = io.Copy(io.Discard, io.LimitReader(c, 64<<10))
	}()
}

// asked reads the head of a connection's first request; nil if it does not come soon.
func asked(c net.Conn) *http.Request {
	_ = c.SetReadDeadline(time.Now().Add(askFor))
	defer func() { _ = c.SetReadDeadline(time.Now().Add(tellFor - askFor)) }()
	r, err := http.ReadRequest(bufio.NewReader(io.LimitReader(c, askBytes)))
	if err != nil {
		return nil
	}
	return r
}

// rawProblem is a problem as HTTP/1.1, for a connection that no server has.
func rawProblem(p *Problem) []byte {
	return rawAnswer(p.Status, problemType, fmt.Sprintf("Retry-After: %d\r\n", wholeSeconds(p.retryAfter)), p.whole())
}

func rawAnswer(status int, contentType, header string, v any) []byte {
	body := event.Encode(v)
	head := fmt.Sprintf("HTTP/1.1 %d %s\r\nContent-Type: %s\r\nCache-Control: no-store\r\n%sContent-Length: %d\r\nConnection: close\r\n\r\n",
		status, http.StatusText(status), contentType, header, len(body))
	return append([]byte(head), body...)
}

type limitedConn struct {
	net.Conn
	home     *limitListener
	key      string
	promised room.Promise
	closed   atomic.Bool
	settled  atomic.Bool // what was promised was taken back
}

// settle takes back what the connection was promised.
func (c *limitedConn) settle() {
	if !c.settled.Swap(true) {
		c.home.ledger.Return(c.promised)
	}
}

// Write has a connection whose client does not take in time what it is sent end with
// a reset: the kernel forgets what is left, and in HTTP/1.0 nobody takes the end for
// that of the answer. The HTTP server closes it on the spot.
func (c *limitedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		_ = c.SetLinger(0)
	}
	return n, err
}

func (c *limitedConn) Close() error {
	if !c.closed.Swap(true) {
		c.home.give(c.key)
		c.settle()
	}
	return c.Conn.Close()
}

func (c *limitedConn) SyscallConn() (syscall.RawConn, error) {
	if inner, ok := c.Conn.(syscall.Conn); ok {
		return inner.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

func (c *limitedConn) CloseWrite() error {
	if inner, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return inner.CloseWrite()
	}
	return errors.ErrUnsupported
}

func (c *limitedConn) SetLinger(sec int) error {
	if inner, ok := c.Conn.(interface{ SetLinger(int) error }); ok {
		return inner.SetLinger(sec)
	}
	return errors.ErrUnsupported
}
