package edge_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/runlog-dev/runlog/edge"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// One key, twenty requests at once on two edges: one run, which all get.
func TestOneKeyIsOneRunOnTwoEdges(t *testing.T) {
	s := newSite(t)
	edges := []*edgeNode{s.edge(edge.Options{}), s.edge(edge.Options{})}
	w := s.work()
	for _, key := range []string{`"a quoted \"key\""`, "bare"} {
		got := make([]run, 20)
		together(20, func(i int) {
			resp, err := edges[i%2].try("POST", "/v1/runs", `{"input":"hello"}`, "Idempotency-Key", key)
			if err != nil {
				t.Error(err)
				return
			}
			got[i] = as[run](t, wantStatus(t, resp, 202))
			if loc := resp.Header.Get("Location"); loc != "/v1/runs/"+got[i].RunID {
				t.Errorf("Location %q", loc)
			}
		})
		for _, r := range got {
			if r.RunID == "" || r.RunID != got[0].RunID || r.SessionID != got[0].SessionID || r.TraceID != got[0].TraceID {
				t.Fatalf("%+v and %+v", r, got[0])
			}
		}
		p := as[problem](t, wantStatus(t, edges[1].do("POST", "/v1/runs", `{"input":"other"}`, "Idempotency-Key", key), 422))
		if p.Code != "idempotency_mismatch" {
			t.Errorf("%+v", p)
		}
		edges[0].listen("/v1/runs/" + got[0].RunID + "/events").rest()
		if n := len(w.invokes); n != 1 {
			t.Fatalf("%d runs", n)
		}
		<-w.invokes
	}
}

// A request that died between its steps is completed by its repetition.
func TestRepetitionCompletesAnAbandonedSubmission(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{})
	body := `{"input":"hello","run_id":"mine","session_id":"s"}`
	first := as[run](t, wantStatus(t, e.do("POST", "/v1/runs", body), 202))
	waiting, err := s.log.Inbox(t.Context(), eventlog.Key{Tenant: "default", Session: "s"})
	if err != nil || len(waiting) != 1 {
		t.Fatal(waiting, err)
	}
	if err := s.log.Answered(t.Context(), waiting[0].Pos); err != nil { // as if it had never come there
		t.Fatal(err)
	}
	again := as[run](t, wantStatus(t, e.do("POST", "/v1/runs", body), 202))
	if again.RunID != "mine" || again.TraceID != first.TraceID {
		t.Fatalf("%+v, %+v", first, again)
	}
}

func TestSubmissionStreamsItsRun(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{})
	s.work()
	for _, accept := range []string{"text/event-stream", "application/x-ndjson"} {
		resp := e.do("POST", "/v1/runs", `{"agent":"demo","input":"hello"}`, "Accept", accept, "Idempotency-Key", accept)
		for name, want := range map[string]string{"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no"} {
			if got := resp.Header.Get(name); got != want {
				t.Errorf("%s: %q", name, got)
			}
		}
		if kind := resp.Header.Get("Content-Type"); !strings.HasPrefix(kind, accept) {
			t.Errorf("Content-Type %q", kind)
		}
		all := newListener(t, resp).rest()
		if first, last := all[0].event, all[len(all)-1].event; first != "run.started" || last != "run.completed" {
			t.Errorf("%s: from %s to %s", accept, first, last)
		}
		// The answer was lost: the same request again gives the same events.
		again := newListener(t, e.do("POST", "/v1/runs", `{"agent":"demo","input":"hello"}`, "Accept", accept, "Idempotency-Key", accept)).rest()
		if !slices.Equal(all, again) {
			t.Errorf("%s: got %v, then %v", accept, all, again)
		}
	}
}

func TestWaitAnswersWithTheTranscript(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{})
	s.work()
	got := as[struct {
		run
		Text     string          `json:"text"`
		Messages []event.Message `json:"messages"`
	}](t, wantStatus(t, e.do("POST", "/v1/runs?wait=30s", `{"input":"hello"}`), 200))
	if got.Status != event.Completed || got.Text != "you said: hello" || len(got.Messages) != 2 {
		t.Errorf("%+v", got)
	}
	held := as[run](t, wantStatus(t, e.do("POST", "/v1/runs?wait=0.1", `{"input":"hold on"}`), 202))
	if held.Status.Terminal() {
		t.Errorf("%+v", held)
	}
}

func TestCancelTellsTheTruth(t *testing.T) {
	s := newSite(t)
	e, other := s.edge(edge.Options{}), s.edge(edge.Options{})
	pending := as[run](t, wantStatus(t, e.do("POST", "/v1/runs", `{"input":"hold"}`), 202)) // nobody works yet
	s.work()
	held := as[run](t, wantStatus(t, e.do("POST", "/v1/runs", `{"input":"hold"}`), 202))
	for _, r := range []run{pending, held} {
		got := as[struct {
			run
			By     string `json:"by"`
			Reason string `json:"reason"`
		}](t, wantStatus(t, other.do("POST", "/v1/runs/"+r.RunID+"/cancel", `{"reason":"enough","wait":true}`), 200))
		if got.Status != event.Cancelled || got.Reason != "enough" || got.By != "client" {
			t.Errorf("%+v", got)
		}
		again := as[run](t, wantStatus(t, e.do("POST", "/v1/runs/"+r.RunID+"/cancel", ``), 200))
		if again.Status != event.Cancelled || again.Seq != got.Seq {
			t.Errorf("cancel twice: %+v", again)
		}
	}
	done := as[run](t, wantStatus(t, e.do("POST", "/v1/runs?wait=30s", `{"input":"hi"}`), 200))
	if got := as[run](t, wantStatus(t, e.do("POST", "/v1/runs/"+done.RunID+"/cancel?wait=1", ``), 200)); got.Status != event.Completed {
		t.Errorf("cancel after the end: %+v", got)
	}
	wantStatus(t, e.do("POST", "/v1/runs/none/cancel", ``), 404)
}

// Closing the socket is not cancel.
func TestDisconnectIsNotCancel(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{})
	s.work()
	l := newListener(t, e.do("POST", "/v1/runs", `{"input":"hold","session_id":"s"}`, "Accept", "text/event-stream"))
	m := l.must()
	for m.event != "run.status" {
		m = l.must()
	}
	l.close()
	r := as[event.Event](t, []byte(m.data))
	s.scribe("default", "s").write(said(r.RunID, "still here"))
	if m := e.listen("/v1/runs/"+r.RunID+"/events", "Last-Event-ID", m.id).must(); !strings.Contains(m.data, "still here") {
		t.Errorf("%+v", m)
	}
	if st := as[run](t, e.get(200, "/v1/runs/"+r.RunID)); st.Status != event.Running {
		t.Errorf("%+v", st)
	}
}

func TestBadSubmissionsAreRefusedWithTheReason(t *testing.T) {
	s := newSite(t)
	s.announce("other")
	e := s.edge(edge.Options{})
	for body, want := range map[string]string{
		"{\n  \"input\": \"x\",\n  oops}": "400 bad_request line 3, column 3",
		`{"input":"x"`:                    "400 bad_request ends too early",
		`{"input":"x"} {}`:                "400 bad_request more follows",
		`[]`:                              "400 bad_request JSON array",
		`{"input":"x","colour":"red"}`:    `400 bad_request unknown field "colour"`,
		`{"input":"x","config":{"limits":{"stepz":1}}}`:                 `400 bad_request unknown field "stepz"`,
		`{"input":"x","config":{"limits":{"steps":-1}}}`:                "400 bad_request limits are from 0",
		`{"input":"x","agent":7}`:                                       "400 bad_request agent cannot be a JSON number",
		`{"input":"x","agent":"nobody"}`:                                `404 not_found known: demo, other`,
		`{"input":"x","session_id":"a/b"}`:                              "400 bad_request session_id holds",
		`{"input":"x","run_id":".."}`:                                   "400 bad_request run_id",
		`{"input":"x","trace_id":"a\u2028b"}`:                           "400 bad_request trace_id",
		`{"input":"x","session_id":"` + strings.Repeat("x", 129) + `"}`: "400 bad_request 129 bytes",
		`{"input":"x","queue":"fast"}`:                                  "400 bad_request fast",
		`{"input":"x","on_disconnect":"wait"}`:                          "400 bad_request on_disconnect",
		`{"input":"x","config":{"limits":{"cost_usd":-1}}}`:             "400 bad_request limits are from 0",
		`{"input":"x","config":{"client_tools":[{"name":"a b"}]}}`:      "400 bad_request a b",
		`{"input":"x","webhook":{"url":"http://x"}}`:                    "400 unsupported webhook",
		`{}`:                           "400 bad_request input is missing",
		`{"input":""}`:                 "400 bad_request empty",
		`{"input":7}`:                  "400 bad_request input",
		`{"input":[]}`:                 "400 bad_request input",
		`{"input":[{"type":"video"}]}`: `400 bad_request "video"`,
		`{"input":[{"type":"text","text":"x","size":1}]}`:              `400 bad_request input[0]: unknown field "size"`,
		`{"input":[{"type":"image","url":"ftp://x"}]}`:                 "400 bad_request neither http",
		`{"input":[{"type":"image","url":"data:image/png;base64,"}]}`:  "400 unsupported /v1/artifacts",
		`{"input":[{"role":"king","content":"x"}]}`:                    `400 bad_request "king"`,
		`{"input":[{"role":"user","content":"x","mood":"good"}]}`:      `400 bad_request "mood"`,
		`{"input":[{"role":"user","content":""}]}`:                     "400 bad_request is empty",
		`{"input":[{"role":"tool","content":"x"}]}`:                    "400 bad_request tool_call_id",
		`{"input":[{"role":"tool","tool_call_id":"c","content":"x"}]}`: `400 bad_request no earlier message`,
		`{"input":[{"role":"user","content":"x","id":"a b"}]}`:         "400 bad_request message id",
		`{"input":"` + strings.Repeat("x", 300<<10) + `"}`:             "413 payload_too_large 262144",
	} {
		resp := e.do("POST", "/v1/runs", body)
		raw, _ := io.ReadAll(resp.Body)
		p := as[problem](t, raw)
		if got := fmt.Sprintf("%d %s %s", p.Status, p.Code, p.Detail); p.Status != resp.StatusCode || !strings.HasPrefix(got, want[:4]) ||
			!strings.Contains(got, strings.SplitN(want, " ", 3)[1]) || !strings.Contains(p.Detail, strings.SplitN(want, " ", 3)[2]) {
			t.Errorf("%.80s\n got %s\nwant %s", body, got, want)
		}
		if kind := resp.Header.Get("Content-Type"); kind != "application/problem+json" {
			t.Errorf("Content-Type %q", kind)
		}
	}
	if p := as[problem](t, wantStatus(t, e.do("POST", "/v1/runs", `{"input":"x","agent":"nobody"}`), 404)); !slices.Equal(p.Known, []string{"demo", "other"}) {
		t.Errorf("%+v", p)
	}
}

func TestUnknownPathsAndMethodsAnswerInJSON(t *testing.T) {
	e := newSite(t).edge(edge.Options{})
	if p := as[problem](t, e.get(404, "/nothing/here")); p.Code != "not_found" {
		t.Errorf("%+v", p)
	}
	resp := e.do("DELETE", "/v1/runs", "")
	wantStatus(t, resp, http.StatusMethodNotAllowed)
	if allow := resp.Header.Get("Allow"); allow != "GET, HEAD, POST" {
		t.Errorf("Allow %q", allow)
	}
	for _, path := range []string{"/v1/sessions", "/v1/sessions/s/fork"} {
		if p := as[problem](t, wantStatus(t, e.do("POST", path, ""), 501)); p.Code != "unsupported" {
			t.Errorf("%s: %+v", path, p)
		}
	}
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, e.url+"//v1/runs", nil)
	moved, err := http.DefaultTransport.RoundTrip(req) // a client would follow
	if err != nil {
		t.Fatal(err)
	}
	defer moved.Body.Close()
	if p := as[problem](t, wantStatus(t, moved, http.StatusTemporaryRedirect)); p.Code != "not_found" || moved.Header.Get("Location") != "/v1/runs" {
		t.Errorf("%+v, Location %q", p, moved.Header.Get("Location"))
	}
	r := as[run](t, wantStatus(t, e.do("POST", "/v1/runs", `{"input":"x"}`), 202))
	p := as[problem](t, e.get(400, "/v1/runs/"+r.RunID+"/events?dialect=klingon"))
	if p.Code != "unknown_dialect" || !slices.Contains(p.Known, "native") || !slices.Contains(p.Known, "plain") {
		t.Errorf("%+v", p)
	}
	for path, want := range map[string]int{"?follow=maybe": 400, "?snapshot=2": 400, "?include=all": 400} {
		e.get(want, "/v1/runs/"+r.RunID+"/events"+path)
	}
	e.get(406, "/v1/runs/"+r.RunID+"/events", "Accept", "image/png")
}

// Messages that a client sends again are known; new ones are added, also where
// they say the same again.
func TestResentConversationIsKnown(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{})
	s.work()
	post := func(input string) {
		t.Helper()
		wantStatus(t, e.do("POST", "/v1/runs?wait=30s", `{"session_id":"s","input":`+input+`}`), 200)
	}
	post(`[{"role":"user","content":"one"}]`)
	post(`[{"role":"user","content":"one"},{"role":"assistant","content":"you said: one"},{"role":"user","content":"yes"}]`)
	post(`"yes"`)
	post(`"yes"`)
	conv := as[struct {
		Messages []struct{ Role, Content string } `json:"messages"`
	}](t, e.get(200, "/v1/sessions/s/messages?format=openai"))
	var got []string
	for _, m := range conv.Messages {
		if m.Role == "user" {
			got = append(got, m.Content)
		}
	}
	if want := []string{"one", "yes", "yes", "yes"}; !slices.Equal(got, want) {
		t.Errorf("the user said %q, want %q", got, want)
	}
}

// The record of a request that starts a run names it, whatever the protocol: nothing else says what a key has started.
func TestRecordsNameTheRunsThatAreStarted(t *testing.T) {
	e := newSite(t).serve(edge.Options{})
	for path, body := range map[string]string{
		"/v1/runs":                  `{"input":"x"}`,
		"/v1/responses":             `{"model":"demo","input":"x","background":true}`,
		"/langgraph/threads/t/runs": `{"assistant_id":"demo","input":{"messages":[{"role":"user","content":"x"}]}}`,
		"/rpc":                      `{"jsonrpc":"2.0","id":1,"method":"agent.invoke","params":{"agent":"demo","input":"x"}}`,
	} {
		go func() {
			if resp, err := e.try("POST", path, body, "Content-Type", "application/json"); err == nil {
				resp.Body.Close() // a stream is left
			}
		}()
		waitFor(t, func() bool { return len(e.records.of(path)) == 1 })
		if r := e.records.of(path)[0]; r["run"] == nil || r["session"] == nil || r["agent"] == nil && path == "/v1/runs" {
			t.Errorf("%s: %v", path, r)
		}
	}
}
