package edge

import (
	"net/http"

	"github.com/runlog-dev/runlog/catalog"
	"github.com/runlog-dev/runlog/event"
)

// A traceState is every run under a trace, in the order they began.
type traceState struct {
	TraceID string        `json:"trace_id"`
	Runs    []catalog.Run `json:"runs"`
}

func (s *Server) getTrace(w http.ResponseWriter, r *http.Request, c *call) error {
	runs, err := s.traceRuns(r, c)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, traceState{r.PathValue("trace"), runs})
	return nil
}

func (s *Server) traceRuns(r *http.Request, c *call) ([]catalog.Run, error) {
	id := r.PathValue("trace")
	c.note("trace", id)
	if s.Catalog == nil {
		return nil, errNoCatalog
	}
	if event.CheckID("trace id", id) != nil {
		return nil, notFound("trace", id)
	}
	runs, err := s.Catalog.RunsOfTrace(r.Context(), c.who.Tenant, id)
	if err == nil && len(runs) == 0 {
		err = notFound("trace", id)
	}
	return runs, err
}

func (s *Server) traceEvents(http.ResponseWriter, *http.Request, *call) error { return errNoCatalog }
