package edge

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/runlog-dev/runlog/edge/dialect/mcp"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// The agents as MCP tools, over streamable HTTP. An MCP session is an id and no
// more: any edge takes any request of it. What has to be known later is in the
// ids that the client is given: the session's says what the client can do, an
// event's which call it belongs to, an elicitation's which tool call it asks about.
func (s *Server) mcpRoutes() []route {
	return []route{
		{"POST /mcp", s.mcp, false},
		{"GET /mcp", s.mcpResume, false},
	}
}

// mcpVersions are the protocol versions that are spoken, the latest first.
var mcpVersions = []string{"2025-11-25", "2025-06-18", "2025-03-26"}

// mcpPrimes is the version from which on streams begin with an id alone.
const mcpPrimes = "2025-11-25"

const (
	mcpSessionHeader = "Mcp-Session-Id"
	mcpVersionHeader = "Mcp-Protocol-Version"
	// mcpAsks ends the id of a session whose client can ask its user.
	mcpAsks = "-asks"
	// mcpOtherVersion is the code for a version that is not spoken.
	mcpOtherVersion = -32022
)

// An mcpMessage is a request, a notification, or the answer to what the server
// has asked.
type mcpMessage struct {
	rpcCall
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`

	session string
}

// mcp takes one message.
func (s *Server) mcp(w http.ResponseWriter, r *http.Request, c *call) error {
	body, err := readBytes(w, r, s.opts.MaxBody)
	if err != nil {
		return err
	}
	m, refused := readMCP(r, body)
	if refused != nil {
		return writeMCPRefusal(w, *refused)
	}
	c.note("method", m.Method)
	switch {
	case m.Method == "":
		err = s.mcpAnswered(r, c, m)
	case m.ID == nil:
		err = s.mcpNotified(r, c, m)
	case m.Method == "tools/call":
		return s.mcpCall(w, r, c, m)
	default:
		return s.mcpResult(w, r, m)
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}

func readMCP(r *http.Request, body []byte) (*mcpMessage, *rpcAnswer) {
	invalid := func(code int, text string, data *rpcData) *rpcAnswer {
		return &rpcAnswer{ID: rpcNull, Error: &rpcError{Code: code, Message: text, Data: data}}
	}
	body = bytes.TrimSpace(body)
	m := &mcpMessage{session: r.Header.Get(mcpSessionHeader)}
	if err := checkJSON(body); err != nil {
		return nil, invalid(rpcParse, err.Error(), nil)
	}
	if err := checkMembers(body); err != nil {
		return nil, invalid(rpcInvalid, err.Error(), nil)
	}
	if err := json.Unmarshal(body, m); err != nil || m.Version != "2.0" || m.Method == "" && len(m.Result)+len(m.Error) == 0 {
		return nil, invalid(rpcInvalid, `not a JSON-RPC 2.0 message: send one {"jsonrpc":"2.0","id":…,"method":…,"params":{…}}`, nil)
	}
	if m.Method != "" && m.ID != nil && (!jsonScalar(m.ID) || len(m.ID) > maxKey) {
		return nil, invalid(rpcInvalid, "the id of a request is a string or a number, of at most 255 bytes", nil)
	}
	if m.session != "" && event.CheckID("session id", m.session) != nil {
		return nil, invalid(rpcInvalid, "this Mcp-Session-Id was not given here: initialize anew", nil)
	}
	if v := r.Header.Get(mcpVersionHeader); v != "" && !slices.Contains(mcpVersions, v) {
		p := invalid(mcpOtherVersion, "the protocol version "+v+" is not spoken here: initialize with one of "+strings.Join(mcpVersions, ", "), &rpcData{Code: event.CodeUnsupported, Supported: mcpVersions, Requested: v})
		if m.ID != nil {
			p.ID = m.ID
		}
		return nil, p
	}
	return m, nil
}

// writeMCPRefusal answers what is no message of this protocol.
func writeMCPRefusal(w http.ResponseWriter, a rpcAnswer) error {
	a.Version = "2.0"
	writeJSON(w, http.StatusBadRequest, a)
	return nil
}

// mcpResult answers a request that is no call.
func (s *Server) mcpResult(w http.ResponseWriter, r *http.Request, m *mcpMessage) error {
	a := rpcAnswer{ID: m.ID}
	switch m.Method {
	case "initialize":
		a.Result = mcpInitialize(w, m)
	case "ping":
		a.Result = struct{}{}
	case "tools/list":
		tools, err := s.mcpTools(r)
		if err != nil {
			return err
		}
		a.Result = struct {
			Tools []mcpTool `json:"tools"`
		}{tools}
	default:
		a.Error = &rpcError{Code: rpcMethod, Message: "there is no method " + m.Method + "; known: initialize, ping, tools/list, tools/call"}
	}
	return writeRPC(w, a)
}

type mcpServer struct {
	Version      string        `json:"protocolVersion"`
	Capabilities mcpCan        `json:"capabilities"`
	Info         mcpServerInfo `json:"serverInfo"`
	Instructions string        `json:"instructions"`
}

type mcpCan struct {
	Tools struct{} `json:"tools"`
}

type mcpServerInfo struct {
	Name    string `json:"name"`
	Title   string `json:"title"`
	Version string `json:"version"`
}

// mcpInitialize agrees on a version, and gives the session its id.
func mcpInitialize(w http.ResponseWriter, m *mcpMessage) mcpServer {
	var p struct {
		Version      string `json:"protocolVersion"`
		Capabilities struct {
			Elicitation *struct {
				Form *struct{} `json:"form"`
				URL  *struct{} `json:"url"`
			} `json:"elicitation"`
		} `json:"capabilities"`
	}
	_ = json.Unmarshal(m.Params, &p) // what is not as it should be, it cannot do
	if !slices.Contains(mcpVersions, p.Version) {
		p.Version = mcpVersions[0]
	}
	id := event.NewID("mcp")
	if e := p.Capabilities.Elicitation; e != nil && (e.Form != nil || e.URL == nil) {
		id += mcpAsks
	}
	w.Header().Set(mcpSessionHeader, id)
	return mcpServer{p.Version, mcpCan{}, mcpServerInfo{"runlog", "runlog agents", "1"},
		"Each tool is an agent. A result names its session_id: give it with the next call to go on with the conversation."}
}

type mcpTool struct {
	Name        string          `json:"name"`
	Title       string          `json:"title,omitempty"`
	Description string          `json:"description"`
	Input       json.RawMessage `json:"inputSchema"`
	Output      json.RawMessage `json:"outputSchema"`
}

var (
	mcpAgentInput = json.RawMessage(`{"type":"object","properties":{"input":{"type":"string","description":"What the agent is asked or told."},` +
		`"session_id":{"type":"string","description":"Goes on with an earlier conversation, as its result named it. Without it a new one begins."}},"required":["input"]}`)
	mcpFollowInput = json.RawMessage(`{"type":"object","properties":{"run_id":{"type":"string","description":"The run, as a result named it."}},"required":["run_id"]}`)
)

// mcpTools are the agents that workers have announced, and the tool that waits
// for a run.
func (s *Server) mcpTools(r *http.Request) ([]mcpTool, error) {
	agents, err := s.assistants(r)
	if err != nil {
		return nil, err
	}
	tools := make([]mcpTool, 0, len(agents)+1)
	follow := true
	for _, a := range agents {
		if a.Description == "" {
			a.Description = "The agent " + a.Name + "."
		}
		name := event.WireName(a.Name)
		follow = follow && name != mcp.FollowTool
		tools = append(tools, mcpTool{name, a.Name, a.Description, mcpAgentInput, mcp.OutcomeSchema})
	}
	if follow {
		tools = append(tools, mcpTool{mcp.FollowTool, "", "Waits for the end of a run that was started before, and returns what it has said.", mcpFollowInput, mcp.OutcomeSchema})
	}
	return tools, nil
}

// mcpAgent finds the agent that a tool is; none if it is not one.
func (s *Server) mcpAgent(r *http.Request, tool string) (string, error) {
	_, err := s.about(r, tool)
	if err == nil || !errors.Is(err, eventlog.ErrNotFound) {
		return tool, err
	}
	names, err := s.agentNames(r.Context())
	if err != nil {
		return "", err
	}
	for _, name := range names {
		if event.WireName(name) == tool {
			return name, nil
		}
	}
	return "", nil
}

// mcpNotified takes notice: a call that was cancelled is a run that is cancelled.
func (s *Server) mcpNotified(r *http.Request, c *call, m *mcpMessage) error {
	var p struct {
		RequestID json.RawMessage `json:"requestId"`
		Reason    string          `json:"reason"`
	}
	if m.Method != "notifications/cancelled" || json.Unmarshal(m.Params, &p) != nil || m.session == "" {
		return nil
	}
	at, err := s.findRun(r.Context(), c, mcpRunID(m.session, p.RequestID))
	if err != nil {
		return ignoreMissing(err) // it was no call of an agent
	}
	_, err = s.cancel(r.Context(), c, at, cut(p.Reason, maxReason), false)
	return err
}

// cut keeps the beginning of a text, at most n bytes.
func cut(text string, n int) string {
	return strings.ToValidUTF8(text[:min(n, len(text))], "")
}

// mcpRunID is the run of a session's request, so that a request that comes twice
// is one run, and any edge knows what is cancelled.
func mcpRunID(session string, id json.RawMessage) string {
	return derivedID("run", "mcp", session, string(id))
}

// mcpAnswered takes what a client's user has said about a call. Whoever declines,
// or could not be asked, has denied it. A decision that was made already stands.
func (s *Server) mcpAnswered(r *http.Request, c *call, m *mcpMessage) error {
	var id string
	_ = json.Unmarshal(m.ID, &id) // what is no string was not asked here
	run, callID, ok := mcp.CutElicitID(id)
	if !ok {
		return nil
	}
	p, tool, err := s.findCall(r.Context(), c, run, callID)
	if err != nil {
		return err
	}
	if tool.Decision != nil || tool.Status != event.WaitingApproval {
		return nil
	}
	approved, reason := m.decision()
	cmd := decision(tool, approved, cut(reason, maxReason))
	cmd.CommandID = p.runID + "." + cmd.CommandID
	return s.command(r.Context(), c, p, cmd)
}

func (m *mcpMessage) decision() (approved bool, reason string) {
	var failed struct {
		Message string `json:"message"`
	}
	if len(m.Error) > 0 {
		_ = json.Unmarshal(m.Error, &failed) // without words, if it has none
		return false, "the client could not ask: " + failed.Message
	}
	var said struct {
		Action  string `json:"action"`
		Content struct {
			Approve *bool  `json:"approve"`
			Reason  string `json:"reason"`
		} `json:"content"`
	}
	_ = json.Unmarshal(m.Result, &said) // what cannot be read is no consent
	approved = said.Action == "accept" && (said.Content.Approve == nil || *said.Content.Approve)
	return approved, said.Content.Reason
}
