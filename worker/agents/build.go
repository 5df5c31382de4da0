package agents

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/runlog-dev/runlog/worker/agent"
	"github.com/runlog-dev/runlog/worker/model"
	"github.com/runlog-dev/runlog/worker/model/anthropic"
	"github.com/runlog-dev/runlog/worker/model/openai"
	"github.com/runlog-dev/runlog/worker/model/scripted"
	"github.com/runlog-dev/runlog/worker/redact"
	"github.com/runlog-dev/runlog/worker/tool"
	"github.com/runlog-dev/runlog/worker/tool/builtin"
	"github.com/runlog-dev/runlog/worker/tool/mcp"
)

// Options of Build.
type Options struct {
	Secrets *redact.Secrets // what ${secret:NAME} stands for
	Self    string          // this program: the command "runlog" of an MCP server
	Logger  *slog.Logger
}

// Build puts an agent together. Tool servers are started when they are needed.
func Build(d agent.Definition, o Options) (*agent.Agent, error) {
	b := builder{o}
	if elsewhere(d.Kind) {
		return b.elsewhere(d)
	}
	m, err := b.model(d.Model)
	if err != nil {
		return nil, fmt.Errorf("agent %s: model: %w", d.Name, err)
	}
	var fallback []model.Model
	for i, c := range d.Fallback {
		f, err := b.model(c)
		if err != nil {
			return nil, fmt.Errorf("agent %s: fallback %d: %w", d.Name, i, err)
		}
		fallback = append(fallback, f)
	}
	var sources []tool.Source
	for _, t := range d.Tools {
		s, err := b.source(t)
		if err != nil {
			return nil, fmt.Errorf("agent %s: %w", d.Name, err)
		}
		if t.Approval != nil {
			s = tool.Gate(s, *t.Approval, t.Wait)
		}
		sources = append(sources, s)
	}
	a, err := agent.New(d, m, append(sources, builtin.Source("read_artifact")))
	if err == nil {
		a.Fallback = fallback
	}
	return a, err
}

type builder struct{ Options }

func (b builder) model(c agent.ModelConfig) (m model.Model, err error) {
	if c.Provider == "scripted" {
		script, err := scripted.Parse(c.Script)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.ScriptName, err)
		}
		return scripted.New(script), nil
	}
	e := c.Endpoint
	if e.APIKey, err = b.Secrets.Resolve(e.APIKey); err != nil {
		return nil, err
	}
	if e.Headers, err = b.resolved(e.Headers); err != nil {
		return nil, err
	}
	if c.Provider == "anthropic" {
		return anthropic.New(e)
	}
	return openai.New(e)
}

func (b builder) source(c agent.ToolConfig) (tool.Source, error) {
	if c.Client != nil {
		return tool.Fixed{tool.Client{ClientTool: *c.Client, Wait: c.Timeout}}, nil
	}
	if c.Agent != "" {
		return tool.Fixed{agent.SubAgent(c.Agent, c.About, c.Timeout)}, nil
	}
	if c.Builtin != "" {
		return builtin.Source(c.Builtin), nil
	}
	o := mcp.Options{Name: c.MCP.Name, Command: b.command(c.MCP.Command), URL: c.MCP.URL, Allow: c.Allow, OnCrash: c.OnCrash, Timeout: c.Timeout, Retries: c.Retries, Log: b.Logger}
	var err error
	if o.Env, err = b.resolved(c.MCP.Env); err != nil {
		return nil, fmt.Errorf("mcp %s: %w", o.Name, err)
	}
	if o.Headers, err = b.resolved(c.MCP.Headers); err != nil {
		return nil, fmt.Errorf("mcp %s: %w", o.Name, err)
	}
	if err := o.Check(); err != nil {
		return nil, err
	}
	return mcp.Open(o), nil
}

// command is the command of a file, where "runlog" is this program.
func (b builder) command(c []string) []string {
	c = slices.Clone(c)
	if len(c) > 0 && c[0] == "runlog" && b.Self != "" {
		c[0] = b.Self
	}
	return c
}

// resolved puts secrets into the values of a map.
func (b builder) resolved(m map[string]string) (map[string]string, error) {
	out := maps.Clone(m)
	for k, v := range out {
		var err error
		if out[k], err = b.Secrets.Resolve(v); err != nil {
			return nil, err
		}
	}
	return out, nil
}
