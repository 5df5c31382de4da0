package agents

import (
	"strconv"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/agent"
	"github.com/runlog-dev/runlog/worker/tool"
)

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

func count(list ...bool) (n int) {
	for _, b := range list {
		if b {
			n++
		}
	}
	return n
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
