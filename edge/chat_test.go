package edge_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/runlog-dev/runlog/edge"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

func TestChatAnswersWithTheWholeConversation(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{})
	w := s.work()
	type answer struct {
		run
		Messages []struct {
			Role       string `json:"role"`
			Content    any    `json:"content"`
			ToolCallID string `json:"tool_call_id"`
			ToolCalls  []struct {
				ID       string `json:"id"`
				Function struct{ Name, Arguments string }
			} `json:"tool_calls"`
		} `json:"messages"`
	}
	got := as[answer](t, wantStatus(t, e.do("POST", "/chat", `{"user_input":"hello"}`), 200))
	if got.Status != event.Completed || len(got.Messages) != 2 || got.Messages[1].Content != "you said: hello" || got.Messages[1].Role != "assistant" {
		t.Errorf("%+v", got)
	}
	blocks := as[answer](t, wantStatus(t, e.do("POST", "/chat?format=anthropic", `{"user_input":"hello"}`), 200))
	if fmt.Sprint(blocks.Messages[1].Content) != "[map[text:you said: hello type:text]]" {
		t.Errorf("%+v", blocks)
	}
	<-w.invokes
	<-w.invokes
	// History in either form says the same to the worker.
	for _, history := range []string{
		`[{"role":"system","content":"be brief"},{"role":"user","content":"weather?"},{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"weather","arguments":"{\"n\":9007199254740993}"}}]},{"role":"tool","tool_call_id":"c1","content":"sunny"},{"role":"assistant","content":"Sunny.","refusal":null},{"role":"user","content":"thanks"}]`,
		`[{"role":"system","content":"be brief"},{"role":"user","content":"weather?"},{"role":"assistant","content":[{"type":"tool_use","id":"c1","name":"weather","input":{"n":9007199254740993}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"sunny"}]},{"role":"assistant","content":[{"type":"text","text":"Sunny."}]},{"role":"user","content":[{"type":"text","text":"thanks"}]}]`,
	} {
		wantStatus(t, e.do("POST", "/chat", `{"messages":`+history+`}`), 200)
		cmd := <-w.invokes
		var said []string
		for _, m := range cmd.Messages {
			said = append(said, string(m.Role)+":"+text(m.Parts))
			for _, c := range m.Calls {
				said = append(said, c.CallID+" "+c.Name+" "+c.Args+" "+text(c.Content))
			}
		}
		want := []string{"system:be brief", "user:weather?", "assistant:", `c1 weather {"n":9007199254740993} sunny`, "assistant:Sunny.", "user:thanks"}
		if !slices.Equal(said, want) {
			t.Errorf("got  %q\nwant %q", said, want)
		}
	}
	for body, param := range map[string]string{
		`{}`: "messages", `{"messages":[],"user_input":""}`: "messages", `{"messages":"x"}`: "messages", `{"messages":[{"type":"text","text":"x"}]}`: "messages",
		`{"messages":[{"role":"user","content":"x"}],"user_input":"y"}`: "user_input", `{"user_input":"x","temperature":1}`: "temperature",
	} {
		if p := as[problem](t, wantStatus(t, e.do("POST", "/chat", body), 400)); p.Param != param {
			t.Errorf("%s: %+v", body, p)
		}
	}
}

func text(parts []event.Part) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.Text)
	}
	return b.String()
}

// The golden run in the plain dialect, whole and resumed after every message.
func TestChatStreamsPlainEvents(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{})
	w := s.scribe("default", goldenSession)
	want := []string{
		"3 message_start", "12 text_delta", "13 text_delta", "17 tool_use", "19 tool_use", "27 tool_result", "32 tool_result",
		"36 text_delta", "37 text_reset", "39 text_delta", "42 message_stop",
	}
	names := func(list []message) (got []string) {
		for _, m := range list {
			if m.event != "position" {
				got = append(got, m.id+" "+m.event)
			}
		}
		return got
	}
	done := make(chan struct{})
	resp := e.do("POST", "/chat", `{"user_input":"Weather?","session_id":"`+goldenSession+`","run_id":"run_01k9example","stream":true}`)
	go func() { defer close(done); w.golden() }()
	live := newListener(t, resp).rest()
	<-done
	if got := names(live); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if !strings.Contains(live[3].data, `"input":{"city":"北京","id":9007199254740993}`) {
		t.Errorf("arguments were touched: %s", live[3].data)
	}
	for i, m := range live[:len(live)-1] {
		rest := e.listen("/v1/runs/run_01k9example/events?dialect=plain", "Last-Event-ID", m.id).rest()
		if got := names(rest); !slices.Equal(got, want[i+1:]) {
			t.Errorf("after %s: %q", m.id, got)
		}
	}
}

func TestTraceListsEveryRunAndEvent(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{})
	// Two runs in one session, with another trace's run between them, a sub-agent inside, and one run in another session.
	in := func(runID, trace string, ev event.Event) event.Event {
		ev.RunID, ev.TraceID = runID, trace
		return ev
	}
	child := of("child", event.RunStarted, event.RunStartedData{Agent: "demo", ParentRunID: "one"})
	w := s.scribe("default", "s1")
	w.write(in("one", "T", started("one")), in("one", "T", said("one", "a")), in("child", "T", child), in("child", "T", completed("child")), in("one", "T", completed("one")))
	s.scribe("default", "s2").write(in("two", "T", started("two")), hiddenEvent(), in("two", "T", completed("two")))
	w.write(in("x", "other", started("x")), in("x", "other", completed("x")), in("three", "T", started("three")))
	for range 1200 {
		if _, err := w.w.Append(in("three", "T", said("three", "word"))); err != nil {
			t.Fatal(err)
		}
	}
	w.write(in("three", "T", completed("three")))
	s.project("default", "s1")
	s.project("default", "s2")

	tr := as[struct {
		TraceID string `json:"trace_id"`
		Runs    []run  `json:"runs"`
	}](t, e.get(200, "/v1/traces/T"))
	var ids []string
	for _, r := range tr.Runs {
		ids = append(ids, r.RunID)
	}
	if want := []string{"one", "child", "two", "three"}; !slices.Equal(ids, want) || tr.TraceID != "T" {
		t.Errorf("runs %q, want %q", ids, want)
	}
	var got []string
	pages := 0
	for cursor := ""; ; pages++ {
		resp := e.do("GET", "/v1/traces/T/events?cursor="+cursor, "")
		for line := range strings.Lines(string(wantStatus(t, resp, 200))) {
			ev := as[event.Event](t, []byte(line))
			if n := len(got); ev.Type != event.TextDelta || n == 0 || !strings.HasSuffix(got[n-1], "delta three") {
				got = append(got, fmt.Sprint(ev.Type, " ", ev.RunID))
			}
		}
		if cursor = resp.Header.Get("Runlog-Next-Cursor"); cursor == "" {
			break
		}
	}
	want := []string{"run.started one", "text.delta one", "run.started child", "run.completed child", "run.completed one",
		"run.started two", "run.completed two", "run.started three", "text.delta three", "run.completed three"}
	if !slices.Equal(got, want) || pages < 2 {
		t.Errorf("%d pages: got %q\nwant %q", pages, got, want)
	}
	e.get(404, "/v1/traces/none")
	e.get(404, "/v1/traces/none/events")
	e.get(400, "/v1/traces/T/events?cursor=zzz")
}

func TestArtifactsWithRanges(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{MaxUpload: 1000})
	info := as[struct {
		ID    string `json:"artifact_id"`
		URL   string `json:"url"`
		Bytes int64  `json:"bytes"`
		Name  string `json:"name"`
	}](t, wantStatus(t, e.do("POST", "/v1/artifacts?name=%E5%8C%97%E4%BA%AC.txt", "0123456789", "Content-Type", "text/plain"), 201))
	if info.Bytes != 10 || info.Name != "北京.txt" || string(e.get(200, info.URL)) != "0123456789" {
		t.Errorf("%+v", info)
	}
	for rng, want := range map[string]string{"bytes=2-4": "206 234", "bytes=-3": "206 789", "bytes=8-": "206 89", "bytes=20-": "416 {", "bytes=x": "200 0123456789"} {
		resp := e.do("GET", info.URL, "", "Range", rng)
		body := wantStatus(t, resp, resp.StatusCode)
		if got := fmt.Sprintf("%d %s", resp.StatusCode, body); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", rng, got, want)
		}
		if resp.StatusCode == 416 && (as[problem](t, body).Status != 416 || resp.Header.Get("Content-Type") != "application/problem+json" ||
			resp.Header.Get("Content-Range") != "bytes */10" || strings.Contains(resp.Header.Get("Cache-Control"), "immutable")) {
			t.Errorf("%s: %v %s", rng, resp.Header, body)
		}
	}
	resp := e.do("HEAD", info.URL, "")
	if vary := strings.Join(resp.Header.Values("Vary"), ", "); !strings.Contains(vary, "Authorization, X-Api-Key") {
		t.Errorf("whoever uses the same browser gets it without a key: Vary: %s", vary)
	}
	if resp.StatusCode != 200 || resp.ContentLength != 10 || resp.Header.Get("ETag") == "" || resp.Header.Get("Accept-Ranges") != "bytes" {
		t.Errorf("HEAD: %d %v", resp.StatusCode, resp.Header)
	}
	wantStatus(t, e.do("POST", "/v1/artifacts", strings.Repeat("x", 1001)), 413)
	wantStatus(t, e.do("POST", "/v1/artifacts", "x", "Content-Type", "nonsense"), 400)
	e.get(404, "/artifacts/..%2f..%2fetc")
}

// While the event log is away new requests are told to come back, and open
// streams stay and catch up.
func TestEventLogAway(t *testing.T) {
	s := newSite(t)
	w := s.scribe("default", "s")
	w.write(started("r"))
	nc, err := s.nats.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	l, err := eventlog.Open(t.Context(), nc, eventlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e := s.edgeOn(l, edge.Options{})
	v := e.listen("/v1/sessions/s/events")
	v.must()
	if err := nc.ForceReconnect(); err != nil { // away for a moment
		t.Fatal(err)
	}
	w.write(said("r", "meanwhile"))
	if m := v.must(); m.id != "2" {
		t.Errorf("%+v", m)
	}
	nc.Close() // and for good
	for _, c := range []string{"GET /v1/runs/r", "GET /v1/sessions/s/snapshot", "GET /v1/sessions/t/events", "POST /v1/runs", "POST /v1/runs/r/cancel", "GET /readyz", "GET /v1/agents"} {
		method, path, _ := strings.Cut(c, " ")
		body := ""
		if path == "/v1/runs" {
			body = `{"input":"x"}`
		}
		resp := e.do(method, path, body)
		p := as[problem](t, wantStatus(t, resp, 503))
		if p.Code != "unavailable" || resp.Header.Get("Retry-After") == "" || strings.Contains(p.Detail, "nats") {
			t.Errorf("%s: %+v %v", c, p, resp.Header)
		}
	}
	e.get(200, "/healthz")
}
