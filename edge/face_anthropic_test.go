package edge_test

import (
	"strings"
	"testing"

	"github.com/runlog-dev/runlog/edge"
)

type anthropicAnswer struct {
	Type       string
	Role       string
	StopReason string `json:"stop_reason"`
	Content    []struct{ Type, Text string }
	Error      struct{ Type, Message string }
}

func TestMessagesTakeAnthropicsForm(t *testing.T) {
	s := newSite(t)
	e, other := s.edge(edge.Options{}), s.edge(edge.Options{})
	w := s.work()
	body := `{"model":"demo","max_tokens":100,"temperature":1,"system":[{"type":"text","text":"be brief"}],"messages":[{"role":"user","content":"weather?"},` +
		`{"role":"assistant","content":[{"type":"text","text":"I look."},{"type":"server_tool_use","id":"c1","name":"weather","input":{"n":9007199254740993}},` +
		`{"type":"mcp_tool_result","tool_use_id":"c1","is_error":false,"content":[{"type":"text","text":"sunny"}]},{"type":"text","text":"Sunny."}]},` +
		`{"role":"user","content":[{"type":"text","text":"thanks"}]}]}`
	got := as[anthropicAnswer](t, wantStatus(t, e.do("POST", "/v1/messages", body, "Idempotency-Key", "k"), 200))
	if got.Type != "message" || got.Role != "assistant" || got.StopReason != "end_turn" {
		t.Errorf("%+v", got)
	}
	cmd := <-w.invokes
	var said []string
	for _, m := range cmd.Messages {
		said = append(said, string(m.Role)+":"+text(m.Parts))
		for _, c := range m.Calls {
			said = append(said, c.CallID+" "+c.Name+" "+c.Args+" "+text(c.Content))
		}
	}
	if want := `system:be brief|user:weather?|assistant:I look.|c1 weather {"n":9007199254740993} sunny|assistant:Sunny.|user:thanks`; strings.Join(said, "|") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(said, "|"), want)
	}
	// The same key is the same message, on any edge; another body is refused.
	again := as[anthropicAnswer](t, wantStatus(t, other.do("POST", "/v1/messages", body, "Idempotency-Key", "k"), 200))
	if again.StopReason != "end_turn" || len(w.invokes) != 0 {
		t.Errorf("%+v", again)
	}
	p := as[anthropicAnswer](t, wantStatus(t, e.do("POST", "/v1/messages", `{"model":"demo","messages":[{"role":"user","content":"x"}]}`, "Idempotency-Key", "k"), 422))
	if p.Error.Type != "invalid_request_error" || p.Error.Message == "" {
		t.Errorf("%+v", p)
	}
	for body, status := range map[string]int{
		`{"model":"demo","messages":[]}`: 400, `{`: 400, `{"model":"none","messages":[{"role":"user","content":"x"}]}`: 404,
		`{"model":"demo","messages":[{"role":"user","content":"x"}],"tools":[{"type":"web_search_20250305","name":"web_search"}]}`: 400,
		`{"model":"demo","messages":[{"role":"martian","content":"x"}]}`:                                                           400,
	} {
		if p := as[anthropicAnswer](t, wantStatus(t, e.do("POST", "/v1/messages", body), status)); p.Error.Type == "" {
			t.Errorf("%s: %+v", body, p)
		}
	}
}
