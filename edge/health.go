package edge

import (
	"context"
	"net/http"
	"time"

	"github.com/runlog-dev/runlog/event"
)

// healthz: the process lives.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request, _ *call) error {
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	return nil
}

// readyz: send requests here. Not while the edge drains, nor while it cannot
// reach the event log.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request, _ *call) error {
	if s.draining.Load() {
		return errDraining
	}
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
	defer cancel()
	if err := s.Log.Ping(ctx); err != nil {
		p := problem(http.StatusServiceUnavailable, event.CodeUnavailable, "the event log cannot be reached")
		p.retryAfter = time.Second
		return p
	}
	writeJSON(w, http.StatusOK, map[string]string{"status": "ready"})
	return nil
}
