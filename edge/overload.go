package edge

import (
	"context"
	"net/http"
	"time"

	"github.com/runlog-dev/runlog/edge/room"
	"github.com/runlog-dev/runlog/event"
)

// What those who are let in are promised, in bytes: about what they will have taken in a
// moment, as it was measured. docs/operations.md has the table.
const (
	connCost    = 12 << 10 // a connection in clear text
	tlsCost     = 36 << 10 // a connection that begins with a handshake
	requestCost = 28 << 10 // a request, to the end of its handler: a goroutine and what it asks of the log
	streamCost  = 8 << 10  // a stream, besides its request; a parked one takes no more altogether
	socketCost  = 24 << 10 // a WebSocket, besides its request
	manyCost    = 16 << 10 // a session of a stream of many: the stack of a goroutine and a place in its topic
)

// costOf is what the stream or the wait of a call costs. A WebSocket was promised all of
// it before its handshake.
func costOf(c *call) int64 {
	if c.status == http.StatusSwitchingProtocols {
		return 0
	}
	return streamCost
}

// turnedAway answers a request for which there is no memory. Health is told as long as
// there is a connection to tell it over.
func (s *Server) turnedAway(w http.ResponseWriter, r *http.Request, c *call) bool {
	if isHealthCheck(r) {
		return false
	}
	var ok bool
	if c.promised, ok = s.ledger.Promise(requestCost, s.budget.Conns); ok {
		return false
	}
	p := s.metrics.refuse("memory", noMemory())
	if r.ProtoMajor == 2 {
		s.promiseRefusal(c, p)
	}
	s.fail(w, c, p)
	return true
}

// promiseRefusal promises memory to the answer that there is none: a connection of HTTP/2
// has hundreds of them, for which its client need not make room. Beyond that a request is
// broken off without a word.
func (s *Server) promiseRefusal(c *call, p error) {
	var ok bool
	if c.promised, ok = s.ledger.Promise(requestCost, s.budget.Refusals); !ok {
		c.err, c.status = p, http.StatusServiceUnavailable
		panic(http.ErrAbortHandler)
	}
}

// promise promises memory to what is about to be opened, or says that there is none:
// before the edge collapses under it. What is open goes on.
func (s *Server) promise(n int64) (room.Promise, error) {
	if n == 0 {
		return room.Promise{}, nil
	}
	p, ok := s.ledger.Promise(n, s.budget.Streams)
	if !ok {
		return p, s.metrics.refuse("memory", noMemory())
	}
	return p, nil
}

// noMemory also has the client's connection closed, which takes some, too: there is
// nothing here for it.
func noMemory() *Problem {
	p := overloaded("this edge has used up its memory; try another one")
	p.closes = true
	return p
}

// overloaded is a request that would be right at another edge, or later.
func overloaded(format string, args ...any) *Problem {
	p := problem(http.StatusServiceUnavailable, event.CodeOverloaded, format, args...)
	p.retryAfter = 2 * time.Second
	return p
}

// parkedNow takes back what the connection of a stream was promised that has given up its
// goroutine: now it takes no more than the stream was promised.
func parkedNow(ctx context.Context) {
	if conn, ok := ctx.Value(connKey{}).(interface{ settle() }); ok {
		conn.settle()
	}
}
