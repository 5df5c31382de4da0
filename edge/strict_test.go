package edge_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/runlog-dev/runlog/edge"
	"github.com/runlog-dev/runlog/event"
)

var deep = strings.Repeat("[", event.MaxDepth+1) + strings.Repeat("]", event.MaxDepth+1)

// What parsers read differently is not read at all.
func TestAmbiguousBodiesAreRefused(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{})
	s.scribe("default", "s").write(started("r"))
	s.index("r", "s")
	for body, want := range map[string]string{
		`{"input":"a","input":"b"}`:                               `column 20: the member "input" is there twice`,
		`{"input":"a","Input":"b"}`:                               `the member "Input" is there twice`,
		"{\"input\":\"a\",\n \"\\u0069nput\":\"b\"}":              `line 2, column 13: the member "input"`,
		`{"input":[{"type":"text","text":"a","text":"b"}]}`:       `the member "text" is there twice`,
		`{"input":"a","config":{"limits":{"steps":1,"steps":2}}}`: `the member "steps" is there twice`,
		"{\"input\":\"\xff\"}":                                    `line 1, column 11: the byte 0xff is not UTF-8`,
		"{\"input\":\"é\n\xc3\"}":                                 `line 2, column 1: the byte 0xc3`,
		"{\"input\":\"\xed\xa0\x80\"}":                            `0xed is not UTF-8`, // half of a surrogate pair
	} {
		p := as[problem](t, wantStatus(t, e.do("POST", "/v1/runs", body), 400))
		if p.Code != "bad_request" || !strings.Contains(p.Detail, want) {
			t.Errorf("%q: %+v, want %q", body, p, want)
		}
	}
	for _, body := range []string{
		`{"input":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`, // twice, but of two objects
		`{"input":"a","config":{"metadata":{"a":{"x":1},"A":{"x":1}}}}`,     // two names
		`{"input":"�"}`,
	} {
		if resp := e.do("POST", "/v1/runs", body); resp.StatusCode != 202 && !strings.Contains(string(wantStatus(t, resp, 400)), "unknown field") {
			t.Errorf("%s: %d", body, resp.StatusCode)
		}
	}
	for path, body := range map[string]string{
		"/v1/runs/r/cancel": `{"reason":"a","reason":"b"}`, "/v1/runs/r/steer": `{"input":"a","input":"b"}`, "/v1/tokens": `{"run_id":"r","run_id":"q"}`,
	} {
		wantStatus(t, e.do("POST", path, body), 400)
	}
	for body, code := range map[string]string{
		`{"jsonrpc":"2.0","id":1,"method":"agent.cancel","method":"agent.invoke","params":{}}`:  `-32600`,
		`{"jsonrpc":"2.0","id":1,"method":"agent.cancel","params":{"run_id":"r","run_id":"q"}}`: `-32600`,
		"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xff\"}":                                    `-32700`,
		"{\"jsonrpc\":\"2.0\",\n\"id\":\"\xff\"}":                                               `line 2, column 7: the byte 0xff`,
		`{"jsonrpc":"2.0","id":` + deep + `}`:                                                   `nests more than 512`,
		`{"jsonrpc":"2.0",`:                                                                     `unexpected end`,
	} {
		if got := string(wantStatus(t, e.do("POST", "/rpc", body), 200)); !strings.Contains(got, code) {
			t.Errorf("%q: %s, want %s", body, got, code)
		}
	}
	for path, body := range map[string]string{
		"/mcp":            `{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/list"}`,
		"/agui/demo":      `{"threadId":"t","messages":[{"id":"1","role":"user","content":"a","content":"b"}]}`,
		"/langgraph/runs": `{"assistant_id":"demo","input":{"messages":[]},"input":{}}`,
		"/v1/messages":    `{"model":"demo","model":"other","max_tokens":9,"messages":[{"role":"user","content":"a"}]}`,
	} {
		if got := string(wantStatus(t, e.do("POST", path, body), 400)); !strings.Contains(got, "is there twice") {
			t.Errorf("%s: %s", path, got)
		}
	}
	for _, path := range []string{"/mcp", "/a2a"} {
		resp := e.do("POST", path, `{"jsonrpc":"2.0","id":`+deep+`}`)
		if got := string(wantStatus(t, resp, resp.StatusCode)); !strings.Contains(got, "-32700") || !strings.Contains(got, "nests more than 512") {
			t.Errorf("%s: %s", path, got)
		}
	}
	for body, status := range map[string]int{
		`{"model":"demo","input":"a","stream":false,"background":true}`: 200,
		"{\"model\":\"demo\",\"input\":\"\xff\"}":                       400,
	} {
		wantStatus(t, e.do("POST", "/v1/responses", body), status)
	}
}

// What nests deeper than the log takes is refused, as JSON and as text that
// becomes JSON for a model.
// A body that is not what its route takes is refused as such, and not kept as something else.
func TestBodiesOfAnotherFormAreRefused(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{})
	for _, path := range []string{"/v1/runs", "/chat", "/v1/tokens", "/rpc", "/v1/artifacts", "/mcp", "/a2a", "/agui/demo", "/langgraph/runs", "/v1/messages", "/v1/responses", "/v1/chat/completions"} {
		resp := e.do("POST", path, "\x1f\x8b\x08", "Content-Encoding", "gzip", "Content-Type", "application/json")
		body := string(wantStatus(t, resp, resp.StatusCode))
		if !strings.Contains(body, "Content-Encoding: gzip") || resp.Header.Get("Accept-Encoding") != "identity" || resp.StatusCode != 415 && path != "/rpc" {
			t.Errorf("%s: %s %v %s", path, resp.Status, resp.Header, body)
		}
	}
	wantStatus(t, e.do("POST", "/v1/runs", `{"input":"a"}`, "Content-Encoding", "identity"), 202)
	form := "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n\r\nhello\r\n--b--\r\n"
	p := as[problem](t, wantStatus(t, e.do("POST", "/v1/artifacts", form, "Content-Type", "multipart/form-data; boundary=b"), 415))
	if !strings.Contains(p.Detail, "--data-binary") {
		t.Errorf("%+v", p)
	}
}

func TestDeepJSONIsRefused(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{})
	within := strings.Repeat("[", event.MaxDepth) + strings.Repeat("]", event.MaxDepth)
	s.scribe("default", "s").write(event.New(event.SessionCreated, event.SessionCreatedData{Agent: "demo"}), started("r"),
		of("r", event.ToolStarted, event.ToolStartedData{CallID: "c", Name: "t", MessageID: "m", Executor: event.ByClient}))
	s.index("r", "s")
	for path, body := range map[string]string{
		"/v1/runs/r/tools/c": `{"content":"a","structured":` + within + `}`,
		"/v1/runs":           `{"input":"a","config":` + within + `}`,
		"/agui/demo":         `{"threadId":"t","runId":"q","messages":[],"state":` + within + `}`,
	} {
		if p := string(wantStatus(t, e.do("POST", path, body), 400)); !strings.Contains(p, "nests more than 512") {
			t.Errorf("%s: %s", path, p)
		}
	}
	past := func(args string) string {
		return `{"input":[{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"` + args +
			`"}}]},{"role":"tool","tool_call_id":"c1","content":"x"},{"role":"user","content":"hi"}]}`
	}
	if p := string(wantStatus(t, e.do("POST", "/v1/runs", past(deep)), 400)); !strings.Contains(p, "nests more than 512") {
		t.Error(p)
	}
	wantStatus(t, e.do("POST", "/v1/runs", past(within)), 202)
}

func TestAmbiguousMessagesAreRefused(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{})
	s.scribe("default", "s").write(started("r"))
	s.index("r", "s")
	c := e.dial("/v1/runs/r/events?after=0", websocket.DialOptions{})
	c.say(`{"id":"1","do":"cancel","do":"stop"}`)
	c.say("{\"id\":\"2\",\"do\":\"cancel\",\"body\":{\"reason\":\"\xff\"}}")
	c.say(`{"id":"3","do":"cancel","body":{"reason":"a","reason":"b"}}`)
	for range 3 {
		if m := c.until(func(m socketMessage) bool { return m.Status != 0 }); m.Status != 400 {
			t.Errorf("%+v", m)
		}
	}
	late := e.dial("/v1/runs/r/events", websocket.DialOptions{})
	late.say(`{"after":"0","after":"1"}`)
	if code := late.closed(); code != 4400 {
		t.Errorf("closed with %d", code)
	}
}

// A slip in the query is told, not taken for the default; other protocols' clients
// may add to theirs.
func TestUnknownParametersAreRefused(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{})
	s.scribe("default", "s").write(started("r"), completed("r"))
	s.index("r", "s")
	for query, want := range map[string]string{
		"afer=1":               `there is no parameter "afer" here; known: access_token, after, catchup, dialect, follow, include,`,
		"After=1":              `there is no parameter "After"`,
		"after=1&after=2":      "after is there 2 times",
		"after=1;follow=false": "the query cannot be read",
		"after=%zz":            "the query cannot be read",
	} {
		for _, path := range []string{"/v1/runs/r/events?", "/v1/sessions/s/events?"} {
			if p := as[problem](t, e.get(400, path+query)); !strings.Contains(p.Detail, want) {
				t.Errorf("%s: %+v", query, p)
			}
		}
		c := e.dial("/v1/runs/r/events?"+query, websocket.DialOptions{})
		if code := c.closed(); code != 4400 {
			t.Errorf("WebSocket %s: closed with %d", query, code)
		}
	}
	e.get(400, "/v1/runs?stauts=failed", "Upgrade", "websocket") // which is not spoken there
	p := as[problem](t, e.get(400, "/v1/runs?stauts=failed"))
	if p.Param != "stauts" || !slices.Contains(p.Known, "status") {
		t.Errorf("%+v", p)
	}
	if p := as[problem](t, e.get(400, "/v1/agents?x=1")); p.Known != nil || strings.Contains(p.Detail, "known:") {
		t.Errorf("%+v", p)
	}
	e.get(200, "/v1/stream?session=s&follow=false")
	wantStatus(t, e.do("POST", "/v1/runs?wait=0.1&wiat=1", `{"input":"x"}`), 400)
	wantStatus(t, e.do("POST", "/v1/responses?api-version=1", `{"model":"demo","input":"a","background":true}`), 200)
}

// Polyfills of EventSource send no header but add to the URL that they began with.
func TestEventSourcePolyfillsResume(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{})
	s.scribe("default", "s").write(started("r"), said("r", "a"), completed("r"))
	s.index("r", "s")
	for _, query := range []string{"after=0&lastEventId=2", "snapshot=1&lastEventId=2", "lastEventId=2"} {
		got := seqs(t, e.listen("/v1/runs/r/events?"+query).rest())
		if !slices.Equal(got, []event.Seq{3}) {
			t.Errorf("%s: %v", query, got)
		}
	}
	all := e.listen("/v1/stream?follow=false&session=s").rest()
	rest := e.listen("/v1/stream?follow=false&session=s&after=0&lastEventId=" + all[1].id).rest()
	if !slices.Equal(rest, all[2:]) {
		t.Errorf("%v, want %v", rest, all[2:])
	}
}
