package edge

import (
	"context"
	"net/http"
	"time"

	"github.com/runlog-dev/runlog/event"
)

// isHealthCheck: these are answered however full the edge is. One that only has no room
// for more is neither to be restarted nor to be taken out of use: its streams would go to
// others, which are as full, and what it refuses it refuses better than a proxy that has
// no edge left.
func isHealthCheck(r *http.Request) bool { return r.URL.Path == "/healthz" || r.URL.Path == "/readyz" }

// healthz: the process lives.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request, _ *call) error {
	writeJSON(w, http.StatusOK, healthy)
	return nil
}

var healthy, ready = map[string]string{"status": "ok"}, map[string]string{"status": "ready"}

// readyz: send requests here. Not while the edge drains, nor while it cannot
// reach the event log.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request, _ *call) error {
	if err := s.isReady(r.Context(), 2*time.Second); err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, ready)
	return nil
}

func (s *Server) isReady(ctx context.Context, within time.Duration) error {
	if s.draining.Load() {
		return errDraining
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if s.Log.Ping(ctx) == nil {
		return nil
	}
	p := problem(http.StatusServiceUnavailable, event.CodeUnavailable, "the event log cannot be reached")
	p.retryAfter = time.Second
	return p
}

// rawHealth answers a check over a connection for which there is no room.
func (s *Server) rawHealth(r *http.Request) []byte {
	if r.URL.Path == "/healthz" {
		return rawAnswer(http.StatusOK, "application/json", "", healthy)
	}
	if err := s.isReady(context.Background(), tellFor-askFor); err != nil {
		return rawProblem(toProblem(err))
	}
	return rawAnswer(http.StatusOK, "application/json", "", ready)
}
