// Package agents reads agent files and puts the agents together: their model,
// their tools, their limits.
package agents

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/agent"
	"github.com/runlog-dev/runlog/worker/model"
	"github.com/runlog-dev/runlog/worker/tool"
)

// file is an agent's YAML.
type file struct {
	Name        string                  `yaml:"name"`
	Description string                  `yaml:"description"`
	Kind        string                  `yaml:"kind"`
	Exec        *execSection            `yaml:"exec"`
	AGUI        *aguiSection            `yaml:"agui"`
	OnCrash     string                  `yaml:"on_crash"`
	Model       modelSection            `yaml:"model"`
	Fallback    []modelSection          `yaml:"fallback"`
	Prices      map[string]priceSection `yaml:"prices"`
	System      string                  `yaml:"system"`
	Tools       []toolSection           `yaml:"tools"`
	Emit        emitSection             `yaml:"emit"`
	Limits      limitSection            `yaml:"limits"`
}

type modelSection struct {
	Provider      string            `yaml:"provider"`
	BaseURL       string            `yaml:"base_url"`
	Name          string            `yaml:"name"`
	APIKey        string            `yaml:"api_key"`
	Headers       map[string]string `yaml:"headers"`
	Temperature   *float64          `yaml:"temperature"`
	MaxTokens     int               `yaml:"max_tokens"`
	IdleTimeout   duration          `yaml:"idle_timeout"`
	StartTimeout  duration          `yaml:"start_timeout"`
	SendReasoning bool              `yaml:"send_reasoning"`
	Extra         map[string]any    `yaml:"extra"`
	Script        string            `yaml:"script"`
	Context       int               `yaml:"context"`
}

// priceSection is in USD per million tokens.
type priceSection struct {
	Input       float64  `yaml:"input"`
	CachedInput *float64 `yaml:"cached_input"`
	Output      float64  `yaml:"output"`
}

type toolSection struct {
	MCP      *mcpSection    `yaml:"mcp"`
	Builtin  string         `yaml:"builtin"`
	Client   *clientSection `yaml:"client"`
	Agent    string         `yaml:"agent"`
	Allow    []string       `yaml:"allow"`
	Approval string         `yaml:"approval"`
	Wait     duration       `yaml:"approval_timeout"`
	OnCrash  string         `yaml:"on_crash"`
	Timeout  duration       `yaml:"timeout"`
	Retries  *int           `yaml:"retries"`
}

type clientSection struct {
	Name        string         `yaml:"name"`
	Description string         `yaml:"description"`
	Parameters  map[string]any `yaml:"parameters"`
}

type mcpSection struct {
	Name    string            `yaml:"name"`
	Command []string          `yaml:"command"`
	Env     map[string]string `yaml:"env"`
	URL     string            `yaml:"url"`
	Headers map[string]string `yaml:"headers"`
}

type emitSection struct {
	Tools     any   `yaml:"tools"`
	Reasoning *bool `yaml:"reasoning"`
	Subagents *bool `yaml:"subagents"`
}

type limitSection struct {
	Steps      int           `yaml:"steps"`
	ToolCalls  int           `yaml:"tool_calls"`
	Tokens     int64         `yaml:"tokens"`
	CostUSD    float64       `yaml:"cost_usd"`
	Wall       duration      `yaml:"wall"`
	Queued     duration      `yaml:"queued"`
	ToolResult size          `yaml:"tool_result"`
	Session    budgetSection `yaml:"session"`
	OnExceeded string        `yaml:"on_exceeded"`
	Resume     duration      `yaml:"resume_timeout"`
}

type budgetSection struct {
	Steps     int      `yaml:"steps"`
	ToolCalls int      `yaml:"tool_calls"`
	Tokens    int64    `yaml:"tokens"`
	CostUSD   float64  `yaml:"cost_usd"`
	Wall      duration `yaml:"wall"`
}

// Load reads every *.yaml and *.yml in the root of fsys, which is called dir in
// messages. Agents whose file is wrong are left out and reported, each with
// file, line and what is expected; the others load.
func Load(fsys fs.FS, dir string) ([]agent.Definition, error) {
	entries, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return nil, fmt.Errorf("agents in %s: %w", dir, err)
	}
	var list []agent.Definition
	var errs []error
	from, about := map[string]string{}, descriptions(fsys, entries)
	for _, e := range entries {
		if !isAgentFile(e) {
			continue
		}
		where := filepath.Join(dir, e.Name())
		d, err := loadFile(fsys, e.Name(), where, about)
		if err == nil && from[d.Name] != "" {
			err = fmt.Errorf("%s: agent %q is defined in %s already: give it another name", where, d.Name, from[d.Name])
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		from[d.Name] = where
		list = append(list, d)
	}
	return list, errors.Join(errs...)
}

func isAgentFile(e fs.DirEntry) bool {
	ext := path.Ext(e.Name())
	return !e.IsDir() && (ext == ".yaml" || ext == ".yml")
}

// descriptions has the names of the agents with what their files say of them.
// What is wrong with a file is told when it is loaded.
func descriptions(fsys fs.FS, entries []fs.DirEntry) map[string]string {
	about := map[string]string{}
	for _, e := range entries {
		var f struct{ Name, Description string }
		if !isAgentFile(e) {
			continue
		}
		if b, err := fs.ReadFile(fsys, e.Name()); err == nil && yaml.Unmarshal(b, &f) == nil {
			about[f.Name] = f.Description
		}
	}
	return about
}

// loadFile reads one agent's file; where is its name in messages.
func loadFile(fsys fs.FS, name, where string, about map[string]string) (agent.Definition, error) {
	b, err := fs.ReadFile(fsys, name)
	if err != nil {
		return agent.Definition{}, fmt.Errorf("agent file %s: %w", where, err)
	}
	var f file
	if err := yaml.UnmarshalWithOptions(b, &f, yaml.Strict()); err != nil {
		return agent.Definition{}, fmt.Errorf("%s%s", where, placed(strings.TrimSpace(yaml.FormatError(err, false, true))))
	}
	doc, err := parser.ParseBytes(b, 0)
	if err != nil {
		return agent.Definition{}, fmt.Errorf("%s: %w", where, err)
	}
	c := &checker{fsys: fsys, path: where, doc: doc, about: about}
	d := c.definition(f)
	return d, errors.Join(c.errs...)
}

// placed writes the parser's "[line:column] what" as ":line: what".
func placed(message string) string {
	place, what, ok := strings.Cut(message, "] ")
	line, _, two := strings.Cut(strings.TrimPrefix(place, "["), ":")
	if !ok || !two || !strings.HasPrefix(place, "[") {
		return ": " + message
	}
	return ":" + line + ": " + what + "\nwhat a file can hold: docs/agents.md"
}

// A checker turns a file into a definition and gathers what is wrong with it.
type checker struct {
	fsys fs.FS
	path string
	doc  *ast.File
	errs []error
	// about has the descriptions of all agents of the directory.
	about map[string]string
}

func (c *checker) known(agent string) bool {
	_, ok := c.about[agent]
	return ok
}

// wrong reports a problem at a YAML path such as $.model.provider.
func (c *checker) wrong(at, format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf("%s:%d: %s: %s", c.path, c.line(at), strings.TrimPrefix(at, "$."), fmt.Sprintf(format, args...)))
}

// line finds where a path, or what is left of it, stands in the file.
func (c *checker) line(at string) int {
	for at != "" && at != "$" {
		if p, err := yaml.PathString(at); err == nil {
			if node, err := p.FilterFile(c.doc); err == nil && node != nil {
				return node.GetToken().Position.Line
			}
		}
		at = at[:max(strings.LastIndexAny(at, ".["), 0)]
	}
	return 1
}

func (c *checker) definition(f file) agent.Definition {
	if f.Name == "" {
		c.wrong("$.name", "missing: clients name the agent by it")
	} else if err := event.CheckID("name", f.Name); err != nil {
		c.wrong("$.name", "%v", err)
	}
	d := agent.Definition{Name: f.Name, Description: f.Description, Kind: agent.Kind(f.Kind), System: f.System}
	if elsewhere(d.Kind) {
		c.elsewhere(&d, f)
		return d
	}
	if d.Kind != "" && d.Kind != agent.LLM {
		c.wrong("$.kind", "%q is none of llm, exec, agui", f.Kind)
	}
	c.onlyElsewhere(f)
	d.Model = c.model("$.model", f.Model)
	for i, m := range f.Fallback {
		d.Fallback = append(d.Fallback, c.model("$.fallback["+strconv.Itoa(i)+"]", m))
	}
	d.Tools = c.tools(f.Tools)
	d.Emit = c.emit(f.Emit)
	d.Limits = c.limits(f.Limits)
	c.prices(&d, f)
	if _, err := agent.New(d, nil, nil); err != nil {
		c.wrong("$.system", "%v", err)
	}
	return d
}

var providers = []string{"openai", "anthropic", "scripted"}

func (c *checker) model(at string, m modelSection) agent.ModelConfig {
	if !slices.Contains(providers, m.Provider) {
		c.wrong(at+".provider", "%q is none of %s", m.Provider, strings.Join(providers, ", "))
	}
	if m.Context < 0 || m.Context > 0 && m.Context <= m.MaxTokens {
		c.wrong(at+".context", "it is for the request and its answer together: give more than max_tokens")
	}
	out := agent.ModelConfig{Context: m.Context, Provider: m.Provider, ScriptName: m.Script, Endpoint: model.Endpoint{
		BaseURL: m.BaseURL, Name: m.Name, APIKey: m.APIKey, Headers: m.Headers, Temperature: m.Temperature, MaxTokens: m.MaxTokens,
		IdleTimeout: time.Duration(m.IdleTimeout), StartTimeout: time.Duration(m.StartTimeout), SendReasoning: m.SendReasoning, Extra: m.Extra,
	}}
	if m.Provider != "scripted" {
		if m.Name == "" {
			c.wrong(at+".name", "missing: the model's name as its server knows it")
		}
		return out
	}
	if m.Script == "" {
		c.wrong(at+".script", "missing: the YAML file beside this one that the scripted model plays")
	} else if script, err := fs.ReadFile(c.fsys, path.Clean(m.Script)); err != nil {
		c.wrong(at+".script", "%v", err)
	} else {
		out.Script = script
	}
	if out.Name == "" {
		out.Name = strings.TrimSuffix(path.Base(m.Script), path.Ext(m.Script))
	}
	return out
}

// prices gives each model its price. A budget of money is worth nothing if one
// of them has none.
func (c *checker) prices(d *agent.Definition, f file) {
	used := map[string]bool{}
	price := func(at string, m *agent.ModelConfig) {
		p, ok := f.Prices[m.Name]
		used[m.Name] = true
		if !ok && (d.Limits.CostUSD > 0 || d.Limits.Session.CostUSD > 0) {
			c.wrong(at+".name", "prices has no %q, so its cost cannot be limited: add what a million tokens cost, {input: 1.0, output: 5.0}", m.Name)
		}
		m.Price = agent.Price{Input: p.Input, CachedInput: p.Input, Output: p.Output}
		if p.CachedInput != nil {
			m.Price.CachedInput = *p.CachedInput
		}
	}
	price("$.model", &d.Model)
	for i := range d.Fallback {
		price("$.fallback["+strconv.Itoa(i)+"]", &d.Fallback[i])
	}
	for name, p := range f.Prices {
		if !used[name] {
			c.wrong("$.prices", "no model of this agent is called %q", name)
		}
		if !isPrice(p.Input) || !isPrice(p.Output) || p.CachedInput != nil && !isPrice(*p.CachedInput) {
			c.wrong("$.prices", "%q: a price is not negative and not endless", name)
		}
	}
}

func (c *checker) tools(list []toolSection) []agent.ToolConfig {
	var out []agent.ToolConfig
	for i, t := range list {
		at := "$.tools[" + strconv.Itoa(i) + "]"
		if c.tool(at, t) {
			out = append(out, agent.ToolConfig{Builtin: t.Builtin, MCP: c.mcp(at, t.MCP), Client: c.client(at, t.Client), Agent: t.Agent, About: c.about[t.Agent], Allow: t.Allow,
				Approval: c.approval(at, t.Approval), Wait: time.Duration(t.Wait), OnCrash: tool.OnCrash(t.OnCrash), Timeout: time.Duration(t.Timeout), Retries: c.retries(at, t.Retries)})
		}
	}
	return out
}

func (c *checker) tool(at string, t toolSection) bool {
	before := len(c.errs)
	switch {
	case count(t.MCP != nil, t.Builtin != "", t.Client != nil, t.Agent != "") != 1:
		c.wrong(at, "give exactly one of mcp, builtin, client and agent")
	case t.Agent != "" && !c.known(t.Agent):
		c.wrong(at+".agent", "there is no agent %q in this directory", t.Agent)
	case t.Builtin != "" && t.Builtin != "write_artifact" && t.Builtin != "read_artifact":
		c.wrong(at+".builtin", "%q is none of write_artifact, read_artifact", t.Builtin)
	}
	if t.MCP == nil {
		c.onlyMCP(at, t)
	}
	if t.OnCrash != "" && t.OnCrash != "retry" && t.OnCrash != "ask" && t.OnCrash != "fail" {
		c.wrong(at+".on_crash", "%q is none of retry, ask, fail", t.OnCrash)
	}
	return len(c.errs) == before
}

// retries turns what a file says into what a Spec says.
func (c *checker) retries(at string, n *int) int {
	switch {
	case n == nil:
		return 0
	case *n < 0 || *n > 10:
		c.wrong(at+".retries", "%d is not between 0 and 10", *n)
	case *n == 0:
		return tool.NoRetries
	}
	return *n
}

func count(list ...bool) (n int) {
	for _, b := range list {
		if b {
			n++
		}
	}
	return n
}

// onlyMCP refuses on other tools what would have no effect.
func (c *checker) onlyMCP(at string, t toolSection) {
	if t.Allow != nil {
		c.wrong(at+".allow", "is for the tools of an mcp server")
	}
	if t.OnCrash != "" {
		c.wrong(at+".on_crash", "is for the tools of an mcp server")
	}
	if t.Retries != nil {
		c.wrong(at+".retries", "is for the tools of an mcp server")
	}
	if t.Builtin != "" && t.Timeout != 0 {
		c.wrong(at+".timeout", "is for mcp servers, client tools and agents")
	}
	if t.Client != nil && t.Approval != "" {
		c.wrong(at+".approval", "the client runs this tool: it can ask by itself")
	}
}

func (c *checker) client(at string, s *clientSection) *event.ClientTool {
	if s == nil {
		return nil
	}
	if s.Name == "" || s.Name != tool.CleanName(s.Name) {
		c.wrong(at+".client.name", "%q: use letters, digits, _ and -, at most %d of them", s.Name, tool.MaxName)
	}
	out := &event.ClientTool{Name: s.Name, Description: s.Description}
	if s.Parameters != nil {
		out.Parameters = event.Encode(s.Parameters)
	}
	return out
}

func (c *checker) approval(at, text string) *tool.Rule {
	if text == "" || text == "never" {
		return nil
	}
	rule, err := tool.ParseRule(text)
	if err != nil {
		c.wrong(at+".approval", "%v", err)
		return nil
	}
	return &rule
}

func (c *checker) mcp(at string, m *mcpSection) *agent.MCPConfig {
	if m == nil {
		return nil
	}
	switch {
	case m.Name == "":
		c.wrong(at+".mcp.name", "missing: errors and logs name the server by it")
	case (len(m.Command) == 0) == (m.URL == ""):
		c.wrong(at+".mcp", "give exactly one of command (a list) and url")
	}
	return &agent.MCPConfig{Name: m.Name, Command: m.Command, Env: m.Env, URL: m.URL, Headers: m.Headers}
}

func (c *checker) emit(e emitSection) event.Emit {
	out := event.Emit{Reasoning: e.Reasoning, Subagents: e.Subagents}
	if e.Tools != nil {
		if err := out.Tools.UnmarshalJSON(event.Encode(e.Tools)); err != nil {
			c.wrong("$.emit.tools", "%v", err)
		}
	}
	return out
}

func isPrice(usd float64) bool { return usd >= 0 && usd <= event.MaxCostUSD }

func (c *checker) limits(l limitSection) agent.Limits {
	if (event.Limits{Steps: l.Steps, ToolCalls: l.ToolCalls, Tokens: l.Tokens, CostUSD: l.CostUSD}).Check() != nil {
		c.wrong("$.limits", "limits are not negative and not endless; leave one out for no limit or the default")
	}
	if l.OnExceeded != "" && l.OnExceeded != "fail" && l.OnExceeded != "pause" {
		c.wrong("$.limits.on_exceeded", "%q is none of fail, pause", l.OnExceeded)
	}
	if l.Resume != 0 && l.OnExceeded != "pause" {
		c.wrong("$.limits.resume_timeout", "is for on_exceeded: pause")
	}
	if b := l.Session; (event.Limits{Steps: b.Steps, ToolCalls: b.ToolCalls, Tokens: b.Tokens, CostUSD: b.CostUSD}).Check() != nil {
		c.wrong("$.limits.session", "limits are not negative and not endless")
	}
	if l.ToolResult > agent.DefaultToolResult {
		c.wrong("$.limits.tool_result", "at most %d KiB: a result must fit one event", agent.DefaultToolResult>>10)
	}
	if l.ToolResult != 0 && l.ToolResult < 1024 {
		c.wrong("$.limits.tool_result", "at least 1KiB")
	}
	return agent.Limits{Steps: l.Steps, ToolCalls: l.ToolCalls, Tokens: l.Tokens, CostUSD: l.CostUSD, Wall: time.Duration(l.Wall), Queued: time.Duration(l.Queued),
		ToolResult: int(l.ToolResult), Pause: l.OnExceeded == "pause", ResumeWithin: time.Duration(l.Resume),
		Session: agent.Budget{Steps: l.Session.Steps, ToolCalls: l.Session.ToolCalls, Tokens: l.Session.Tokens,
			CostUSD: l.Session.CostUSD, Wall: time.Duration(l.Session.Wall)}}
}

// duration is written as Go does: 90s, 30m.
type duration time.Duration

// UnmarshalYAML reads a duration.
func (d *duration) UnmarshalYAML(b []byte) error {
	v, err := time.ParseDuration(strings.Trim(strings.TrimSpace(string(b)), `"'`))
	if err != nil || v <= 0 {
		return fmt.Errorf("%q is no duration: write 90s, 30m or 2h", strings.TrimSpace(string(b)))
	}
	*d = duration(v)
	return nil
}

// size is a number of bytes: 65536, 512KiB, 1MiB.
type size int

// UnmarshalYAML reads a size.
func (s *size) UnmarshalYAML(b []byte) error {
	text := strings.Trim(strings.TrimSpace(string(b)), `"'`)
	unit := 1
	for suffix, n := range map[string]int{"KiB": 1 << 10, "MiB": 1 << 20} {
		if rest, ok := strings.CutSuffix(text, suffix); ok {
			text, unit = strings.TrimSpace(rest), n
		}
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return fmt.Errorf("%q is no size: write 65536, 512KiB or 1MiB", strings.TrimSpace(string(b)))
	}
	*s = size(n * unit)
	return nil
}
