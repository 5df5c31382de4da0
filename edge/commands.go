package edge

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// command completes a command about a run and has it taken.
func (s *Server) command(ctx context.Context, c *call, p runPlace, cmd event.Command) error {
	cmd.SessionID, cmd.RunID, cmd.TraceID = p.key.Session, p.runID, p.traceID
	cmd.By, cmd.Time = caller(c), event.At(time.Now())
	if err := cmd.CheckJSON(); err != nil {
		return bad("", "%s", err)
	}
	if err := s.Log.Submit(ctx, p.key, cmd); err != nil {
		return err
	}
	return s.Log.Wake(ctx, p.key)
}

// acceptedUnless is the status of an answer about what goes on unless it is done.
func acceptedUnless(done bool) int {
	if done {
		return http.StatusOK
	}
	return http.StatusAccepted
}

type steerRequest struct {
	Input json.RawMessage `json:"input"`
}

// steer gives a message to a run that is going on: its model reads it at the
// next step.
func (s *Server) steer(w http.ResponseWriter, r *http.Request, c *call) error {
	var body steerRequest
	if err := s.readJSON(w, r, &body); err != nil {
		return err
	}
	messages, err := readInput(body.Input)
	if err != nil {
		return err
	}
	key, err := idempotencyKey(r)
	if err != nil {
		return err
	}
	p, st, _, err := s.findState(r.Context(), c, r.PathValue("run"))
	if err != nil {
		return err
	}
	if st.Status.Terminal() {
		return problem(http.StatusConflict, event.CodeConflict, "the run has ended (%s): start a new one in its session", st.Status)
	}
	id := event.NewID("cmd")
	if key != "" {
		id = derivedID("cmd", p.runID, "steer", key)
	}
	named, err := s.named(r.Context(), p.key, eventlog.RunRef{RunID: id}, messages)
	if err != nil {
		return err
	}
	if err := s.command(r.Context(), c, p, event.Command{CommandID: id, Kind: event.Steer, Messages: named}); err != nil {
		return err
	}
	writeJSON(w, http.StatusAccepted, st)
	return nil
}
