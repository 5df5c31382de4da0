package edge

import (
	"net/http"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

type deadPage struct {
	DeadLetters []eventlog.DeadLetter `json:"dead_letters"`
}

// listDead shows the runs that were given up because they brought workers down.
func (s *Server) listDead(w http.ResponseWriter, r *http.Request, c *call) error {
	list, err := s.Log.DeadLetters(r.Context(), c.who.Tenant)
	if err != nil {
		return err
	}
	if list == nil {
		list = []eventlog.DeadLetter{}
	}
	writeJSON(w, http.StatusOK, deadPage{list})
	return nil
}

// findDead finds a dead letter of the caller's.
func (s *Server) findDead(r *http.Request, c *call) (eventlog.DeadLetter, error) {
	id := r.PathValue("run")
	if event.CheckID("run id", id) != nil {
		return eventlog.DeadLetter{}, notFound("dead letter", id)
	}
	return s.Log.DeadLetter(r.Context(), c.who.Tenant, id)
}

func (s *Server) getDead(w http.ResponseWriter, r *http.Request, c *call) error {
	d, err := s.findDead(r, c)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, d)
	return nil
}

// redrive lets a dead run go on as a new run of its session, and takes it off
// the list once that is accepted.
func (s *Server) redrive(w http.ResponseWriter, r *http.Request, c *call) error {
	d, err := s.findDead(r, c)
	if err != nil {
		return err
	}
	p, err := s.findRun(r.Context(), c, d.RunID)
	if err != nil {
		return err
	}
	sub := s.resumption(c, p, d.Agent, resumeRequest{})
	ref, _, err := s.reserve(r.Context(), sub)
	if err != nil {
		return err
	}
	if err := s.place(r.Context(), sub, ref); err != nil {
		return err
	}
	if err := s.Log.DropDeadLetter(r.Context(), c.who.Tenant, d.RunID); err != nil {
		return err
	}
	s.nameRun(w, c, ref)
	writeJSON(w, http.StatusAccepted, stateIn(event.NewSession(ref.SessionID), placeOf(sub.tenant, ref)))
	return nil
}

// dropDead takes a run off the list; its failure stays in the log.
func (s *Server) dropDead(w http.ResponseWriter, r *http.Request, c *call) error {
	d, err := s.findDead(r, c)
	if err != nil {
		return err
	}
	if err := s.Log.DropDeadLetter(r.Context(), c.who.Tenant, d.RunID); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
