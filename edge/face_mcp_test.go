package edge_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/runlog-dev/runlog/edge"
	"github.com/runlog-dev/runlog/edge/dialect/scenarios"
	"github.com/runlog-dev/runlog/event"
)

type mcpAnswer struct {
	Result struct {
		Content []struct{ Text string }
		IsError bool
		Outcome struct {
			RunID     string `json:"run_id"`
			SessionID string `json:"session_id"`
			Status    event.Status
			Text      string
		} `json:"structuredContent"`
	}
	Error *struct {
		Code    int
		Message string
	}
}

func mcpCall(id int, input string, meta string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"demo","arguments":{"input":%q}%s}}`, id, input, meta)
}

// inJSON asks for an answer without a stream.
func (e *edgeNode) inJSON(t *testing.T, body string, header ...string) mcpAnswer {
	t.Helper()
	return as[mcpAnswer](t, wantStatus(t, e.do("POST", "/mcp", body, append(header, "Accept", "application/json")...), 200))
}

// A request that comes again, on whichever edge, is one run, and so is one with
// the same key in another session; the same id in another session is not.
func TestMCPCallsAreIdempotent(t *testing.T) {
	s := newSite(t)
	one, other := s.edge(edge.Options{}), s.edge(edge.Options{})
	w := s.work()
	runs := map[string]bool{}
	var mu sync.Mutex
	add := func(a mcpAnswer) {
		mu.Lock()
		defer mu.Unlock()
		if a.Result.Outcome.Status != event.Completed {
			t.Errorf("%+v", a)
		}
		runs[a.Result.Outcome.RunID] = true
	}
	together(8, func(i int) {
		add([]*edgeNode{one, other}[i%2].inJSON(t, mcpCall(1, "hello", ""), "Mcp-Session-Id", "mcp_1"))
	})
	if len(runs) != 1 || len(w.invokes) != 1 {
		t.Errorf("%d runs, %d invokes", len(runs), len(w.invokes))
	}
	add(one.inJSON(t, mcpCall(1, "hello", ""), "Mcp-Session-Id", "mcp_2"))
	add(one.inJSON(t, mcpCall(2, "hello", ""), "Mcp-Session-Id", "mcp_2"))
	add(one.inJSON(t, mcpCall(1, "hello", "")))
	add(one.inJSON(t, mcpCall(1, "hello", "")))
	if len(runs) != 5 {
		t.Errorf("%d runs, want 5: without a session every request is a call of its own", len(runs))
	}
	key := `,"_meta":{"dev.runlog/idempotency_key":"k"}`
	for i, session := range []string{"mcp_3", "mcp_4", ""} {
		add([]*edgeNode{one, other}[i%2].inJSON(t, mcpCall(i, "keyed", key), "Mcp-Session-Id", session))
	}
	if len(runs) != 6 {
		t.Errorf("%d runs, want 6: a key is one run", len(runs))
	}
	if a := one.inJSON(t, mcpCall(9, "something else", key)); !a.Result.IsError || !strings.Contains(a.Result.Content[0].Text, "idempotency_mismatch") {
		t.Errorf("%+v", a)
	}
}

// notifications/cancelled cancels the run of that request of that session, by
// whatever name it was called, with the reason; nobody else's.
func TestMCPCancelsWhatWasCalled(t *testing.T) {
	s := newSite(t)
	one, other := s.edge(edge.Options{}), s.edge(edge.Options{})
	s.work()
	cancel := func(session string, id int) {
		t.Helper()
		body := fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d,"reason":"not any more"}}`, id)
		wantStatus(t, other.do("POST", "/mcp", body, "Mcp-Session-Id", session), http.StatusAccepted)
	}
	key := `,"_meta":{"dev.runlog/idempotency_key":"k"}`
	for i, how := range []struct{ first, second, cancels string }{{"mcp_a", "", "mcp_a"}, {"mcp_b", "mcp_c", "mcp_c"}} {
		meta := ""
		if how.second != "" {
			meta = key
		}
		call := one.do("POST", "/mcp", mcpCall(7, "hold", meta), "Mcp-Session-Id", how.first)
		if how.second != "" {
			_ = one.do("POST", "/mcp", mcpCall(7, "hold", meta), "Mcp-Session-Id", how.second)
		}
		cancel("mcp_else", 7)
		cancel(how.cancels, 8)
		if run := call.Header.Get("Runlog-Run-Id"); statusOf(t, one, run) == event.Cancelled {
			t.Errorf("%d: cancelled by somebody else", i)
		}
		cancel(how.cancels, 7)
		body := string(wantStatus(t, call, 200))
		if !strings.Contains(body, `"isError":true`) || !strings.Contains(body, "not any more") {
			t.Errorf("%d: %s", i, body)
		}
	}
	cancel("mcp_a", 7) // it is over
}

func statusOf(t *testing.T, e *edgeNode, run string) event.Status {
	t.Helper()
	return as[struct{ Status event.Status }](t, e.get(200, "/v1/runs/"+run)).Status
}

var eventID = regexp.MustCompile(`(?m)^id: (\S+)$`)

// Whoever knows another tenant's ids learns nothing and cancels nothing.
func TestMCPHasTenantWalls(t *testing.T) {
	s := newSite(t)
	a, b := s.key("a"), s.key("b")
	e := s.edge(edge.Options{})
	s.work()
	call := e.do("POST", "/mcp", mcpCall(1, "secret", ""), "Authorization", a, "Mcp-Session-Id", "mcp_1", "Mcp-Protocol-Version", "2025-11-25")
	id := eventID.FindStringSubmatch(string(wantStatus(t, call, 200)))[1]
	run := call.Header.Get("Runlog-Run-Id")
	resume := func(key string) *http.Response {
		return e.do("GET", "/mcp", "", "Authorization", key, "Last-Event-ID", id, "Accept", "text/event-stream")
	}
	if got := string(wantStatus(t, resume(a), 200)); !strings.Contains(got, "you said: secret") {
		t.Errorf("%s", got)
	}
	wantStatus(t, resume(b), 404)
	follow := fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"follow_run","arguments":{"run_id":%q}}}`, run)
	if got := e.inJSON(t, follow, "Authorization", b); !got.Result.IsError || strings.Contains(fmt.Sprint(got), "secret") {
		t.Errorf("%+v", got)
	}
	if got := e.inJSON(t, follow, "Authorization", a); got.Result.Outcome.Text != "you said: secret" {
		t.Errorf("%+v", got)
	}
	for _, body := range []string{`{"jsonrpc":"2.0","id":"` + run + `/call_1","result":{"action":"accept"}}`} {
		wantStatus(t, e.do("POST", "/mcp", body, "Authorization", b), 404)
	}
	same := e.inJSON(t, mcpCall(1, "of b", ""), "Authorization", b, "Mcp-Session-Id", "mcp_1")
	if same.Result.Outcome.Text != "you said: of b" {
		t.Errorf("%+v", same)
	}
	wantStatus(t, e.do("POST", "/mcp", mcpCall(1, "x", "")), 401)
	wantStatus(t, resume("Bearer rl_guess"), 401)
}

// An answer is taken by any edge, once; what comes late is no error.
func TestMCPAnswersDecide(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{})
	w := s.scribe("default", scenarios.SessionID)
	w.playUntilParked("approval")
	s.project("default", scenarios.SessionID)
	for _, answer := range []string{`"result":{"action":"accept","content":{"approve":false,"reason":"no"}}`, `"result":{"action":"accept"}`, `"error":{"code":-1,"message":"no window"}`, `"result":7`} {
		body := `{"jsonrpc":"2.0","id":"run_1/call_1",` + answer + `}`
		wantStatus(t, e.do("POST", "/mcp", body), http.StatusAccepted)
	}
	waiting, err := s.log.Inbox(t.Context(), w.k)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range waiting {
		got = append(got, string(c.Kind)+" "+c.CallID+" "+c.Reason)
	}
	// The same decision is the same command; the first one taken counts.
	if want := "deny call_1 no|approve call_1 "; strings.Join(got, "|") != want {
		t.Errorf("%q, want %q", got, want)
	}
	wantStatus(t, e.do("POST", "/mcp", `{"jsonrpc":"2.0","id":"run_1/none","result":{}}`), 404)
}

// FuzzMCPKey: an id of an event is read as it was written, or refused.
func FuzzMCPKey(f *testing.F) {
	for _, s := range []string{`{"r":"run_1","i":7}`, `{"r":"run_1","i":"a","t":1,"a":true,"f":9,"s":8}`, `{}`, `[]`, `{"i":{}}`, `{"i":null}`} {
		f.Add(base64.RawURLEncoding.EncodeToString([]byte(s)) + ":41.0")
	}
	f.Add("x:0")
	f.Fuzz(func(t *testing.T, s string) {
		id, at, err := edge.ReadMCPKey(s)
		if err != nil {
			return
		}
		if !json.Valid([]byte(id)) {
			t.Errorf("%q: the call's id is %q", s, id)
		}
		if _, again, err := edge.ReadMCPKey(strings.Split(s, ":")[0] + ":" + at); err != nil || again != at {
			t.Errorf("%q: %v %q %q", s, err, again, at)
		}
	})
}
