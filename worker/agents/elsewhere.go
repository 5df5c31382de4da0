package agents

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/agent"
	"github.com/runlog-dev/runlog/worker/remote"
	"github.com/runlog-dev/runlog/worker/remote/agui"
	"github.com/runlog-dev/runlog/worker/remote/exec"
	"github.com/runlog-dev/runlog/worker/tool"
)

// execSection is a program that is an agent.
type execSection struct {
	Command []string          `yaml:"command"`
	Env     map[string]string `yaml:"env"`
	Dir     string            `yaml:"dir"`
	Config  map[string]any    `yaml:"config"`
	Idle    duration          `yaml:"idle_timeout"`
	Grace   duration          `yaml:"grace"`
}

// aguiSection is a server that has an agent.
type aguiSection struct {
	URL       string            `yaml:"url"`
	Headers   map[string]string `yaml:"headers"`
	Protocol  string            `yaml:"protocol_version"`
	Forwarded map[string]any    `yaml:"forwarded_props"`
	Context   map[string]string `yaml:"context"`
	Start     duration          `yaml:"start_timeout"`
	Idle      duration          `yaml:"idle_timeout"`
}

func elsewhere(k agent.Kind) bool { return k == agent.Exec || k == agent.AGUI }

// elsewhere reads an agent that lives elsewhere. Whatever is for a model has no
// effect on it and is refused.
func (c *checker) elsewhere(d *agent.Definition, f file) {
	for at, set := range map[string]bool{
		"$.model": !reflect.ValueOf(f.Model).IsZero(), "$.fallback": f.Fallback != nil, "$.system": f.System != "", "$.prices": f.Prices != nil,
	} {
		if set {
			c.wrong(at, "is for kind: llm; this agent decides by itself")
		}
	}
	for i, t := range f.Tools {
		if t.Client == nil {
			c.wrong(fmt.Sprintf("$.tools[%d]", i), "an agent of kind: %s has its own tools; only those of the client are offered to it", d.Kind)
		}
	}
	if f.OnCrash != "" && f.OnCrash != string(tool.Retry) && f.OnCrash != string(tool.Fail) {
		c.wrong("$.on_crash", "%q is none of retry, fail", f.OnCrash)
	}
	d.OnCrash = tool.OnCrash(f.OnCrash)
	if d.Kind == agent.AGUI {
		d.AGUI = c.agui(f.AGUI)
	} else {
		d.Exec = c.exec(f.Exec)
	}
	c.wrongKind(d.Kind, f)
	d.Tools, d.Emit, d.Limits = c.tools(f.Tools), c.emit(f.Emit), c.limits(f.Limits)
}

// onlyElsewhere refuses on an agent with a model what would have no effect.
func (c *checker) onlyElsewhere(f file) {
	c.wrongKind(agent.LLM, f)
	if f.OnCrash != "" {
		c.wrong("$.on_crash", "is for kind: exec and agui, or stands in an entry of tools")
	}
}

func (c *checker) wrongKind(k agent.Kind, f file) {
	if f.Exec != nil && k != agent.Exec {
		c.wrong("$.exec", "is for kind: exec")
	}
	if f.AGUI != nil && k != agent.AGUI {
		c.wrong("$.agui", "is for kind: agui")
	}
}

func (c *checker) agui(s *aguiSection) *agent.AGUIConfig {
	if s == nil {
		s = &aguiSection{}
	}
	if err := (agui.Options{URL: s.URL}).Check(); err != nil {
		c.wrong("$.agui", "%v", err)
	}
	out := &agent.AGUIConfig{URL: s.URL, Headers: s.Headers, Protocol: s.Protocol, Context: s.Context, Start: time.Duration(s.Start), Idle: time.Duration(s.Idle)}
	if s.Forwarded != nil {
		out.Forwarded = event.Encode(s.Forwarded)
	}
	return out
}

func (c *checker) exec(s *execSection) *agent.ExecConfig {
	if s == nil {
		s = &execSection{}
	}
	if err := (exec.Options{Command: s.Command}).Check(); err != nil {
		c.wrong("$.exec", "%v", err)
	}
	out := &agent.ExecConfig{Command: s.Command, Env: s.Env, Dir: s.Dir, Idle: time.Duration(s.Idle), Grace: time.Duration(s.Grace)}
	if s.Config != nil {
		out.Config = event.Encode(s.Config)
	}
	if dir := filepath.Dir(c.path); !filepath.IsAbs(out.Dir) && isDir(dir) {
		out.Dir = filepath.Join(dir, out.Dir)
	}
	return out
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// elsewhere puts an agent together that lives elsewhere.
func (b builder) elsewhere(d agent.Definition) (*agent.Agent, error) {
	var sources []tool.Source
	for _, t := range d.Tools {
		s, err := b.source(t)
		if err != nil {
			return nil, fmt.Errorf("agent %s: %w", d.Name, err)
		}
		sources = append(sources, s)
	}
	r, err := b.remote(d)
	if err != nil {
		return nil, fmt.Errorf("agent %s: %w", d.Name, err)
	}
	return agent.NewRemote(d, r, sources), nil
}

func (b builder) remote(d agent.Definition) (remote.Agent, error) {
	if d.Kind == agent.AGUI {
		return b.agui(d.AGUI)
	}
	return b.exec(d)
}

func (b builder) agui(c *agent.AGUIConfig) (remote.Agent, error) {
	headers, err := b.resolved(c.Headers)
	if err != nil {
		return nil, fmt.Errorf("agui: %w", err)
	}
	o := agui.Options{URL: c.URL, Headers: headers, Protocol: c.Protocol, Forwarded: c.Forwarded, Start: c.Start, Idle: c.Idle}
	for _, description := range slices.Sorted(maps.Keys(c.Context)) {
		o.Context = append(o.Context, agui.Context{Description: description, Value: c.Context[description]})
	}
	return agui.New(o), o.Check()
}

func (b builder) exec(d agent.Definition) (remote.Agent, error) {
	c := d.Exec
	env, err := b.resolved(c.Env)
	if err != nil {
		return nil, fmt.Errorf("exec: %w", err)
	}
	o := exec.Options{Command: b.command(c.Command), Env: env, Dir: c.Dir, Config: c.Config, Idle: c.Idle, Grace: c.Grace}
	if b.Logger != nil {
		o.Log = b.Logger.With("agent", d.Name)
	}
	return exec.New(o), o.Check()
}
