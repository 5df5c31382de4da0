package edge

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// shutDown drains from the inside out. The edge is not ready; streams are taken as ever
// for DrainDelay, until proxies have noticed. Then streams are aborted, so that their
// clients go on elsewhere, and other requests may finish.
func (s *Server) shutDown(srv *http.Server) error {
	s.draining.Store(true)
	time.Sleep(s.opts.DrainDelay)
	spread := drainSpread(s.streams.Load(), s.opts.DrainRate, s.opts.DrainPeriod)
	s.spread.Store(int64(spread))
	s.endStream(errDraining)
	s.hub.Abort(errDraining, func(end func()) { inTurn(spread, end) })
	s.openings.end(openingGrace)
	ctx, cancel := context.WithTimeout(context.Background(), spread+s.opts.DrainPeriod)
	defer cancel()
	if err := srv.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("shut down: %w", err), srv.Close())
	}
	return errors.Join(s.awaitTakenOver(ctx), s.hub.AwaitParked(ctx))
}

// drainSpread is how long it takes to end streams at a rate a second, but no longer
// than most.
func drainSpread(streams int64, rate int, most time.Duration) time.Duration {
	return min(time.Duration(streams)*time.Second/time.Duration(rate), most)
}

// inTurn ends a stream at a time of its own within a spread. Otherwise all clients of an
// edge that is restarted, or of a key that is revoked, would come back at once.
func inTurn(spread time.Duration, end func()) {
	time.AfterFunc(rand.N(spread+1), end)
}

// spreadOf is how long it takes to end streams that nobody waits for the end of.
func (s *Server) spreadOf(streams int) time.Duration {
	return drainSpread(int64(streams), s.opts.DrainRate, s.opts.DrainPeriod)
}

// endRevoked ends the streams of a key that are parked; those with a handler end by themselves.
func (s *Server) endRevoked(key string, until context.Context, streams int) {
	s.Logger.Info("streams end: the key that they were opened with is revoked", "key", key, "streams", streams)
	spread := s.spreadOf(streams)
	s.hub.AbortUntil(until, func(end func()) { inTurn(spread, end) })
}

// openings counts the streams whose header has not left yet: the HTTP server must not
// shut down before it has. A header that leaves later says "Connection: close", and then
// undici, which is the fetch of Node.js, takes an aborted stream for a whole one.
type openings struct {
	mu    sync.Mutex
	count int
	ended bool
	none  chan struct{} // closed when they have ended and none is left
}

// openingGrace is how long the header of a stream may take that has begun.
const openingGrace = time.Second

// begin counts a stream in, until its header has left; false: no stream begins now.
func (o *openings) begin(c *call) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		return false
	}
	o.count++
	c.opening.Store(o)
	return true
}

func (o *openings) left() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.count--; o.ended && o.count == 0 {
		close(o.none)
	}
}

// end lets no more streams begin, and waits at most grace for the headers of those that
// have begun.
func (o *openings) end(grace time.Duration) {
	o.mu.Lock()
	o.ended, o.none = true, make(chan struct{})
	if o.count == 0 {
		close(o.none)
	}
	o.mu.Unlock()
	select {
	case <-o.none:
	case <-time.After(grace):
	}
}

// headerLeft says that the client has been sent the answer's header, or will not be.
func (c *call) headerLeft() {
	if o := c.opening.Swap(nil); o != nil {
		o.left()
	}
}
