package agents

import (
	"fmt"
	"strconv"
	"strings"
	"time"
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
