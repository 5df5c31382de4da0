package agent

import (
	"encoding/json"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/model"
	"github.com/runlog-dev/runlog/worker/tool"
)

// A Definition is an agent as its YAML file describes it. Load reads and checks
// a directory of them.
type Definition struct {
	Name        string
	Description string
	Kind        Kind
	Exec        *ExecConfig // of Kind Exec
	AGUI        *AGUIConfig // of Kind AGUI
	// OnCrash says what becomes of an agent that lives elsewhere when the worker
	// dies that asked it, or when its answer breaks off: it is asked anew (Retry,
	// the default), or the run fails.
	OnCrash  tool.OnCrash
	Model    ModelConfig
	Fallback []ModelConfig // asked in this order when those before it are not there
	System   string        // Go template; see Prompt
	Tools    []ToolConfig
	Emit     event.Emit
	Limits   Limits
}

// Kind says where an agent's answers come from.
type Kind string

// Kinds. The empty one is LLM.
const (
	LLM  Kind = "llm"
	Exec Kind = "exec" // a program
	AGUI Kind = "agui" // a server that speaks AG-UI
)

// An ExecConfig names the program that is an agent. Values of Env may hold
// ${secret:NAME}. Config goes to the program as it is.
type ExecConfig struct {
	Command []string
	Env     map[string]string
	Dir     string
	Config  json.RawMessage
	Idle    time.Duration // between two lines; 0: no limit but the run's
	Grace   time.Duration // from SIGTERM to SIGKILL; 0: 5 s
}

// An AGUIConfig names the server that has an agent. Values of Headers may hold
// ${secret:NAME}.
type AGUIConfig struct {
	URL       string
	Headers   map[string]string
	Protocol  string            // protocolVersion; empty: the newest known, none: not named
	Forwarded json.RawMessage   // forwardedProps
	Context   map[string]string // by description
	Start     time.Duration     // to the beginning of an answer; 0: 5 min
	Idle      time.Duration     // between two reads; 0: 2 min
}

// A ModelConfig names a model and where it is. Its strings may hold
// ${secret:NAME}.
type ModelConfig struct {
	Provider string // openai | anthropic | scripted
	model.Endpoint
	// Script is what provider scripted plays, the text of the file ScriptName.
	Script     []byte
	ScriptName string
	// Context is how many tokens a request and its answer may have together;
	// 0: as many as there are.
	Context int
	Price   Price
}

// A ToolConfig is one entry of an agent's tools: exactly one of MCP, Builtin,
// Client and Agent.
type ToolConfig struct {
	MCP      *MCPConfig
	Builtin  string            // write_artifact | read_artifact
	Client   *event.ClientTool // run by the client
	Agent    string            // the name of another agent
	About    string            // that agent's description
	Allow    []string          // of an MCP server's tools; nil: all
	OnCrash  tool.OnCrash      // empty: by the tool's annotations
	Approval *tool.Rule        // nil: never asked
	Timeout  time.Duration     // of a call; of a client tool: for its result
	Retries  int               // of a call; 0: tool.DefaultRetries
	Wait     time.Duration     // for an approval
}

// An MCPConfig names an MCP server: a command to start, or a URL.
type MCPConfig struct {
	Name    string
	Command []string
	Env     map[string]string // values may hold ${secret:NAME}
	URL     string
	Headers map[string]string // values may hold ${secret:NAME}
}

// Limits of one run. What is 0 and has no default does not limit.
type Limits struct {
	Steps      int // default 50
	ToolCalls  int // default 100
	Tokens     int64
	CostUSD    float64
	Wall       time.Duration // default 30 min
	Queued     time.Duration // how long a run may wait for the one before it; 0: as long as it takes
	ToolResult int           // encoded bytes of a result in its event, default DefaultToolResult
	Session    Budget        // of all runs of the session together
	// Pause parks a run that is out of budget until somebody resumes it, at most
	// for ResumeWithin (0: a day); without it the run fails.
	Pause        bool
	ResumeWithin time.Duration
}

func (l Limits) budget() Budget {
	return Budget{Steps: l.Steps, ToolCalls: l.ToolCalls, Tokens: l.Tokens, CostUSD: l.CostUSD, Wall: l.Wall}
}

// DefaultToolResult is also the most that a result may be limited to.
const DefaultToolResult = 512 << 10

// narrowed returns the limits of a run: the agent's, or what the request asks
// for where that is less.
func (l Limits) narrowed(by *event.Limits) Limits {
	l.Steps = first(l.Steps, 50)
	l.ToolCalls = first(l.ToolCalls, 100)
	l.Wall = first(l.Wall, 30*time.Minute)
	l.ToolResult = first(l.ToolResult, DefaultToolResult)
	if by != nil {
		l.Steps = lower(l.Steps, by.Steps)
		l.ToolCalls = lower(l.ToolCalls, by.ToolCalls)
		l.Tokens = lower(l.Tokens, by.Tokens)
		l.CostUSD = lower(l.CostUSD, by.CostUSD)
		l.Wall = lower(l.Wall, time.Duration(by.WallMS)*time.Millisecond)
	}
	return l
}

type number interface{ ~int | ~int64 | ~float64 }

func first[N number](n, fallback N) N {
	if n > 0 {
		return n
	}
	return fallback
}

// lower takes the smaller limit; 0 means no limit.
func lower[N number](n, by N) N {
	if by > 0 && (n == 0 || by < n) {
		return by
	}
	return n
}

// emit says what clients see of a run: what the agent shows and the request
// does not hide.
type emit struct {
	agent, run event.Emit
}

func (e emit) tool(name string) bool {
	return (e.agent.Tools.IsZero() || e.agent.Tools.Has(name)) && (e.run.Tools.IsZero() || e.run.Tools.Has(name))
}

func (e emit) reasoning() bool { return shown(e.agent.Reasoning) && shown(e.run.Reasoning) }

func (e emit) subagents() bool {
	return e.agent.Subagents != nil && *e.agent.Subagents && shown(e.run.Subagents)
}

func shown(b *bool) bool { return b == nil || *b }
