package edge

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"

	"github.com/runlog-dev/runlog/catalog"
	"github.com/runlog-dev/runlog/edge/stream"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// A runPlace says where a run's events are.
type runPlace struct {
	key     eventlog.Key
	runID   string
	traceID string
	agent   string
	after   event.Seq // its events come after this one
	since   event.Time
	row     *catalog.Run // what the catalog has, if it was asked
}

// into has a stream show the run.
func (p runPlace) into(req *stream.Request) {
	req.Key, req.RunID, req.Begins, req.Since = p.key, p.runID, p.after, p.since.Time
}

// ref is the run's entry in the runs index, as far as the place knows it.
func (p runPlace) ref() eventlog.RunRef {
	return eventlog.RunRef{RunID: p.runID, SessionID: p.key.Session, TraceID: p.traceID, Agent: p.agent}
}

// findRun looks in the runs index, and for runs that are older than that in the
// catalog. Another tenant's run is not there, nor one that a token is not for.
func (s *Server) findRun(ctx context.Context, c *call, id string) (runPlace, error) {
	c.note("run", id)
	p, err := s.lookUpRun(ctx, c, id)
	if err == nil && !c.who.Reaches(p.key.Session, id) {
		return runPlace{}, notFound("run", id)
	}
	return p, err
}

// lookUpRun is findRun for whoever may see all of the tenant's.
func (s *Server) lookUpRun(ctx context.Context, c *call, id string) (runPlace, error) {
	if event.CheckID("run id", id) != nil {
		return runPlace{}, notFound("run", id)
	}
	ref, err := s.findRef(ctx, c.who.Tenant, id)
	if err == nil {
		return placeOf(c.who.Tenant, ref), nil
	}
	if !errors.Is(err, eventlog.ErrNotFound) {
		return runPlace{}, err
	}
	if s.Catalog == nil {
		return runPlace{}, notFound("run", id)
	}
	row, err := s.Catalog.Run(ctx, c.who.Tenant, id)
	if errors.Is(err, catalog.ErrNotFound) {
		return runPlace{}, notFound("run", id)
	}
	if err != nil {
		return runPlace{}, err
	}
	return runPlace{key: eventlog.Key{Tenant: c.who.Tenant, Session: row.SessionID}, runID: id, traceID: row.TraceID,
		agent: row.Agent, since: row.CreatedAt, row: &row}, nil
}

// placeOf is the place of a run by its entry in the runs index.
func placeOf(tenant string, ref eventlog.RunRef) runPlace {
	if ref.Continues != "" {
		ref.RunID = ref.Continues
	}
	return runPlace{key: eventlog.Key{Tenant: tenant, Session: ref.SessionID}, runID: ref.RunID, traceID: ref.TraceID,
		agent: ref.Agent, after: ref.After, since: ref.Created}
}

// refIn is the entry that a run of a fold would have in the runs index.
func refIn(fold *event.Session, run *event.Run) eventlog.RunRef {
	ref := eventlog.RunRef{RunID: run.RunID, SessionID: fold.SessionID, TraceID: run.TraceID, Agent: run.Agent, Accepted: true}
	if run.Book != nil && run.Book.First > 0 {
		ref.After = run.Book.First - 1
	}
	return ref
}

// A runState is a run as clients see it, by the events through Seq.
type runState struct {
	event.Run
	SessionID string     `json:"session_id"`
	Seq       event.Seq  `json:"seq"`
	CreatedAt event.Time `json:"created_at"`
}

// state folds the run's session. A run that has no event yet is pending; one
// whose events are gone is as the catalog has it.
func (s *Server) state(ctx context.Context, p runPlace) (runState, *event.Session, error) {
	fold, err := s.load(ctx, p.key)
	return stateOf(fold, p, err)
}

// findState is state of a run that is named by its id.
func (s *Server) findState(ctx context.Context, c *call, id string) (p runPlace, st runState, fold *event.Session, err error) {
	if p, err = s.findRun(ctx, c, id); err == nil {
		st, fold, err = s.state(ctx, p)
	}
	return p, st, fold, err
}

// stateToTell is state for an answer with what was said in the run.
func (s *Server) stateToTell(ctx context.Context, p runPlace) (runState, *event.Session, error) {
	fold, err := s.loadToTell(ctx, p.key)
	return stateOf(fold, p, err)
}

// stateOf is the state of a run by what came of loading its session.
func stateOf(fold *event.Session, p runPlace, err error) (runState, *event.Session, error) {
	if errors.Is(err, eventlog.ErrGone) && p.row != nil {
		return runState{p.row.Run, p.key.Session, p.row.Seq, p.row.CreatedAt}, nil, nil
	}
	if err != nil {
		return runState{}, nil, err
	}
	return stateIn(fold, p), fold, nil
}

// stateIn is the state of a run by a fold of its session.
func stateIn(fold *event.Session, p runPlace) runState {
	st := runState{SessionID: p.key.Session, Seq: fold.Seq, CreatedAt: p.since}
	r := fold.Run(p.runID)
	switch {
	case r != nil:
		st.Run = *r
		st.Book = nil
	case p.row != nil:
		st.Run = p.row.Run
	default:
		st.Run = event.Run{RunID: p.runID, TraceID: p.traceID, Agent: p.agent, Status: event.Pending}
	}
	return st
}

func (s *Server) getRun(w http.ResponseWriter, r *http.Request, c *call) error {
	_, st, _, err := s.findState(r.Context(), c, r.PathValue("run"))
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, st)
	return nil
}

// A runPage is one page of a search.
type runPage struct {
	Runs       []catalog.Run `json:"runs"`
	NextCursor string        `json:"next_cursor,omitempty"`
}

func (s *Server) listRuns(w http.ResponseWriter, r *http.Request, c *call) error {
	if s.Catalog == nil {
		return errNoCatalog
	}
	f, err := runFilter(r)
	if err != nil {
		return err
	}
	page, err := s.Catalog.Runs(r.Context(), c.who.Tenant, f)
	if err != nil {
		return err
	}
	if page.Runs == nil {
		page.Runs = []catalog.Run{}
	}
	writeJSON(w, http.StatusOK, runPage{page.Runs, page.Next})
	return nil
}

var errNoCatalog = problem(http.StatusNotImplemented, event.CodeUnsupported, "this edge has no catalog to search; set RUNLOG_CATALOG_URL")

// statuses are what a run can be searched by.
var statuses = []event.Status{event.Pending, event.Running, event.WaitingTool, event.WaitingApproval, event.Completed, event.Failed, event.Cancelled}

func runFilter(r *http.Request) (catalog.Filter, error) {
	q := r.URL.Query()
	f := catalog.Filter{Trace: q.Get("trace_id"), Status: event.Status(q.Get("status")), Agent: q.Get("agent"),
		Tool: q.Get("tool"), Session: q.Get("session_id"), Cursor: q.Get("cursor")}
	if f.Status != "" && !slices.Contains(statuses, f.Status) {
		return f, bad("status", "status=%s is none of %v", f.Status, statuses)
	}
	if v := q.Get("limit"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 || n > catalog.MaxLimit {
			return f, bad("limit", "limit=%s is not a number from 1 to %d", v, catalog.MaxLimit)
		}
		f.Limit = n
	}
	var err error
	if f.Since, err = timeParam(q.Get("since"), "since"); err != nil {
		return f, err
	}
	f.Until, err = timeParam(q.Get("until"), "until")
	return f, err
}
