package agents

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/runlog-dev/runlog/examples"
	"github.com/runlog-dev/runlog/worker/agent"
	"github.com/runlog-dev/runlog/worker/redact"
	"github.com/runlog-dev/runlog/worker/tool"
)

const good = `name: good
model: {provider: openai, base_url: "http://127.0.0.1:11434/v1", name: llama}
system: "Today is {{.Date}}."
tools:
  - builtin: write_artifact
  - agent: good
    approval: required
    timeout: 5m
  - mcp: {name: files, command: [server], env: {TOKEN: "${secret:FILES_TOKEN}"}}
    allow: [read_file]
    on_crash: retry
    timeout: 90s
emit: {tools: [read_file], reasoning: false}
limits: {steps: 5, wall: 10m, tool_result: 64KiB, cost_usd: 0.5, on_exceeded: pause, resume_timeout: 2h, session: {cost_usd: 3, wall: 1h}}
prices: {llama: {input: 1.5, cached_input: 0.5, output: 6}}
`

func TestAWrongFileIsExplainedAndTheOthersLoad(t *testing.T) {
	for name, c := range map[string]struct{ yaml, want string }{
		"unknown field":     {"name: x\nmodle: {}\n", `bad.yaml:2: unknown field "modle"`},
		"broken yaml":       {"name: [x\n", "bad.yaml"},
		"a tag of nothing":  {"name: x\ntools:\n  ! w", "bad.yaml"},
		"no name":           {"model: {provider: openai, name: m}\n", "bad.yaml:1: name: missing"},
		"provider":          {"name: x\nmodel:\n  provider: acme\n  name: m\n", `bad.yaml:3: model.provider: "acme" is none of openai, anthropic, scripted`},
		"model name":        {"name: x\nmodel:\n  provider: openai\n", "model.name: missing"},
		"template":          {"name: x\nmodel: {provider: openai, name: m}\n\nsystem: \"{{.Nope\"\n", "bad.yaml:4: system"},
		"duration":          {"name: x\nmodel: {provider: openai, name: m}\nlimits:\n  wall: soon\n", "no duration"},
		"too large results": {"name: x\nmodel: {provider: openai, name: m}\nlimits:\n  tool_result: 9MiB\n", "bad.yaml:4: limits.tool_result: at most 512 KiB"},
		"approval":          {"name: x\nmodel: {provider: openai, name: m}\ntools:\n  - builtin: write_artifact\n    approval: args.amount >\n", "bad.yaml:5: tools[0].approval:"},
		"no effect":         {"name: x\nmodel: {provider: openai, name: m}\ntools:\n  - builtin: write_artifact\n    allow: [x]\n", "bad.yaml:5: tools[0].allow: is for the tools of an mcp server"},
		"client tool":       {"name: x\nmodel: {provider: openai, name: m}\ntools:\n  - client: {name: \"pick a date\"}\n", "tools[0].client.name"},
		"sub-agent":         {"name: x\nmodel: {provider: openai, name: m}\ntools:\n  - agent: other\n", `bad.yaml:4: tools[0].agent: there is no agent "other"`},
		"fallback":          {"name: x\nmodel: {provider: openai, name: m}\nfallback:\n  - {provider: openai, name: n}\n  - provider: acme\n    name: n\n", "bad.yaml:5: fallback[1].provider: \"acme\" is none of"},
		"no price":          {"name: x\nmodel: {provider: openai, name: m}\nfallback:\n  - {provider: openai, name: n}\nprices: {m: {input: 1, output: 2}}\nlimits: {cost_usd: 1}\n", "bad.yaml:4: fallback[0].name: prices has no \"n\""},
		"endless price":     {"name: x\nmodel: {provider: openai, name: m}\nprices: {m: {input: .inf, output: 2}}\n", "bad.yaml:3: prices: \"m\": a price is not negative and"},
		"endless limit":     {"name: x\nmodel: {provider: openai, name: m}\nlimits: {cost_usd: .inf}\n", "bad.yaml:3: limits: limits are not negative and"},
		"price of nothing":  {"name: x\nmodel: {provider: openai, name: m}\nprices: {mm: {input: 1, output: 2}}\n", "bad.yaml:3: prices: no model of this agent is called \"mm\""},
		"exceeded":          {"name: x\nmodel: {provider: openai, name: m}\nlimits:\n  on_exceeded: stop\n", "bad.yaml:4: limits.on_exceeded: \"stop\" is none of fail, pause"},
		"negative":          {"name: x\nmodel: {provider: openai, name: m}\nlimits: {session: {tokens: -1}}\n", "limits are not negative"},
		"context":           {"name: x\nmodel: {provider: openai, name: m, context: 4096, max_tokens: 8192}\n", "bad.yaml:2: model.context:"},
		"negative answer":   {"name: x\nmodel: {provider: openai, name: m, max_tokens: -1}\n", "bad.yaml:2: model.max_tokens:"},
		"kind":              {"name: x\nkind: acme\nmodel: {provider: openai, name: m}\n", "bad.yaml:2: kind: \"acme\" is none of llm, exec, agui"},
		"no program":        {"name: x\nkind: exec\nexec: {env: {A: b}}\n", "bad.yaml:3: exec: exec.command is missing"},
		"no exec":           {"name: x\nkind: exec\n", "bad.yaml:1: exec: exec.command is missing"},
		"model of program":  {"name: x\nkind: exec\nexec: {command: [x]}\nmodel: {provider: openai, name: m}\n", "bad.yaml:4: model: is for kind: llm"},
		"tool of program":   {"name: x\nkind: exec\nexec: {command: [x]}\ntools:\n  - builtin: write_artifact\n", "bad.yaml:5: tools[0]: an agent of kind: exec has its own tools"},
		"crash of program":  {"name: x\nkind: exec\nexec: {command: [x]}\non_crash: ask\n", "bad.yaml:4: on_crash: \"ask\" is none of retry, fail"},
		"exec of a model":   {"name: x\nexec: {command: [x]}\nmodel: {provider: openai, name: m}\n", "bad.yaml:2: exec: is for kind: exec"},
		"no url":            {"name: x\nkind: agui\nagui: {url: \"ftp://x\"}\n", "bad.yaml:3: agui: agui.url is not of the form http(s)://host/path"},
		"agui of a program": {"name: x\nkind: exec\nexec: {command: [x]}\nagui: {url: \"http://x\"}\n", "bad.yaml:4: agui: is for kind: agui"},
		"crash of a model":  {"name: x\non_crash: retry\nmodel: {provider: openai, name: m}\n", "bad.yaml:2: on_crash: is for kind: exec and agui"},
		"both":              {"name: x\nmodel: {provider: openai, name: m}\ntools:\n  - builtin: write_artifact\n    mcp: {name: a, url: http://x}\n", "exactly one of mcp, builtin, client and agent"},
		"emit":              {"name: x\nmodel: {provider: openai, name: m}\nemit:\n  tools: 7\n", "bad.yaml:4: emit.tools: expected"},
		"script":            {"name: x\nmodel: {provider: scripted, script: none.script}\n", "bad.yaml:2: model.script"},
		"same name":         {"name: good\nmodel: {provider: openai, name: m}\n", `agent "good" is defined in`},
	} {
		t.Run(name, func(t *testing.T) {
			fsys := fstest.MapFS{"good.yaml": {Data: []byte(good)}, "bad.yaml": {Data: []byte(c.yaml)}, "notes.txt": {Data: []byte("x")}}
			list, err := Load(fsys, "agents")
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "agents/") {
				t.Errorf("the error is\n%v\nwant %s", err, c.want)
			}
			if len(list) != 1 || list[0].Name != "good" {
				t.Errorf("loaded %+v", list)
			}
		})
	}
}

func TestAGoodFile(t *testing.T) {
	list, err := Load(fstest.MapFS{"good.yaml": {Data: []byte(good)}}, "agents")
	if err != nil {
		t.Fatal(err)
	}
	d := list[0]
	if d.Limits.ToolResult != 64<<10 || d.Tools[2].Timeout.Seconds() != 90 || d.Emit.Tools.Has("write_file") || !d.Emit.Tools.Has("read_file") {
		t.Errorf("read %+v", d)
	}
	if l := d.Limits; l.CostUSD != 0.5 || !l.Pause || l.ResumeWithin != 2*time.Hour || l.Session != (agent.Budget{CostUSD: 3, Wall: time.Hour}) ||
		d.Model.Price != (agent.Price{Input: 1.5, CachedInput: 0.5, Output: 6}) {
		t.Errorf("read %+v, %+v", l, d.Model.Price)
	}
	secrets := redact.NewSecrets(func(string) (string, error) { return "", redact.ErrUnknown })
	if _, err := Build(d, Options{Secrets: secrets, Logger: slog.New(slog.DiscardHandler)}); err == nil || !strings.Contains(err.Error(), "FILES_TOKEN") {
		t.Errorf("a missing secret gives %v", err)
	}
	secrets = redact.NewSecrets(func(string) (string, error) { return "value of the secret", nil })
	if _, err := Build(d, Options{Secrets: secrets, Logger: slog.New(slog.DiscardHandler)}); err != nil {
		t.Error(err)
	}
}

func TestTheDemoAgentBuilds(t *testing.T) {
	list, err := Load(examples.Agents(), "built in")
	if err != nil || len(list) == 0 {
		t.Fatal(list, err)
	}
	for _, d := range list {
		if _, err := Build(d, Options{Secrets: redact.NewSecrets(nil), Self: "runlog", Logger: slog.New(slog.DiscardHandler)}); err != nil {
			t.Error(err)
		}
	}
}

func TestAProgramIsAnAgent(t *testing.T) {
	const file = `name: p
kind: exec
exec: {command: [runlog, x], env: {TOKEN: "${secret:PROGRAM_TOKEN}"}, dir: sub, config: {deep: {n: 9007199254740993}}, idle_timeout: 10s, grace: 1s}
on_crash: fail
tools: [{client: {name: pick}}]
limits: {tokens: 100, cost_usd: 1}
`
	list, err := Load(fstest.MapFS{"p.yaml": {Data: []byte(file)}}, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	d := list[0]
	if e := d.Exec; d.Kind != agent.Exec || d.OnCrash != tool.Fail || string(e.Config) != `{"deep":{"n":9007199254740993}}` ||
		e.Idle != 10*time.Second || e.Grace != time.Second || !filepath.IsAbs(e.Dir) || filepath.Base(e.Dir) != "sub" || d.Limits.Tokens != 100 || len(d.Tools) != 1 {
		t.Errorf("the definition is %+v, %+v", d, e)
	}
	if _, err := Build(d, Options{Secrets: redact.NewSecrets(nil), Logger: slog.New(slog.DiscardHandler)}); err == nil || !strings.Contains(err.Error(), "PROGRAM_TOKEN") {
		t.Errorf("without its secret: %v", err)
	}
	t.Setenv("PROGRAM_TOKEN", "x")
	a, err := Build(d, Options{Secrets: redact.NewSecrets(nil), Self: "/bin/runlog", Logger: slog.New(slog.DiscardHandler)})
	if err != nil || a.Remote == nil || len(a.Sources) != 1 {
		t.Errorf("%+v, %v", a, err)
	}
}
