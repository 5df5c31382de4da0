package agents

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/agent"
	"github.com/runlog-dev/runlog/worker/model"
)

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
	if m.MaxTokens < 0 {
		c.wrong(at+".max_tokens", "it bounds an answer: give more than 0, or leave it out")
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

func isPrice(usd float64) bool { return usd >= 0 && usd <= event.MaxCostUSD }

func (c *checker) emit(e emitSection) event.Emit {
	out := event.Emit{Reasoning: e.Reasoning, Subagents: e.Subagents}
	if e.Tools != nil {
		if err := out.Tools.UnmarshalJSON(event.Encode(e.Tools)); err != nil {
			c.wrong("$.emit.tools", "%v", err)
		}
	}
	return out
}

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
