package edge

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"
)

// shutDown drains from the inside out: not ready, streams aborted so that their
// clients go on elsewhere, then whatever is under way. While proxies have not
// noticed yet, streams are taken as ever.
func (s *Server) shutDown(srv *http.Server) error {
	s.draining.Store(true)
	time.Sleep(s.opts.DrainDelay)
	s.spread = drainSpread(s.streams.Load(), s.opts.DrainRate, s.opts.DrainPeriod)
	s.endStream(errDraining)
	s.hub.Abort(errDraining, s.inTurn)
	ctx, cancel := context.WithTimeout(context.Background(), s.spread+s.opts.DrainPeriod)
	defer cancel()
	if err := srv.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("shut down: %w", err), srv.Close())
	}
	return errors.Join(s.awaitSockets(ctx), s.hub.AwaitParked(ctx))
}

// drainSpread is how long it takes to end streams at a rate a second, but no longer
// than most.
func drainSpread(streams int64, rate int, most time.Duration) time.Duration {
	return min(time.Duration(streams)*time.Second/time.Duration(rate), most)
}

// inTurn ends a stream somewhere within the spread, each at a time of its own: else
// all clients of an edge that is restarted would come to the others at once.
func (s *Server) inTurn(end func()) {
	time.AfterFunc(rand.N(s.spread+1), end)
}
