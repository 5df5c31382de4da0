package edge

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/runlog-dev/runlog/catalog"
	"github.com/runlog-dev/runlog/edge/dialect/langgraph"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// threadIDs are the sessions that a search is about, by their last runs.
func (s *Server) threadIDs(r *http.Request, c *call, in *threadsSearch) ([]string, error) {
	agent, err := in.agent()
	if err != nil || len(in.IDs) > 0 {
		return slices.DeleteFunc(in.IDs, func(id string) bool { return event.CheckID("thread_id", id) != nil }), err
	}
	if s.Catalog == nil {
		return nil, errNoCatalog
	}
	var ids []string
	seen := map[string]bool{}
	filter := catalog.Filter{Agent: agent, Limit: catalog.MaxLimit}
	for looked := 0; looked < maxLooked; {
		page, err := s.Catalog.Runs(r.Context(), c.who.Tenant, filter)
		if err != nil {
			return nil, err
		}
		for _, run := range page.Runs {
			if !seen[run.SessionID] {
				seen[run.SessionID] = true
				ids = append(ids, run.SessionID)
			}
		}
		if looked += len(page.Runs); page.Next == "" {
			break
		}
		filter.Cursor = page.Next
	}
	return ids, nil
}

// A graphRun is a run as LangGraph has it.
type graphRun struct {
	RunID     string          `json:"run_id"`
	ThreadID  string          `json:"thread_id"`
	Assistant string          `json:"assistant_id"`
	CreatedAt event.Time      `json:"created_at"`
	UpdatedAt event.Time      `json:"updated_at"`
	Status    string          `json:"status"`
	Metadata  graphRunDetails `json:"metadata"`
	Multitask string          `json:"multitask_strategy"`
}

type graphRunDetails struct {
	TraceID string          `json:"trace_id,omitempty"`
	Usage   *event.Usage    `json:"usage,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

// graphStatus is LangGraph's word for how a run is. Its runs do not wait.
func graphStatus(run *event.Run) string {
	switch {
	case run.ExpiresAt != nil || run.Status == event.Cancelled:
		return "interrupted"
	case run.Status == event.Completed:
		return "success"
	case run.Status == event.Failed:
		return "error"
	case run.Status == event.Pending:
		return "pending"
	}
	return "running"
}

func graphRunOf(id, thread string, run *event.Run, created event.Time) graphRun {
	g := graphRun{RunID: id, ThreadID: thread, Assistant: run.Agent, CreatedAt: created, UpdatedAt: touched(run, created), Status: graphStatus(run),
		Multitask: "enqueue", Metadata: graphRunDetails{TraceID: run.TraceID}}
	if run.Status.Terminal() {
		g.Metadata.Usage = &run.Usage
	}
	if f := langgraph.FailureOf(run); f != nil {
		g.Metadata.Error = event.Encode(f)
	}
	return g
}

func (s *Server) writeRun(w http.ResponseWriter, r *http.Request, n *namedRun) error {
	st, _, err := s.state(r.Context(), n.place)
	if err != nil {
		return err
	}
	created := n.place.since
	if created.IsZero() {
		created = st.CreatedAt
	}
	writeJSON(w, http.StatusOK, graphRunOf(n.ref.RunID, n.ref.SessionID, &st.Run, created))
	return nil
}

func (s *Server) threadRun(w http.ResponseWriter, r *http.Request, c *call) error {
	n, err := s.findThreadRun(r, c)
	if err != nil {
		return err
	}
	return s.writeRun(w, r, n)
}

// threadRuns lists a thread's runs, the last one first.
func (s *Server) threadRuns(w http.ResponseWriter, r *http.Request, c *call) error {
	fold, err := s.threadOfPath(r, c)
	if err != nil {
		return err
	}
	limit, offset := 10, 0
	for name, into := range map[string]*int{"limit": &limit, "offset": &offset} {
		if v := r.URL.Query().Get(name); v != "" {
			if *into, err = strconv.Atoi(v); err != nil || *into < 0 {
				return bad(name, "%s=%s is not a number", name, v)
			}
		}
	}
	list := []graphRun{}
	for _, run := range slices.Backward(fold.Runs) {
		g := graphRunOf(run.RunID, fold.SessionID, run, touched(&event.Run{StartedAt: run.StartedAt}, fold.CreatedAt))
		if status := r.URL.Query().Get("status"); run.ParentRunID != "" || status != "" && status != g.Status {
			continue
		}
		if offset--; offset < 0 && len(list) < limit {
			list = append(list, g)
		}
	}
	writeJSON(w, http.StatusOK, list)
	return nil
}

// endOf is the thread's state when a run is over: with what it waits for, or with
// why it failed.
func endOf(fold *event.Session, run *event.Run) json.RawMessage {
	if !run.Status.Terminal() {
		return langgraph.WithInterrupts(fold, run.RunID)
	}
	failure := langgraph.FailureOf(run)
	if failure == nil {
		return langgraph.State(fold)
	}
	members := map[string]json.RawMessage{}
	_ = json.Unmarshal(langgraph.State(fold), &members) // an object
	members["__error__"] = event.Encode(failure)
	return event.Encode(members)
}

func (s *Server) langgraphOK(w http.ResponseWriter, _ *http.Request, _ *call) error {
	writeJSON(w, http.StatusOK, struct {
		OK bool `json:"ok"`
	}{true})
	return nil
}

func (s *Server) langgraphInfo(w http.ResponseWriter, _ *http.Request, _ *call) error {
	type flags struct {
		Assistants bool `json:"assistants"`
		Crons      bool `json:"crons"`
		Langsmith  bool `json:"langsmith"`
	}
	writeJSON(w, http.StatusOK, struct {
		Server string `json:"server"`
		Flags  flags  `json:"flags"`
	}{"runlog", flags{Assistants: true}})
	return nil
}

// A graphAssistant is an agent.
type graphAssistant struct {
	ID          string        `json:"assistant_id"`
	Graph       string        `json:"graph_id"`
	Name        string        `json:"name"`
	Description string        `json:"description,omitempty"`
	Config      struct{}      `json:"config"`
	Context     struct{}      `json:"context"`
	Metadata    graphCreators `json:"metadata"`
	Version     int           `json:"version"`
	CreatedAt   event.Time    `json:"created_at"`
	UpdatedAt   event.Time    `json:"updated_at"`
}

type graphCreators struct {
	By string `json:"created_by"`
}

// assistants are the agents that workers have announced, by name.
func (s *Server) assistants(r *http.Request) ([]graphAssistant, error) {
	names, err := s.agentNames(r.Context())
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	list := []graphAssistant{}
	for _, name := range names {
		about, err := s.about(r, name)
		if errors.Is(err, eventlog.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		list = append(list, assistantOf(name, about))
	}
	return list, nil
}

// about is what a worker has said of its agent.
func (s *Server) about(r *http.Request, name string) (agentWords, error) {
	var words agentWords
	about, err := s.Log.Agent(r.Context(), name)
	if err == nil {
		_ = json.Unmarshal(about, &words) // an announcement may be anything
	}
	return words, err
}

type agentWords struct {
	Description string `json:"description"`
}

func assistantOf(name string, about agentWords) graphAssistant {
	long := event.At(time.Unix(0, 0)) // nobody wrote down when
	return graphAssistant{ID: name, Graph: name, Name: name, Description: about.Description, Metadata: graphCreators{"system"}, Version: 1, CreatedAt: long, UpdatedAt: long}
}

type assistantsSearch struct {
	Graph  string `json:"graph_id"`
	Name   string `json:"name"`
	Limit  int    `json:"limit"`
	Offset int    `json:"offset"`
}

func (s *Server) findAssistants(w http.ResponseWriter, r *http.Request) ([]graphAssistant, assistantsSearch, error) {
	var in assistantsSearch
	if err := s.readOptional(w, r, &in); err != nil {
		return nil, in, err
	}
	list, err := s.assistants(r)
	return slices.DeleteFunc(list, func(a graphAssistant) bool {
		return in.Graph != "" && a.Graph != in.Graph || in.Name != "" && a.Name != in.Name
	}), in, err
}

func (s *Server) searchAssistants(w http.ResponseWriter, r *http.Request, _ *call) error {
	list, in, err := s.findAssistants(w, r)
	if err != nil {
		return err
	}
	from := min(max(in.Offset, 0), len(list))
	writeJSON(w, http.StatusOK, list[from:min(from+cmp.Or(max(in.Limit, 0), 10), len(list))])
	return nil
}

func (s *Server) countAssistants(w http.ResponseWriter, r *http.Request, _ *call) error {
	list, _, err := s.findAssistants(w, r)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, len(list))
	return nil
}

func (s *Server) getAssistant(w http.ResponseWriter, r *http.Request, _ *call) error {
	name := r.PathValue("assistant")
	about, err := s.about(r, name)
	if errors.Is(err, eventlog.ErrNotFound) {
		return s.unknownAgent(r.Context(), name)
	}
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, assistantOf(name, about))
	return nil
}

// getSchemas says that an agent takes messages and has them.
func (s *Server) getSchemas(w http.ResponseWriter, r *http.Request, _ *call) error {
	name := r.PathValue("assistant")
	if _, err := s.about(r, name); err != nil {
		if errors.Is(err, eventlog.ErrNotFound) {
			return s.unknownAgent(r.Context(), name)
		}
		return err
	}
	messages := json.RawMessage(`{"type":"object","properties":{"messages":{"type":"array","items":{"type":"object"}}}}`)
	writeJSON(w, http.StatusOK, struct {
		Graph  string          `json:"graph_id"`
		Input  json.RawMessage `json:"input_schema"`
		Output json.RawMessage `json:"output_schema"`
		State  json.RawMessage `json:"state_schema"`
	}{name, messages, messages, messages})
	return nil
}
