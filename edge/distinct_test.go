package edge_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/runlog-dev/runlog/edge"
	"github.com/runlog-dev/runlog/event"
)

// Bodies of all routes that take messages: M and N stand for the words of two
// messages with one id, A and B for the arguments of two calls with one id.
var (
	twoMessages = map[string]string{
		"/v1/runs":                   `{"input":[{"role":"user","id":"m","content":"M"},{"role":"user","message_id":"m","content":"N"}]}`,
		"/chat":                      `{"messages":[{"role":"user","id":"m","content":"M"},{"role":"user","id":"m","content":"N"}]}`,
		"/rpc":                       `{"jsonrpc":"2.0","id":1,"method":"agent.invoke","params":{"stream":false,"input":[{"role":"user","id":"m","content":"M"},{"role":"user","id":"m","content":"N"}]}}`,
		"/agui/demo":                 `{"threadId":"t","messages":[{"id":"m","role":"user","content":"M"},{"id":"m","role":"user","content":"N"}]}`,
		"/copilotkit/agent/demo/run": `{"threadId":"t","messages":[{"id":"m","role":"user","content":"M"},{"id":"m","role":"user","content":"N"}]}`,
		"/api/chat":                  `{"messages":[{"id":"m","role":"user","parts":[{"type":"text","text":"M"}]},{"id":"m","role":"user","parts":[{"type":"text","text":"N"}]}]}`,
		"/langgraph/runs":            `{"assistant_id":"demo","input":{"messages":[{"type":"human","id":"m","content":"M"},{"type":"human","id":"m","content":"N"}]}}`,
		"/v1/responses":              `{"model":"demo","background":true,"input":[{"role":"user","content":"hi"},{"role":"assistant","id":"m","content":"M"},{"role":"assistant","id":"m","content":"N"}]}`,
		"/v1/runs/r/steer":           `{"input":[{"role":"user","id":"m","content":"M"},{"role":"user","id":"m","content":"N"}]}`,
	}
	twoCalls = map[string]string{
		"/v1/runs": `{"input":[{"role":"user","content":"hi"},
			{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"A"}},{"id":"c","type":"function","function":{"name":"f","arguments":"B"}}]},
			{"role":"tool","tool_call_id":"c","content":"M"},{"role":"tool","tool_call_id":"c","content":"N"},{"role":"user","content":"go on"}]}`,
		"/agui/demo": `{"threadId":"t","messages":[{"id":"1","role":"user","content":"hi"},
			{"id":"2","role":"assistant","toolCalls":[{"id":"c","type":"function","function":{"name":"f","arguments":"A"}}]},{"id":"3","role":"tool","toolCallId":"c","content":"M"},
			{"id":"4","role":"assistant","toolCalls":[{"id":"c","type":"function","function":{"name":"f","arguments":"B"}}]},{"id":"5","role":"tool","toolCallId":"c","content":"N"},{"id":"6","role":"user","content":"go on"}]}`,
		"/langgraph/runs": `{"assistant_id":"demo","input":{"messages":[{"type":"human","content":"hi"},
			{"type":"ai","content":"","tool_calls":[{"id":"c","name":"f","args":{"x":"A"}},{"id":"c","name":"f","args":{"x":"B"}}]},
			{"type":"tool","tool_call_id":"c","content":"M"},{"type":"tool","tool_call_id":"c","content":"N"},{"type":"human","content":"go on"}]}}`,
		"/v1/responses": `{"model":"demo","background":true,"input":[{"role":"user","content":"hi"},
			{"type":"function_call","call_id":"c","name":"f","arguments":"A"},{"type":"function_call_output","call_id":"c","output":"M"},
			{"type":"function_call","call_id":"c","name":"f","arguments":"B"},{"type":"function_call_output","call_id":"c","output":"N"},{"role":"user","content":"go on"}]}`,
		"/v1/chat/completions": `{"model":"demo","messages":[{"role":"user","content":"hi"},
			{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"A"}},{"id":"c","type":"function","function":{"name":"f","arguments":"B"}}]},
			{"role":"tool","tool_call_id":"c","content":"M"},{"role":"tool","tool_call_id":"c","content":"N"},{"role":"user","content":"go on"}]}`,
		"/v1/messages": `{"model":"demo","max_tokens":9,"messages":[{"role":"user","content":"hi"},
			{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f","input":{"x":"A"}},{"type":"tool_use","id":"c","name":"f","input":{"x":"B"}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":"M"},{"type":"tool_result","tool_use_id":"c","content":"N"},{"type":"text","text":"go on"}]}]}`,
		"/api/chat": `{"messages":[{"id":"1","role":"user","parts":[{"type":"text","text":"hi"}]},
			{"id":"2","role":"assistant","parts":[{"type":"tool-f","toolCallId":"c","state":"output-available","input":{"x":"A"},"output":"M"},{"type":"tool-f","toolCallId":"c","state":"output-available","input":{"x":"B"},"output":"N"}]},
			{"id":"3","role":"user","parts":[{"type":"text","text":"go on"}]}]}`,
	}
)

// The log keeps one message of an id, and one call: a request with two of them that
// differ would lose one, and leave a log that its own rules find fault with.
func TestARequestDoesNotContradictItself(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{})
	s.scribe("default", "s").write(started("r"))
	s.index("r", "s")
	refused := func(path, body, want string) {
		t.Helper()
		resp := e.do("POST", path, body)
		said := string(wantStatus(t, resp, resp.StatusCode))
		if path != "/rpc" && resp.StatusCode != http.StatusBadRequest || !strings.Contains(said, want) {
			t.Errorf("%s: %d %s, want 400 and %q", path, resp.StatusCode, said, want)
		}
	}
	same := func(body string) string {
		return strings.NewReplacer(`"M"`, `"one"`, `"N"`, `"one"`, `"A"`, `"{}"`, `"B"`, `"{}"`).Replace(body)
	}
	for path, body := range twoMessages {
		refused(path, body, "two different messages of the request have the id")
	}
	for path, body := range twoCalls {
		refused(path, strings.ReplaceAll(body, `"N"`, `"M"`), "two different tool calls of the request have the id")
		refused(path, strings.ReplaceAll(body, `"B"`, `"A"`), "two different results")
	}
	w := s.work()
	taken := func(path, body string, messages, calls int) {
		t.Helper()
		resp := e.do("POST", path, same(body))
		if said := wantStatus(t, resp, resp.StatusCode); resp.StatusCode >= 300 {
			t.Errorf("%s: %d %s", path, resp.StatusCode, said)
			return
		}
		cmd := <-w.invokes
		var made []event.PastCall
		for _, m := range cmd.Messages {
			made = append(made, m.Calls...)
		}
		if len(cmd.Messages) != messages || len(made) != calls || calls > 0 && len(made[0].Content) != 1 {
			t.Errorf("%s: came as %s", path, event.Encode(cmd.Messages))
		}
	}
	taken("/v1/runs", twoMessages["/v1/runs"], 1, 0)
	taken("/langgraph/runs", twoMessages["/langgraph/runs"], 1, 0)
	for path, body := range twoCalls {
		taken(path, strings.ReplaceAll(body, `"threadId":"t"`, `"threadId":"t2"`), 3, 1)
	}
}
