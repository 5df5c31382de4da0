package edge

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/runlog-dev/runlog/edge/dialect/langgraph"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// A graphThread is a session as LangGraph has it.
type graphThread struct {
	ThreadID   string                           `json:"thread_id"`
	CreatedAt  event.Time                       `json:"created_at"`
	UpdatedAt  event.Time                       `json:"updated_at"`
	StateAt    event.Time                       `json:"state_updated_at"`
	Metadata   json.RawMessage                  `json:"metadata"`
	Status     string                           `json:"status"` // idle, busy, interrupted or error
	Config     struct{}                         `json:"config"`
	Values     json.RawMessage                  `json:"values"`
	Interrupts map[string][]langgraph.Interrupt `json:"interrupts"` // by the run that waits
	Error      *langgraph.Failure               `json:"error,omitempty"`
}

func threadFrom(fold *event.Session) graphThread {
	t := graphThread{ThreadID: fold.SessionID, CreatedAt: fold.CreatedAt, Metadata: event.Encode(graphOf(fold.Agent)), Status: "idle",
		Values: langgraph.State(fold), Interrupts: map[string][]langgraph.Interrupt{}}
	if fold.Seq == 0 {
		t.CreatedAt = event.At(time.Now())
	}
	t.UpdatedAt = t.CreatedAt
	run := lastRun(fold)
	if run == nil {
		t.StateAt = t.UpdatedAt
		return t
	}
	t.UpdatedAt = touched(run, t.CreatedAt)
	t.StateAt = t.UpdatedAt
	switch {
	case run.ExpiresAt != nil:
		t.Status = "interrupted"
		t.Interrupts[run.RunID] = langgraph.Interrupts(fold, run.RunID)
	case !run.Status.Terminal():
		t.Status = "busy"
	case run.Status == event.Failed:
		t.Status, t.Error = "error", langgraph.FailureOf(run)
	}
	return t
}

// touched is when a run did something, as far as that is known.
func touched(run *event.Run, or event.Time) event.Time {
	switch {
	case run.EndedAt != nil:
		return *run.EndedAt
	case run.StartedAt != nil:
		return *run.StartedAt
	}
	return or
}

type graphMetadata struct {
	Graph     string `json:"graph_id,omitempty"`
	Assistant string `json:"assistant_id,omitempty"`
}

func graphOf(agent string) graphMetadata { return graphMetadata{agent, agent} }

// createThread names a thread. It is kept when something is said in it, and
// nothing of its metadata is.
func (s *Server) createThread(w http.ResponseWriter, r *http.Request, c *call) error {
	body, err := readBody(w, r, s.opts.MaxBody)
	if err != nil {
		return err
	}
	var in struct {
		ThreadID   string          `json:"thread_id"`
		IfExists   string          `json:"if_exists"`
		Metadata   json.RawMessage `json:"metadata"`
		Supersteps json.RawMessage `json:"supersteps"`
	}
	if err := decodeOpen(body, &in); err != nil {
		return err
	}
	if !absent(in.Supersteps) {
		return unsupported("supersteps", "a thread begins empty; send its messages with the first run")
	}
	if in.ThreadID == "" {
		in.ThreadID = event.NewID("thread")
	} else if err := event.CheckID("thread_id", in.ThreadID); err != nil {
		return bad("thread_id", "%s", err)
	}
	fold, err := s.threadToTell(r.Context(), c, in.ThreadID)
	if err != nil {
		return err
	}
	if fold.Seq > 0 && in.IfExists != "do_nothing" {
		return problem(http.StatusConflict, event.CodeConflict, "there is a thread %q: send if_exists: do_nothing to have it", in.ThreadID)
	}
	t := threadFrom(fold)
	if fold.Seq == 0 && !absent(in.Metadata) {
		t.Metadata = in.Metadata
	}
	writeJSON(w, http.StatusOK, t)
	return nil
}

// threadOfPath is the thread of a request as it is, to be told. One that nothing was said
// in is empty: clients look at it before they speak.
func (s *Server) threadOfPath(r *http.Request, c *call) (*event.Session, error) {
	thread, err := threadOf(r)
	if err != nil {
		return nil, err
	}
	return s.threadToTell(r.Context(), c, thread)
}

func (s *Server) getThread(w http.ResponseWriter, r *http.Request, c *call) error {
	fold, err := s.threadOfPath(r, c)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, threadFrom(fold))
	return nil
}

// A graphState is a thread at a checkpoint: at its end, or where one of its runs
// ended.
type graphState struct {
	Values     json.RawMessage  `json:"values"`
	Next       []string         `json:"next"`
	Checkpoint graphCheckpoint  `json:"checkpoint"`
	Metadata   graphStep        `json:"metadata"`
	CreatedAt  event.Time       `json:"created_at"`
	Parent     *graphCheckpoint `json:"parent_checkpoint"`
	Tasks      []graphTask      `json:"tasks"`
}

type graphCheckpoint struct {
	ThreadID string `json:"thread_id"`
	NS       string `json:"checkpoint_ns"`
	ID       string `json:"checkpoint_id"`
}

type graphStep struct {
	graphMetadata
	Source string `json:"source"`
	Step   int    `json:"step"`
	RunID  string `json:"run_id,omitempty"`
}

type graphTask struct {
	ID         string                `json:"id"`
	Name       string                `json:"name"`
	Error      *string               `json:"error"`
	Interrupts []langgraph.Interrupt `json:"interrupts"`
	Checkpoint *graphCheckpoint      `json:"checkpoint"`
	State      *graphState           `json:"state"`
}

// checkpointID orders as text.
func checkpointID(seq event.Seq) string { return fmt.Sprintf("%016d", uint64(seq)) }

// headCheckpoint is where a thread stands: where its last run ended, or, while
// that is under way, at the last event.
func headCheckpoint(fold *event.Session) string {
	if run := lastRun(fold); run != nil && run.Status.Terminal() {
		return checkpointID(run.Book.Last)
	}
	return checkpointID(fold.Seq)
}

// statesOf are a thread's states, the last one first, without their values.
func statesOf(fold *event.Session) []graphState {
	var list []graphState
	for _, run := range fold.Runs {
		if run.ParentRunID != "" || run.StartedAt == nil {
			continue
		}
		st := stateAfter(fold, run, len(list))
		if n := len(list); n > 0 {
			parent := list[n-1].Checkpoint
			st.Parent = &parent
		}
		list = append(list, st)
	}
	slices.Reverse(list)
	return list
}

// valuesAt are the values of a state.
func valuesAt(fold *event.Session, st graphState) json.RawMessage {
	if lastRun(fold).RunID == st.Metadata.RunID {
		return langgraph.State(fold)
	}
	through := map[string]bool{"": true}
	for _, run := range fold.Runs {
		through[run.RunID] = run.ParentRunID == ""
		if run.RunID == st.Metadata.RunID {
			break
		}
	}
	return langgraph.MessagesThrough(fold, through)
}

// stateAfter is the state that a run has left, or has come to.
func stateAfter(fold *event.Session, run *event.Run, step int) graphState {
	at := checkpointID(fold.Seq)
	if run.Status.Terminal() {
		at = checkpointID(run.Book.Last)
	}
	st := graphState{Next: []string{}, Tasks: []graphTask{}, Checkpoint: graphCheckpoint{ThreadID: fold.SessionID, ID: at},
		Metadata: graphStep{graphOf(run.Agent), "loop", step, run.RunID}, CreatedAt: touched(run, fold.CreatedAt)}
	if run.Status == event.Completed || run.Status == event.Cancelled {
		return st
	}
	task := graphTask{ID: run.RunID, Name: "agent", Interrupts: []langgraph.Interrupt{}}
	if run.ExpiresAt != nil {
		task.Interrupts = langgraph.Interrupts(fold, run.RunID)
	}
	if f := langgraph.FailureOf(run); f != nil {
		text := string(event.Encode(f))
		task.Error = &text
	}
	st.Next, st.Tasks = []string{"agent"}, []graphTask{task}
	return st
}

// threadState answers with the thread's state, or with that at a checkpoint.
func (s *Server) threadState(w http.ResponseWriter, r *http.Request, c *call) error {
	fold, err := s.threadOfPath(r, c)
	if err != nil {
		return err
	}
	return writeState(w, fold, r.PathValue("checkpoint"))
}

// threadStateAt takes the checkpoint in the body.
func (s *Server) threadStateAt(w http.ResponseWriter, r *http.Request, c *call) error {
	var in statesRequest
	if err := s.readOptional(w, r, &in); err != nil {
		return err
	}
	fold, err := s.threadOfPath(r, c)
	if err != nil {
		return err
	}
	return writeState(w, fold, in.Checkpoint.ID)
}

func writeState(w http.ResponseWriter, fold *event.Session, checkpoint string) error {
	for _, st := range statesOf(fold) {
		if checkpoint == "" || st.Checkpoint.ID == checkpoint {
			st.Values = valuesAt(fold, st)
			writeJSON(w, http.StatusOK, st)
			return nil
		}
	}
	if checkpoint != "" {
		return notFound("checkpoint", checkpoint)
	}
	writeJSON(w, http.StatusOK, struct { // nothing was said yet
		graphState
		Checkpoint *graphCheckpoint `json:"checkpoint"`
	}{graphState: graphState{Values: langgraph.State(fold), Next: []string{}, Tasks: []graphTask{}, CreatedAt: event.At(time.Now())}})
	return nil
}

type statesRequest struct {
	Limit      int             `json:"limit"`
	Before     json.RawMessage `json:"before"`
	Checkpoint graphCheckpoint `json:"checkpoint"`
}

// maxStates bounds the states that are told at once: each holds the conversation
// up to there. No more follow once they have more than maxTold bytes.
const (
	maxStates = 50
	maxTold   = 4 << 20
)

// threadHistory answers with the thread's states, the last one first.
func (s *Server) threadHistory(w http.ResponseWriter, r *http.Request, c *call) error {
	var in statesRequest
	if err := s.readOptional(w, r, &in); err != nil {
		return err
	}
	fold, err := s.threadOfPath(r, c)
	if err != nil {
		return err
	}
	var before graphCheckpoint
	if json.Unmarshal(in.Before, &before.ID) != nil {
		_ = json.Unmarshal(in.Before, &before) // absent, or a config of a graph's
	}
	limit := min(cmp.Or(in.Limit, 10), maxStates)
	list := []graphState{}
	size := 0
	for _, st := range statesOf(fold) {
		if in.Checkpoint.NS == "" && (before.ID == "" || st.Checkpoint.ID < before.ID) && len(list) < limit && size < maxTold {
			st.Values = valuesAt(fold, st)
			size += len(st.Values)
			list = append(list, st)
		}
	}
	writeJSON(w, http.StatusOK, list)
	return nil
}

// threadsSearch is the body of a search for threads.
type threadsSearch struct {
	Metadata map[string]json.RawMessage `json:"metadata"`
	IDs      []string                   `json:"ids"`
	Values   json.RawMessage            `json:"values"`
	Status   string                     `json:"status"`
	Limit    int                        `json:"limit"`
	Offset   int                        `json:"offset"`
}

// agent is the one whose threads are wanted, if that is all that is asked for.
func (in *threadsSearch) agent() (name string, err error) {
	for key, value := range in.Metadata {
		if key != "graph_id" && key != "assistant_id" || json.Unmarshal(value, &name) != nil {
			return "", unsupported("metadata."+key, "threads can be searched by graph_id, assistant_id, ids and status")
		}
	}
	if !absent(in.Values) {
		return "", unsupported("values", "threads can be searched by graph_id, assistant_id, ids and status")
	}
	return name, nil
}

// maxThreads bounds the threads of one page, and maxLooked the runs that are
// looked through for them.
const (
	maxThreads = 50
	maxLooked  = 1000
)

// searchThreads lists threads by when they were last spoken in.
func (s *Server) searchThreads(w http.ResponseWriter, r *http.Request, c *call) error {
	body, err := readBody(w, r, s.opts.MaxBody)
	if err != nil {
		return err
	}
	var in threadsSearch
	if err := decodeOpen(body, &in); err != nil {
		return err
	}
	ids, err := s.threadIDs(r, c, &in)
	if err != nil {
		return err
	}
	list := []graphThread{}
	limit, size := min(cmp.Or(in.Limit, 10), maxThreads), 0
	for _, id := range ids {
		fold, err := s.threadToTell(r.Context(), c, id)
		if errors.Is(err, eventlog.ErrGone) {
			continue
		}
		if err != nil {
			return err
		}
		if t := threadFrom(fold); fold.Seq > 0 && (in.Status == "" || t.Status == in.Status) {
			if in.Offset--; in.Offset < 0 {
				if size > 0 && size+len(t.Values) > maxTold {
					t.Values = nil // what was said in it can be asked for
				}
				size += len(t.Values)
				list = append(list, t)
			}
		}
		c.hold().Encoded(size)
		if len(list) == limit {
			break
		}
	}
	writeJSON(w, http.StatusOK, list)
	return nil
}
