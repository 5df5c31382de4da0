package edge_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/edge"
	"github.com/runlog-dev/runlog/edge/dialect/scenarios"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// Whoever knows another tenant's ids learns nothing: its threads are empty ones.
func TestLangGraphHasTenantWalls(t *testing.T) {
	s := newSite(t)
	a, b := s.key("a"), s.key("b")
	e := s.edge(edge.Options{})
	s.work()
	wantStatus(t, e.do("POST", "/v1/runs?wait=30s", `{"input":"secret","session_id":"ses","run_id":"run"}`, "Authorization", a), 200)
	s.project("a", "ses")
	for _, c := range []struct {
		method, path, body string
		own, foreign       int
	}{
		{"GET", "/langgraph/threads/ses", "", 200, 200},
		{"GET", "/langgraph/threads/ses/state", "", 200, 200},
		{"POST", "/langgraph/threads/ses/history", "{}", 200, 200},
		{"POST", "/langgraph/threads/search", "{}", 200, 200},
		{"POST", "/langgraph/threads/search", `{"ids":["ses"]}`, 200, 200},
		{"GET", "/langgraph/threads/ses/stream", "", 200, 404},
		{"GET", "/langgraph/threads/ses/runs/run", "", 200, 404},
		{"GET", "/langgraph/threads/ses/runs/run/join", "", 200, 404},
		{"GET", "/langgraph/threads/ses/runs/run/stream", "", 200, 404},
		{"GET", "/langgraph/runs/run/stream", "", 200, 404},
		{"POST", "/langgraph/threads/ses/runs/run/cancel", "", 202, 404},
		{"GET", "/langgraph/threads/a%2Fb/state", "", 400, 400},
		{"POST", "/langgraph/threads/ses/runs", `{"assistant_id":"demo","command":{"resume":true}}`, 409, 409},
	} {
		for key, want := range map[string]int{a: c.own, b: c.foreign} {
			resp := e.do(c.method, c.path, c.body, "Authorization", key)
			if resp.StatusCode != want {
				t.Errorf("%s %s: %d, want %d", c.method, c.path, resp.StatusCode, want)
			}
			if want == 200 && c.path == "/langgraph/threads/ses/stream" {
				continue // it has no end
			}
			if got := string(wantStatus(t, resp, want)); key == b && strings.Contains(got, "secret") {
				t.Errorf("%s %s: another tenant reads %s", c.method, c.path, got)
			}
		}
		wantStatus(t, e.do(c.method, c.path, c.body), 401)
	}
}

// Threads are found by what they are searched for, the last one first.
func TestLangGraphFindsThreads(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{})
	s.work()
	for _, id := range []string{"one", "two", "three"} {
		wantStatus(t, e.do("POST", "/langgraph/threads/"+id+"/runs/wait", `{"assistant_id":"demo","input":{"messages":"hello `+id+`"}}`), 200)
		s.project("default", id)
	}
	wantStatus(t, e.do("POST", "/langgraph/threads/two/runs/wait", `{"assistant_id":"demo","input":{"messages":"again"}}`), 200)
	s.project("default", "two")
	for search, want := range map[string]string{
		`{}`:                                        "two three one",
		`{"limit":1}`:                               "two",
		`{"limit":1,"offset":1}`:                    "three",
		`{"status":"busy"}`:                         "",
		`{"status":"idle","offset":2}`:              "one",
		`{"metadata":{"graph_id":"demo"}}`:          "two three one",
		`{"metadata":{"assistant_id":"x"}}`:         "",
		`{"ids":["one","none"]}`:                    "one",
		`{"metadata":{"graph_id":"demo"},"ids":[]}`: "two three one",
	} {
		list := as[[]struct {
			ThreadID string `json:"thread_id"`
		}](t, wantStatus(t, e.do("POST", "/langgraph/threads/search", search), 200))
		var got []string
		for _, th := range list {
			got = append(got, th.ThreadID)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %q", search, got, want)
		}
	}
	for _, search := range []string{`{"metadata":{"user":"x"}}`, `{"values":{"a":1}}`} {
		wantStatus(t, e.do("POST", "/langgraph/threads/search", search), 400)
	}
}

// The same answer given twice at once, on two edges, is one run; another answer
// in that moment is refused.
func TestLangGraphAnswersOnce(t *testing.T) {
	s := newSite(t)
	one, other := s.edge(edge.Options{}), s.edge(edge.Options{})
	s.scribe("default", scenarios.SessionID).playUntilParked("approval")
	s.project("default", scenarios.SessionID)
	path := "/langgraph/threads/" + scenarios.SessionID + "/runs"
	resume := func(value string) string { return `{"assistant_id":"demo","command":{"resume":` + value + `}}` }
	ids := map[string]bool{}
	var mu sync.Mutex
	together(8, func(i int) {
		got := as[struct {
			RunID  string `json:"run_id"`
			Status string `json:"status"`
		}](t, wantStatus(t, []*edgeNode{one, other}[i%2].do("POST", path, resume(`"approve"`)), 200))
		mu.Lock()
		defer mu.Unlock()
		ids[got.RunID] = true
	})
	if len(ids) != 1 || ids[scenarios.RunID] {
		t.Errorf("%d runs: %v", len(ids), ids)
	}
	p := as[problem](t, wantStatus(t, one.do("POST", path, resume(`"reject"`)), http.StatusConflict))
	if !strings.Contains(p.Detail, "the first one counts") {
		t.Errorf("%+v", p)
	}
	for value, what := range map[string]string{
		`{"decisions":[]}`: "0 decisions for 2 calls", `{"decisions":[1,2]}`: "no decision", `"perhaps"`: "cannot be taken", `[{"type":"edit"},true]`: "cannot be taken",
	} {
		resp := one.do("POST", path, resume(value))
		if p := as[problem](t, wantStatus(t, resp, resp.StatusCode)); resp.StatusCode/100 != 4 || !strings.Contains(p.Detail, what) {
			t.Errorf("%s: %d %+v", value, resp.StatusCode, p)
		}
	}
}

// FuzzLangGraphInput: what strangers send is read or refused.
func FuzzLangGraphInput(f *testing.F) {
	for _, s := range []string{
		`{"input":{"messages":[{"type":"human","content":"x"}]}}`, `{"input":{"messages":[["human","x"],"y",{"lc":1,"id":["a","HumanMessage"],"kwargs":{"content":"z"}}]}}`,
		`{"input":"x","stream_mode":["values","updates"]}`, `{"input":{"messages":"x"}}`, `{"input":{"messages":{"role":"user","content":[]}}}`, `{"input":[],"command":{"resume":false}}`,
		`{"input":{"messages":[{"lc":1,"id":["a"],"kwargs":{"lc":1,"id":[],"kwargs":{}}}]}}`, `{"input":{"messages":[[],[1,2],null]}}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		roles, err := edge.ReadLangGraphInput([]byte(s))
		if err == nil && !json.Valid([]byte(s)) {
			t.Skip() // one value and more after it
		}
		for _, r := range roles {
			if r == "human" || r == "ai" {
				t.Errorf("%s: role %q", s, r)
			}
		}
	})
}

// A client that leaves as soon as it has read that its run waits for it has not left the
// run: on_disconnect says nothing of it.
func TestLangGraphClientsMayLeaveBehindTheEnd(t *testing.T) {
	s := newSite(t)
	e := s.serve(edge.Options{})
	s.work()
	until := event.At(time.Now().Add(time.Hour))
	left := map[eventlog.Key]string{}
	for i := range 200 {
		thread := fmt.Sprint("thread-", i)
		l := newListener(t, e.do("POST", "/langgraph/threads/"+thread+"/runs/stream",
			`{"assistant_id":"demo","input":{"messages":[{"type":"human","content":"hold"}]},"stream_mode":["updates"],"on_disconnect":"cancel"}`))
		runID := as[struct {
			RunID string `json:"run_id"`
		}](t, []byte(l.must().data)).RunID
		w := s.scribe("default", thread)
		waitFor(t, func() bool {
			fold, _, err := s.log.Load(t.Context(), w.k)
			return err == nil && fold.Run(runID) != nil && fold.Run(runID).Status == event.Running
		})
		w = s.scribe("default", thread)
		w.write(of(runID, event.BudgetExceeded, event.BudgetExceededData{Kind: "steps", Limit: 5, Used: 5}),
			of(runID, event.RunStatus, event.RunStatusData{Status: event.WaitingApproval, Previous: event.Running, Reason: "budget", ExpiresAt: &until}))
		for !strings.Contains(l.must().data, "__interrupt__") {
		}
		l.close()
		left[w.k] = runID
	}
	e.stop()
	<-e.ended
	for k, runID := range left {
		fold, _, err := s.log.Load(t.Context(), k)
		waiting, inboxErr := s.log.Inbox(t.Context(), k)
		if err != nil || inboxErr != nil || len(waiting) > 0 || fold.Run(runID).Status != event.WaitingApproval {
			t.Errorf("%s: %s, %d commands wait; %v %v", k, fold.Run(runID).Status, len(waiting), err, inboxErr)
		}
	}
}
