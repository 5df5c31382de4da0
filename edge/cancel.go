package edge

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/runlog-dev/runlog/edge/stream"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

type cancelRequest struct {
	Reason string `json:"reason"`
	Wait   bool   `json:"wait"`
}

// maxReason bounds what is kept of why a run was cancelled or a call decided, in bytes.
const maxReason = 1024

func checkReason(reason string) error {
	if len(reason) > maxReason {
		return bad("reason", "the reason has %d bytes, at most %d are kept", len(reason), maxReason)
	}
	return nil
}

// cancelRun asks for the end of a run. 200 with the final state if it is over,
// 202 while it is not; with wait it answers after the terminal event. A second
// cancel changes nothing.
func (s *Server) cancelRun(w http.ResponseWriter, r *http.Request, c *call) error {
	return s.endRun(w, r, c, event.Cancel)
}

// stopRun ends a run after its current step.
func (s *Server) stopRun(w http.ResponseWriter, r *http.Request, c *call) error {
	return s.endRun(w, r, c, event.Stop)
}

// endRun asks for a run's end, by cancel or stop.
func (s *Server) endRun(w http.ResponseWriter, r *http.Request, c *call, kind event.Kind) error {
	var body cancelRequest
	if err := s.readJSON(w, r, &body); err != nil {
		return err
	}
	if err := checkReason(body.Reason); err != nil {
		return err
	}
	wait, err := boolParam(r, "wait", body.Wait)
	if err != nil {
		return err
	}
	p, err := s.findRun(r.Context(), c, r.PathValue("run"))
	if err != nil {
		return err
	}
	st, err := s.end(r.Context(), c, p, kind, body.Reason, wait)
	if err != nil {
		return err
	}
	writeJSON(w, acceptedUnless(st.Status.Terminal()), st)
	return nil
}

// cancel asks for a run's end at once; see end.
func (s *Server) cancel(ctx context.Context, c *call, p runPlace, reason string, wait bool) (runState, error) {
	return s.end(ctx, c, p, event.Cancel, reason, wait)
}

// end asks for a run's end, unless it has ended, and returns how it is then. wait: after
// its terminal event, or Options.MaxWait.
func (s *Server) end(ctx context.Context, c *call, p runPlace, kind event.Kind, reason string, wait bool) (runState, error) {
	ended, done, err := s.watchEnd(ctx, p, nil)
	if err != nil {
		return runState{}, err
	}
	defer done()
	st, _, err := s.state(ctx, p)
	if err != nil || st.Status.Terminal() {
		return st, err
	}
	if err := s.command(ctx, c, p, event.Command{CommandID: p.runID + "." + string(kind), Kind: kind, Reason: reason}); err != nil {
		return runState{}, err
	}
	if wait {
		if err := ended(st.Seq, s.opts.MaxWait); err != nil {
			return runState{}, err
		}
	}
	st, _, err = s.state(ctx, p)
	return st, err
}

// cancelWithClient cancels a run whose submitter went away and had asked for
// that.
func (s *Server) cancelWithClient(ctx context.Context, c *call, ref eventlog.RunRef, tenant string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleWait)
	defer cancel()
	if _, err := s.end(ctx, c, placeOf(tenant, ref), event.Cancel, "the client disconnected", false); err != nil {
		s.Logger.Warn("run not cancelled after its client left", "run", url.PathEscape(ref.RunID), "err", err)
	}
}

// watchEnd subscribes to a run. ended waits for its terminal event, or one at
// which ends says so, if that is given; it comes after a seq. It waits no longer than
// it is told to, which is no error.
func (s *Server) watchEnd(ctx context.Context, p runPlace, ends func(event.Event) bool) (ended func(event.Seq, time.Duration) error, done func(), err error) {
	ctx, stop, err := s.admit(uncounted(ctx))
	if err != nil {
		return nil, nil, err
	}
	req := stream.Request{Ends: ends}
	p.into(&req)
	v, err := s.hub.View(ctx, req)
	if err != nil {
		stop()
		return nil, nil, err
	}
	ended = func(after event.Seq, limit time.Duration) error {
		waiting, cancel := patience(ctx, limit)
		defer cancel()
		err := v.Wait(waiting, after)
		if waiting.Err() != nil && ctx.Err() == nil {
			return nil
		}
		return err
	}
	return ended, func() { v.Close(); stop() }, nil
}
