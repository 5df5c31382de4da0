package edge_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/runlog-dev/runlog/edge"
	"github.com/runlog-dev/runlog/event"
)

type a2aTask struct {
	ID        string
	ContextID string
	Status    struct{ State string }
	Artifacts []struct{ Parts []struct{ Text string } }
	History   []struct{ MessageID string }
}

type a2aReply struct {
	ID     any
	Result struct {
		a2aTask
		Task         *a2aTask
		StatusUpdate *struct{ Status struct{ State string } }
	}
	Error *struct {
		Code    int
		Message string
		Data    []struct{ Type, Reason, Domain string }
	}
}

func (e *edgeNode) a2a(method, params string, header ...string) a2aReply {
	e.t.Helper()
	return as[a2aReply](e.t, wantStatus(e.t, e.do("POST", "/a2a/demo", call(1, method, params), header...), 200))
}

func a2aSays(id, parts, more string) string {
	return fmt.Sprintf(`{"message":{"messageId":%q,"role":"ROLE_USER","parts":%s%s}}`, id, parts, more)
}

// An agent's card says where it is, as the client reached it, and what it needs.
func TestAgentCard(t *testing.T) {
	s := newSite(t)
	s.announce("other")
	open := s.edge(edge.Options{DefaultAgent: "demo"})
	type card struct {
		Name, Description string
		Interfaces        []struct{ URL, ProtocolBinding, ProtocolVersion string } `json:"supportedInterfaces"`
		Schemes           map[string]any                                           `json:"securitySchemes"`
		Skills            []struct{ ID string }
		Capabilities      struct{ Streaming, PushNotifications bool }
	}
	for path, name := range map[string]string{"/.well-known": "demo", "/a2a/.well-known": "demo", "/a2a/other/.well-known": "other"} {
		c := as[card](t, open.get(200, path+"/agent-card.json", "X-Forwarded-Proto", "https"))
		if c.Name != name || len(c.Interfaces) != 1 || len(c.Skills) != 1 || c.Description == "" || !c.Capabilities.Streaming || c.Capabilities.PushNotifications {
			t.Fatalf("%s: %+v", path, c)
		}
		at := c.Interfaces[0]
		if want := "https://" + strings.TrimPrefix(open.url, "http://") + "/a2a/" + name; at.URL != want || at.ProtocolBinding != "JSONRPC" || at.ProtocolVersion != "1.0" {
			t.Errorf("%s: %+v, want %s", path, at, want)
		}
		if c.Schemes != nil {
			t.Errorf("%s asks for a key that nobody needs", path)
		}
	}
	open.get(404, "/a2a/nobody/.well-known/agent-card.json")

	key := s.key("a")
	closed := s.edge(edge.Options{})
	closed.get(401, "/a2a/demo/.well-known/agent-card.json")
	if c := as[card](t, closed.get(200, "/a2a/demo/.well-known/agent-card.json", "Authorization", key)); c.Schemes["key"] == nil {
		t.Errorf("the card does not say that a key is needed: %+v", c)
	}
}

// What is not of this version or not offered is refused in A2A's words.
func TestA2ARefusals(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{})
	s.work()
	text := `[{"text":"hi"}]`
	for _, c := range []struct {
		method, params, version string
		code                    int
		says                    string
	}{
		{"SendMessage", a2aSays("m1", text, ""), "0.3", -32009, "speaks A2A 1.0"},
		{"SendMessage", a2aSays("m1", text, ""), "2.0", -32009, "speaks A2A 1.0"},
		{"message/send", `{}`, "", -32009, "SendMessage"},
		{"Sing", `{}`, "", -32601, "SubscribeToTask"},
		{"ListTasks", `{}`, "1.0", -32004, "GET /v1/runs"},
		{"ListTasks", `{"contextId":"c","pageSize":1000}`, "1.0", -32602, "1 to 100"},
		{"ListTasks", `{"contextId":"c","pageToken":"x"}`, "1.0", -32602, "start without"},
		{"ListTasks", `{"contextId":"c","statusTimestampAfter":"x"}`, "1.0", -32602, "no time"},
		{"GetExtendedAgentCard", `{}`, "1.0", -32004, "no extended card"},
		{"CreateTaskPushNotificationConfig", `{}`, "1.0", -32003, "SubscribeToTask"},
		{"SendMessage", `{"configuration":{"taskPushNotificationConfig":{"url":"http://x"}},"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]}}`, "1.0", -32003, "push"},
		{"SendMessage", `{}`, "1.0", -32602, "message is missing"},
		{"SendMessage", a2aSays("", text, ""), "1.0", -32602, "messageId is empty"},
		{"SendMessage", a2aSays("m1", `[]`, ""), "1.0", -32602, "0 parts"},
		{"SendMessage", a2aSays("m1", `[{"filename":"x"}]`, ""), "1.0", -32602, "send text, data, url or raw"},
		{"SendMessage", `{"message":{"messageId":"m1","role":"ROLE_AGENT","parts":[{"text":"x"}]}}`, "1.0", -32602, "ROLE_USER"},
		{"SendMessage", a2aSays("m1", text, `,"contextId":"a/b"`), "1.0", -32602, "contextId"},
		{"SendMessage", a2aSays("m1", text, `,"taskId":"none"`), "1.0", -32001, `"none"`},
		{"GetTask", `{"id":"none"}`, "1.0", -32001, `"none"`},
		{"GetTask", `{}`, "1.0", -32602, "id is missing"},
		{"CancelTask", `{"id":"none"}`, "1.0", -32001, `"none"`},
		{"SubscribeToTask", `{"id":"none"}`, "1.0", -32001, `"none"`},
	} {
		got := e.a2a(c.method, c.params, "A2A-Version", c.version)
		if got.Error == nil || got.Error.Code != c.code || !strings.Contains(got.Error.Message, c.says) {
			t.Errorf("%s %s: %+v", c.method, c.params, got.Error)
			continue
		}
		if d := got.Error.Data; c.code != -32601 && (len(d) != 1 || d[0].Reason == "" || d[0].Domain != "a2a-protocol.org") {
			t.Errorf("%s: %+v is no ErrorInfo", c.method, d)
		}
	}
	for body, code := range map[string]int{`{`: -32700, `[]`: -32600, `{"jsonrpc":"1.0","id":1,"method":"GetTask"}`: -32600} {
		if got := as[a2aReply](t, wantStatus(t, e.do("POST", "/a2a", body), 200)); got.Error == nil || got.Error.Code != code {
			t.Errorf("%s: %+v", body, got.Error)
		}
	}
	wantStatus(t, e.do("POST", "/a2a/demo", `{"jsonrpc":"2.0","method":"GetTask","params":{"id":"x"}}`), 204)
	if got := as[a2aReply](t, wantStatus(t, e.do("POST", "/a2a/nobody", call(1, "SendMessage", a2aSays("m", text, ""))), 200)); got.Error == nil || !strings.Contains(got.Error.Message, "known: demo") {
		t.Errorf("%+v", got.Error)
	}
}

// Every kind of part reaches the agent; a message to a task that works is steered
// into it, once; and the task says what was said to it.
func TestA2AMessages(t *testing.T) {
	s := newSite(t)
	e, other := s.edge(edge.Options{}), s.edge(edge.Options{})
	w := s.work()
	parts := `[{"text":"look: "},{"data":{"n":9007199254740993}},{"raw":"aGk=","mediaType":"text/plain","filename":"hi.txt"},{"url":"https://example.com/cat.png","mediaType":"image/png"},{"text":"hold"}]`
	got := e.a2a("SendMessage", strings.TrimSuffix(a2aSays("m1", parts, `,"contextId":"ctx"`), "}")+`,"configuration":{"returnImmediately":true}}`)
	if got.Error != nil || got.Result.Task == nil || got.Result.Task.ContextID != "ctx" {
		t.Fatalf("%+v", got)
	}
	cmd := <-w.invokes
	var kinds []string
	for _, p := range cmd.Messages[0].Parts {
		kinds = append(kinds, string(p.Type)+" "+p.Text+p.Name+p.MediaType)
	}
	if want := `text look: |text {"n":9007199254740993}|file hi.txttext/plain|image image/png|text hold`; strings.Join(kinds, "|") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(kinds, "|"), want)
	}
	task := got.Result.Task.ID
	if again := other.a2a("SendMessage", strings.TrimSuffix(a2aSays("m1", parts, `,"contextId":"ctx"`), "}")+`,"configuration":{"returnImmediately":true}}`); again.Result.Task == nil || again.Result.Task.ID != task {
		t.Errorf("the same message is %+v", again)
	}
	if p := e.a2a("SendMessage", a2aSays("m2", `[{"text":"x"}]`, `,"taskId":"`+task+`","contextId":"elsewhere"`)); p.Error == nil || p.Error.Code != -32602 {
		t.Errorf("another context: %+v", p)
	}
	for range 2 { // repeated, it is one
		if p := e.a2a("SendMessage", strings.TrimSuffix(a2aSays("m3", `[{"text":"and this"}]`, `,"taskId":"`+task+`"`), "}")+`,"configuration":{"returnImmediately":true}}`); p.Error != nil {
			t.Fatalf("%+v", p.Error)
		}
	}
	if cmd := <-w.invokes; cmd.Kind != event.Steer || cmd.Messages[0].MessageID != "m3" {
		t.Errorf("%+v", cmd)
	}
	done := e.a2a("CancelTask", `{"id":"`+task+`"}`)
	if done.Result.Status.State == "TASK_STATE_WORKING" || done.Error != nil && done.Error.Code != -32002 {
		t.Errorf("%+v", done)
	}
	if len(w.invokes) != 0 {
		t.Errorf("%d commands more", len(w.invokes))
	}
	now := e.a2a("GetTask", `{"id":"`+task+`","historyLength":1}`)
	if h := now.Result.History; len(h) != 1 || h[0].MessageID != "m3" {
		t.Errorf("history %+v", h)
	}
	if h := e.a2a("GetTask", `{"id":"`+task+`"}`).Result.History; len(h) != 2 || h[0].MessageID != "m1" {
		t.Errorf("history %+v", h)
	}
}

// A stream begins with the task, answers the call's id in each event, and ends
// with the task.
func TestA2AStream(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{})
	s.work()
	resp := e.do("POST", "/a2a", `{"jsonrpc":"2.0","id":"seven","method":"SendStreamingMessage","params":`+a2aSays("m1", `[{"text":"hi"}]`, "")+`}`)
	if kind := resp.Header.Get("Content-Type"); !strings.HasPrefix(kind, "text/event-stream") {
		t.Fatalf("%s", kind)
	}
	all := a2aEvents(t, resp)
	if len(all) == 0 || all[0].Result.Task == nil || all[0].Result.Task.ID == "" {
		t.Fatalf("%+v", all)
	}
	for _, r := range all {
		if r.ID != "seven" {
			t.Errorf("an event answers %v", r.ID)
		}
	}
	last := all[len(all)-1].Result
	if last.Task != nil && last.Task.Status.State != "TASK_STATE_COMPLETED" || last.Task == nil && (last.StatusUpdate == nil || last.StatusUpdate.Status.State != "TASK_STATE_COMPLETED") {
		t.Errorf("it ends with %+v", last)
	}
	got := e.a2a("GetTask", `{"id":"`+all[0].Result.Task.ID+`"}`)
	if a := got.Result.Artifacts; len(a) != 1 || a[0].Parts[0].Text != "you said: hi" {
		t.Errorf("%+v", a)
	}
}

func a2aEvents(t testing.TB, resp *http.Response) (all []a2aReply) {
	t.Helper()
	rd := bufio.NewReader(resp.Body)
	for {
		line, err := rd.ReadString('\n')
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			var r a2aReply
			if err := json.Unmarshal([]byte(data), &r); err != nil {
				t.Fatal(err)
			}
			all = append(all, r)
		}
	}
}

// Another tenant's tasks are not there.
func TestA2ATenants(t *testing.T) {
	s := newSite(t)
	a, b := s.key("a"), s.key("b")
	e := s.edge(edge.Options{})
	s.work()
	task := e.a2a("SendMessage", a2aSays("m1", `[{"text":"secret of a"}]`, `,"contextId":"ctx"`), "Authorization", a).Result.Task
	if task == nil || task.Status.State != "TASK_STATE_COMPLETED" {
		t.Fatalf("%+v", task)
	}
	for _, c := range [][2]string{{"GetTask", `{"id":"` + task.ID + `"}`}, {"CancelTask", `{"id":"` + task.ID + `"}`}, {"SubscribeToTask", `{"id":"` + task.ID + `"}`},
		{"SendMessage", a2aSays("m2", `[{"text":"x"}]`, `,"taskId":"`+task.ID+`"`)}} {
		if got := e.a2a(c[0], c[1], "Authorization", b); got.Error == nil || got.Error.Code != -32001 || strings.Contains(got.Error.Message, "secret") {
			t.Errorf("%s: %+v", c[0], got)
		}
	}
	if got := as[struct{ Result struct{ TotalSize int } }](t, wantStatus(t, e.do("POST", "/a2a/demo", call(1, "ListTasks", `{"contextId":"ctx"}`), "Authorization", b), 200)); got.Result.TotalSize != 0 {
		t.Errorf("b lists %+v", got)
	}
	// The same ids of b's are b's own.
	if mine := e.a2a("SendMessage", a2aSays("m1", `[{"text":"of b"}]`, `,"contextId":"ctx"`), "Authorization", b).Result.Task; mine == nil || mine.ID == task.ID || len(mine.History) != 1 {
		t.Errorf("%+v", mine)
	}
	wantStatus(t, e.do("POST", "/a2a/demo", call(1, "GetTask", `{"id":"x"}`)), 401)
}
