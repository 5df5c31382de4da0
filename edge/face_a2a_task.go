package edge

import (
	"context"
	"errors"
	"net/http"

	"github.com/runlog-dev/runlog/edge/dialect/a2a"
	"github.com/runlog-dev/runlog/event"
)

// An a2aTask is a run that a call is about.
type a2aTask struct {
	namedRun
	answered event.Seq // the last event before what the call answers
}

func (t *a2aTask) dialect(base string) a2a.Dialect {
	return a2a.Dialect{Run: t.place.runID, Base: base, Answered: t.answered}
}

// a2aSend takes a message and answers with its task, when that is over or waits
// for somebody, or else after the longest wait; or at once.
func (s *Server) a2aSend(r *http.Request, c *call, q *rpcCall) (any, error) {
	in, err := readA2A(q)
	if err != nil {
		return nil, err
	}
	t, err := s.a2aAccept(r, c, in)
	if err != nil {
		return nil, err
	}
	if in.Configuration.Immediately {
		err = t.start(r.Context())
	} else {
		err = s.a2aWait(r.Context(), t)
	}
	if err != nil {
		return nil, err
	}
	task, err := s.a2aNow(r, t, in.Configuration.History)
	return struct {
		Task a2a.Task `json:"task"`
	}{task}, err
}

// a2aSubmit takes a message, to stream its task.
func (s *Server) a2aSubmit(r *http.Request, c *call, q *rpcCall) (*a2aTask, error) {
	in, err := readA2A(q)
	if err != nil {
		return nil, err
	}
	return s.a2aAccept(r, c, in)
}

// a2aWait has a task go on, until it is over or waits for somebody.
func (s *Server) a2aWait(ctx context.Context, t *a2aTask) error {
	ended, done, err := s.watchEnd(ctx, t.place, s.idles(ctx, t.place, t.answered))
	if err != nil {
		return err
	}
	defer done()
	if err := t.start(ctx); err != nil {
		return err
	}
	return ended(max(t.place.after, t.answered), s.opts.MaxWait)
}

// a2aNow is a task as it is.
func (s *Server) a2aNow(r *http.Request, t *a2aTask, history *int) (a2a.Task, error) {
	st, fold, err := s.stateToTell(r.Context(), t.place)
	if err != nil {
		return a2a.Task{}, err
	}
	if fold == nil { // the catalog alone knows it
		fold = event.NewSession(t.place.key.Session)
	}
	run := fold.Run(st.RunID)
	if run == nil {
		run = &st.Run
	}
	n := a2a.AllHistory
	if history != nil {
		n = max(*history, 0)
	}
	return t.dialect(s.base(r)).Task(fold, run, n), nil
}

// a2aFind finds a task of the agent that is called; another agent's is not there.
func (s *Server) a2aFind(r *http.Request, c *call, id string) (*a2aTask, error) {
	p, err := s.findRun(r.Context(), c, id)
	agent := r.PathValue("agent")
	var missing *Problem
	if errors.As(err, &missing) && missing.Status == http.StatusNotFound || err == nil && agent != "" && p.agent != agent {
		return nil, a2aTaskNotFound(id)
	}
	return &a2aTask{namedRun: *there(p)}, err
}

type a2aTaskParams struct {
	ID      string `json:"id"`
	History *int   `json:"historyLength"`
}

func (s *Server) a2aNamed(r *http.Request, c *call, q *rpcCall) (*a2aTask, a2aTaskParams, error) {
	var p a2aTaskParams
	if err := decodeOpen(q.Params, &p); err != nil {
		return nil, p, err
	}
	if p.ID == "" {
		return nil, p, bad("id", "id is missing: the id of a task")
	}
	t, err := s.a2aFind(r, c, p.ID)
	return t, p, err
}

func (s *Server) a2aGet(r *http.Request, c *call, q *rpcCall) (any, error) {
	t, p, err := s.a2aNamed(r, c, q)
	if err != nil {
		return nil, err
	}
	task, err := s.a2aNow(r, t, p.History)
	return task, err
}

// a2aCancel answers after the task's end. One that is cancelled already stays so;
// one that has ended otherwise cannot be.
func (s *Server) a2aCancel(r *http.Request, c *call, q *rpcCall) (any, error) {
	t, p, err := s.a2aNamed(r, c, q)
	if err != nil {
		return nil, err
	}
	st, err := s.cancel(r.Context(), c, t.place, "cancelled by the client", true)
	if err != nil {
		return nil, err
	}
	if st.Status.Terminal() && st.Status != event.Cancelled {
		return nil, &a2aError{code: a2aNotCancelable, reason: "TASK_NOT_CANCELABLE", text: "the task has ended: it is " + string(st.Status)}
	}
	task, err := s.a2aNow(r, t, p.History)
	return task, err
}

// a2aSubscribe follows a task that is not over.
func (s *Server) a2aSubscribe(r *http.Request, c *call, q *rpcCall) (*a2aTask, error) {
	t, _, err := s.a2aNamed(r, c, q)
	if err != nil {
		return nil, err
	}
	st, _, err := s.state(r.Context(), t.place)
	if err != nil {
		return nil, err
	}
	if st.Status.Terminal() {
		return nil, a2aUnsupported("the task has ended (" + string(st.Status) + "), and nothing follows: ask for it with GetTask")
	}
	return t, nil
}
