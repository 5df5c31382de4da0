package crashtest

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/runlog-dev/runlog/event"
)

// An outcome is what is left of a run when ids, times and attempts are taken
// away: what has to be the same whatever died.
type outcome struct {
	run       string
	messages  []string
	calls     map[string]string // by tool
	artifacts []string
}

// outcomeOf reads the outcome of a session's first run. A call of a tool that
// must not be repeated may have been cut off: it then counts as its model's.
func outcomeOf(s *event.Session, model *outcome) *outcome {
	o := &outcome{calls: map[string]string{}}
	r := s.Runs[0]
	o.run = fmt.Sprintf("%s %s, answered by message %d, %d steps, %d calls, %d tokens out, %d of them thought",
		r.Status, r.FinishReason, slices.IndexFunc(s.Messages, func(m *event.Message) bool { return r.Output != nil && m.MessageID == r.Output.MessageID }),
		r.Usage.Steps, r.Usage.ToolCalls, r.Usage.OutputTokens, r.Usage.ReasoningTokens)
	for _, m := range s.Messages {
		o.messages = append(o.messages, said(s, m))
	}
	for _, c := range s.ToolCalls {
		o.calls[c.Name] = ended(c)
		if c.Name == "sleep" && c.Outcome == event.OutcomeUnknown && model != nil {
			o.calls[c.Name] = model.calls[c.Name]
		}
	}
	for _, a := range s.Artifacts {
		if a.Status == event.Completed {
			o.artifacts = append(o.artifacts, fmt.Sprintf("%s, %s, %d bytes, %s", a.Name, a.MediaType, a.Bytes, a.SHA256))
		}
	}
	return o
}

func said(s *event.Session, m *event.Message) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s):", m.Role, m.Status)
	for _, p := range m.Parts {
		fmt.Fprintf(&b, " %s %q", p.Type, p.Text)
		if c := s.Call(p.CallID); c != nil {
			fmt.Fprintf(&b, "%s(%s)", c.Name, c.Args)
		}
	}
	return b.String()
}

func ended(c *event.ToolCall) string {
	text := fmt.Sprintf("%s %s %s %s", c.Status, c.Code, c.Outcome, c.Message)
	for _, p := range c.Content {
		text += fmt.Sprintf(" %s %q %s %d", p.Type, p.Text, p.Name, p.Bytes)
		if p.ArtifactID != "" {
			text = strings.ReplaceAll(text, p.ArtifactID, "<artifact>")
		}
	}
	return text
}

// differences are what is not as in the model.
func (o *outcome) differences(model *outcome) []string {
	var list []string
	differ := func(what, got, want string) {
		if got != want {
			list = append(list, fmt.Sprintf("%s:\n got %s\nwant %s", what, got, want))
		}
	}
	differ("run", o.run, model.run)
	differ("messages", strings.Join(o.messages, "\n     "), strings.Join(model.messages, "\n     "))
	for name, want := range model.calls {
		differ("call of "+name, o.calls[name], want)
	}
	if len(o.calls) != len(model.calls) {
		differ("calls", fmt.Sprint(len(o.calls)), fmt.Sprint(len(model.calls)))
	}
	differ("artifacts", strings.Join(o.artifacts, "; "), strings.Join(model.artifacts, "; "))
	return list
}

// A use is one execution of a tool, as the tool has it.
type use struct{ key, attempt, tool string }

// uses reads what the tools of a session's runs have recorded.
func (l *lane) uses(t testing.TB, s *event.Session) []use {
	t.Helper()
	data, err := os.ReadFile(l.ledger())
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var list []use
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) != 4 {
			t.Fatalf("the ledger has the line %q", line)
		}
		if runID, _, _ := strings.Cut(f[1], "/"); s.Run(runID) != nil {
			list = append(list, use{f[1], f[2], f[3]})
		}
	}
	return list
}

// checkUses compares the tools' own record with the log.
func checkUses(t testing.TB, s *event.Session, uses []use) {
	t.Helper()
	for _, c := range s.ToolCalls {
		var mine []use
		for _, u := range uses {
			if u.tool == c.Name {
				mine = append(mine, u)
			}
		}
		seen := map[string]bool{}
		for _, u := range mine {
			if seen[u.attempt] || u.key != mine[0].key {
				t.Errorf("%s was executed twice in one attempt, or under another key: %v", c.Name, mine)
			}
			seen[u.attempt] = true
		}
		switch {
		case c.Name == "write_artifact", c.Name == "crash", c.Executor == event.ByClient: // keep no record
		case c.Name == "sleep" && len(mine) > 1:
			t.Errorf("%s must not be repeated: %v", c.Name, mine)
		case c.Status == event.Completed && len(mine) == 0:
			t.Errorf("%s has a result and was never executed", c.Name)
		case len(mine) > c.Attempt:
			t.Errorf("%s was executed %d times in %d attempts", c.Name, len(mine), c.Attempt)
		case c.Status == event.Completed && !seen[fmt.Sprint(c.Attempt)]:
			t.Errorf("%s has the result of attempt %d, executed: %v", c.Name, c.Attempt, mine)
		}
	}
}
