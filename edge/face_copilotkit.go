package edge

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/runlog-dev/runlog/edge/dialect/agui"
	"github.com/runlog-dev/runlog/edge/stream"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// The edge is a CopilotKit runtime: its agents are those that workers have
// announced, its threads are sessions.
func (s *Server) copilotRoutes() []route {
	return []route{
		{"GET /copilotkit/info", s.copilotInfo, false},
		{"POST /copilotkit/agent/{agent}/run", s.agui, false},
		{"POST /copilotkit/agent/{agent}/connect", s.copilotConnect, false},
		{"POST /copilotkit/agent/{agent}/stop/{thread}", s.copilotStop, false},
		{"POST /copilotkit", s.copilotSingle, false},
		{"POST /copilotkit/{$}", s.copilotSingle, false},
	}
}

// copilotVersion is the version of the runtime whose routes these are.
const copilotVersion = "1.75.0"

type copilotAgent struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	ClassName   string `json:"className"`
}

func (s *Server) copilotInfo(w http.ResponseWriter, r *http.Request, _ *call) error {
	names, err := s.agentNames(r.Context())
	if err != nil {
		return err
	}
	agents := map[string]copilotAgent{}
	for _, name := range names {
		about, err := s.about(r, name)
		if err != nil && !errors.Is(err, eventlog.ErrNotFound) {
			return err
		}
		agents[name] = copilotAgent{Name: name, Description: about.Description, ClassName: "HttpAgent"}
	}
	type endpoints struct {
		List             bool `json:"list"`
		Inspect          bool `json:"inspect"`
		Mutations        bool `json:"mutations"`
		RealtimeMetadata bool `json:"realtimeMetadata"`
	}
	writeJSON(w, http.StatusOK, struct {
		Version   string                  `json:"version"`
		Agents    map[string]copilotAgent `json:"agents"`
		Audio     bool                    `json:"audioFileTranscriptionEnabled"`
		Mode      string                  `json:"mode"`
		Endpoints endpoints               `json:"threadEndpoints"`
	}{copilotVersion, agents, false, "sse", endpoints{}})
	return nil
}

// copilotConnect tells all runs of a thread, the one under way to its end. A
// client that has messages already gets the conversation as it is now: it would
// add the texts of a replay to those that it has.
func (s *Server) copilotConnect(w http.ResponseWriter, r *http.Request, c *call) error {
	body, err := readBody(w, r, s.maxHistory())
	if err != nil {
		return err
	}
	return s.copilotReplay(w, r, c, body)
}

// replayed is how many events a thread may have for them to be told one by one:
// clients work at each in proportion to the conversation. Longer ones are told as
// they are now.
const replayed = 5000

func (s *Server) copilotReplay(w http.ResponseWriter, r *http.Request, c *call, body []byte) error {
	in, err := readAGUI(body)
	if err != nil {
		return err
	}
	if in.ThreadID == "" {
		return bad("threadId", "threadId is missing")
	}
	req, err := s.streamRequest(r, c, agui.Dialect{Old: in.old()})
	if err != nil {
		return err
	}
	k := eventlog.Key{Tenant: c.who.Tenant, Session: in.ThreadID}
	fold, err := s.load(r.Context(), k)
	if err != nil {
		return err
	}
	if fold.Seq == 0 { // a thread that nothing was said in
		return s.emptyStream(w, req.Transport)
	}
	req.Key, req.NoFollow = k, true
	req.Snapshot = req.After.Seq == 0 && (fold.Seq > replayed || len(in.Messages) > 0)
	// Waits that are over by now do not end it.
	if run := fold.Active(); run != nil && fold.Parked() == nil {
		req.NoFollow = false
		head, id := fold.Seq, run.RunID
		req.Ends = func(e event.Event) bool {
			return e.Seq > head && e.RunID == id && (e.Type.Terminal() || parks(e))
		}
	}
	return s.stream(w, r, c, req)
}

func (s *Server) emptyStream(w http.ResponseWriter, t stream.Transport) error {
	h := w.Header()
	h.Set("Content-Type", t.ContentType())
	h.Set("Cache-Control", "no-cache, no-transform")
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(t.Ping(nil))
	return nil
}

// copilotStop cancels the run that is under way in a thread, or the one that is
// named.
func (s *Server) copilotStop(w http.ResponseWriter, r *http.Request, c *call) error {
	body, err := readBody(w, r, s.opts.MaxBody)
	if err != nil {
		return err
	}
	return s.copilotCancel(w, r, c, r.PathValue("thread"), body)
}

func (s *Server) copilotCancel(w http.ResponseWriter, r *http.Request, c *call, thread string, body []byte) error {
	var req struct {
		RunID string `json:"runId"`
	}
	if len(body) > 0 {
		if err := decodeOpen(body, &req); err != nil {
			return err
		}
	}
	p, err := s.stoppable(r, c, thread, req.RunID)
	if err != nil {
		return err
	}
	stopped := p.runID != ""
	if stopped {
		if _, err := s.cancel(r.Context(), c, p, "stopped by the client", false); err != nil {
			return err
		}
	}
	writeJSON(w, http.StatusOK, struct {
		Stopped bool `json:"stopped"`
	}{stopped})
	return nil
}

// stoppable finds the run that is to be stopped; none if nothing is under way.
func (s *Server) stoppable(r *http.Request, c *call, thread, runID string) (runPlace, error) {
	k := eventlog.Key{Tenant: c.who.Tenant, Session: thread}
	if runID != "" {
		p, err := s.findRun(r.Context(), c, runID)
		if err != nil {
			return p, err
		}
		if p.key != k {
			return p, notFound("run", runID)
		}
		return p, nil
	}
	if _, err := s.findSession(r.Context(), c, thread); err != nil {
		return runPlace{}, err
	}
	fold, err := s.load(r.Context(), k)
	if err != nil {
		return runPlace{}, err
	}
	if run := fold.Active(); run != nil {
		return runPlace{key: k, runID: run.RunID, traceID: run.TraceID, agent: run.Agent}, nil
	}
	return runPlace{}, nil
}

// copilotSingle takes all of the above at one URL.
func (s *Server) copilotSingle(w http.ResponseWriter, r *http.Request, c *call) error {
	body, err := readBody(w, r, s.maxHistory())
	if err != nil {
		return err
	}
	var one struct {
		Method string `json:"method"`
		Params struct {
			AgentID  string `json:"agentId"`
			ThreadID string `json:"threadId"`
		} `json:"params"`
		Body json.RawMessage `json:"body"`
	}
	if err := decodeOpen(body, &one); err != nil {
		return err
	}
	switch one.Method {
	case "info":
		return s.copilotInfo(w, r, c)
	case "agent/run":
		in, err := readAGUI(one.Body)
		if err != nil {
			return err
		}
		return s.aguiRun(w, r, c, one.Params.AgentID, in)
	case "agent/connect":
		return s.copilotReplay(w, r, c, one.Body)
	case "agent/stop":
		return s.copilotCancel(w, r, c, one.Params.ThreadID, one.Body)
	}
	return unsupported("method", "there is no method %q; known: info, agent/run, agent/connect, agent/stop", one.Method)
}
