package systemtest

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/runlog-dev/runlog/event"
)

// chatReply is what /chat answers as JSON.
type chatReply struct {
	SessionID string            `json:"session_id"`
	RunID     string            `json:"run_id"`
	Status    event.Status      `json:"status"`
	Messages  []json.RawMessage `json:"messages"`
}

// openAIMessage is one message in the shape of chat completions.
type openAIMessage struct {
	Role       string  `json:"role"`
	Content    *string `json:"content"`
	ToolCallID string  `json:"tool_call_id"`
	ToolCalls  []struct {
		ID       string `json:"id"`
		Type     string `json:"type"`
		Function struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

// As JSON, /chat answers with the whole conversation as chat completions have it.
func chatOpenAI(t *testing.T, p *production) {
	for _, body := range []string{
		`{"agent":"probe","user_input":"count {\"n\": 2}"}`,
		`{"agent":"probe","messages":[{"role":"user","content":"count {\"n\": 2}"}]}`,
	} {
		reply := into[chatReply](t, p.at[0].do(t, http.StatusOK, http.MethodPost, "/chat", body))
		list := make([]openAIMessage, len(reply.Messages))
		for i, m := range reply.Messages {
			if err := json.Unmarshal(m, &list[i]); err != nil {
				t.Fatalf("%s: %v", m, err)
			}
		}
		if roles := rolesOf(list); roles != "user assistant tool assistant" || reply.Status != event.Completed {
			t.Fatalf("%s: the roles are %s: %s", reply.Status, roles, reply.Messages)
		}
		call := list[1].ToolCalls[0]
		if call.Type != "function" || call.Function.Name != "count_slowly" || string(call.Function.Arguments) != `"{\"n\": 2}"` {
			t.Errorf("the call is %+v with arguments %s", call, call.Function.Arguments)
		}
		if list[2].ToolCallID != call.ID || *list[2].Content != "Counted to 2." || *list[3].Content != "Counted to 2." {
			t.Errorf("what follows the call: %s", reply.Messages[2:])
		}
		checkLog(t, p.at[0], reply.SessionID)
	}
}

func rolesOf(list []openAIMessage) string {
	roles := make([]string, len(list))
	for i, m := range list {
		roles[i] = m.Role
	}
	return strings.Join(roles, " ")
}

// The array that /chat answers can be sent back with one more message: what is known is not said again.
func chatGoesOn(t *testing.T, p *production) {
	first := into[chatReply](t, p.at[0].do(t, http.StatusOK, http.MethodPost, "/chat", `{"agent":"probe","user_input":"count {\"n\": 1}"}`))
	more := append(first.Messages, json.RawMessage(`{"role":"user","content":"and then?"}`))
	for _, session := range []string{first.SessionID, ""} {
		body := event.Encode(map[string]any{"agent": "probe", "session_id": session, "messages": more})
		next := into[chatReply](t, p.at[1].do(t, http.StatusOK, http.MethodPost, "/chat", string(body)))
		if len(next.Messages) != len(first.Messages)+2 || !strings.Contains(string(last2(next.Messages)), "You said: and then?") {
			t.Errorf("session %q goes on as %s", session, next.Messages)
		}
		checkLog(t, p.at[0], next.SessionID)
	}
}

func last2(list []json.RawMessage) json.RawMessage { return list[len(list)-1] }

// With ?format=anthropic the same conversation comes in content blocks.
func chatAnthropic(t *testing.T, p *production) {
	reply := into[chatReply](t, p.at[0].do(t, http.StatusOK, http.MethodPost, "/chat?format=anthropic", `{"agent":"probe","user_input":"count {\"n\": 2}"}`))
	type block struct {
		Type, Text, ID, Name string
		Input                json.RawMessage
		ToolUseID            string `json:"tool_use_id"`
	}
	var blocks []block
	var kinds []string
	for _, m := range reply.Messages {
		var one struct {
			Role    string
			Content json.RawMessage
		}
		var list []block
		if err := json.Unmarshal(m, &one); err != nil {
			t.Fatal(err)
		}
		if json.Unmarshal(one.Content, &list) != nil {
			list = []block{{Type: "text", Text: string(one.Content)}} // a text may stand for its only block
		}
		for _, b := range list {
			blocks, kinds = append(blocks, b), append(kinds, one.Role+":"+b.Type)
		}
	}
	if want := []string{"user:text", "assistant:tool_use", "user:tool_result", "assistant:text"}; !slices.Equal(kinds, want) {
		t.Fatalf("the blocks are %v, want %v", kinds, want)
	}
	if use := blocks[1]; use.Name != "count_slowly" || string(use.Input) != `{"n": 2}` && string(use.Input) != `{"n":2}` || blocks[2].ToolUseID != use.ID {
		t.Errorf("the call %+v and its result %+v", use, blocks[2])
	}
}

// As a stream, /chat speaks the plain dialect, and resumes like any other.
func chatStream(t *testing.T, p *production) {
	s := p.at[0].start(t, http.MethodPost, "/chat", `{"agent":"probe","user_input":"count {\"n\": 2}"}`, sse)
	defer s.close()
	list := s.rest()
	var kinds []string
	text := ""
	for _, m := range list {
		var d struct{ Type, Text string }
		if err := json.Unmarshal([]byte(m.data), &d); err != nil || d.Type != m.kind {
			t.Errorf("message %q: %v", m.raw, err)
		}
		if text += d.Text; len(kinds) == 0 || kinds[len(kinds)-1] != m.kind {
			kinds = append(kinds, m.kind)
		}
	}
	if want := []string{"message_start", "tool_use", "tool_result", "text_delta", "message_stop"}; !slices.Equal(kinds, want) {
		t.Errorf("the stream has %v, want %v", kinds, want)
	}
	if text != "Counted to 2." {
		t.Errorf("the text is %q", text)
	}
	runID := s.resp.Header.Get("Runlog-Run-Id")
	rest := way{sse, "dialect=plain"}.resume(t, p.at[1], runID, list[1].id)
	defer rest.close()
	if d := differ(append(list[:2:2], rest.rest()...), list); d != "" {
		t.Errorf("resumed on the other edge: %s", d)
	}
}

func chatRefuses(t *testing.T, p *production) {
	for _, body := range []string{
		`{}`, `{"agent":"probe"}`, `{"agent":"probe","messages":[]}`, `{"agent":"probe","messages":[{"content":"x"}]}`,
		`{"agent":"probe","messages":[{"role":"user","content":"x"}],"user_input":"y"}`, `[]`, `{"agent":"probe","user_input":`,
	} {
		p.at[0].refused(t, http.StatusBadRequest, event.CodeBadRequest, http.MethodPost, "/chat", body)
	}
	p.at[0].refused(t, http.StatusBadRequest, event.CodeBadRequest, http.MethodPost, "/chat?format=klingon", `{"agent":"probe","user_input":"x"}`)
}
