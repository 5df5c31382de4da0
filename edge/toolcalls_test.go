package edge_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/edge"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// settling writes a session with a run that waits for an approval and for its
// client, and one that failed.
func (s *site) settling() {
	s.t.Helper()
	w := s.scribe("default", "ses_settle")
	call := func(id string, executor event.Executor) event.Event {
		return of("run_w", event.ToolStarted, event.ToolStartedData{CallID: id, Name: "t", MessageID: "m", Executor: executor})
	}
	w.write(event.New(event.SessionCreated, event.SessionCreatedData{Agent: "demo"}),
		started("run_f"), of("run_f", event.RunFailed, event.RunFailedData{Code: event.CodeModelError, Message: "x"}),
		started("run_w"), call("ask", event.ByWorker), call("asked", event.ByWorker), call("mine", event.ByClient), call("given", event.ByClient))
	for _, id := range []string{"ask", "asked"} {
		w.write(of("run_w", event.ApprovalRequested, event.ApprovalRequestedData{CallID: id, ArgsSHA256: event.ArgsHash("")}))
	}
	w.write(of("run_w", event.ApprovalResolved, event.ApprovalResolvedData{CallID: "asked", Decision: event.Approved, By: "boss"}),
		of("run_w", event.ToolCompleted, event.ToolCompletedData{CallID: "given", Name: "t", Content: []event.Part{event.TextPart("a")}}),
		of("run_w", event.RunStatus, event.RunStatusData{Status: event.WaitingApproval, Previous: event.Running}))
	s.project("default", "ses_settle")
	for _, id := range []string{"run_f", "run_w"} {
		if err := s.log.Bury(s.t.Context(), "default", eventlog.DeadLetter{RunID: id, SessionID: "ses_settle", Agent: "demo", Reason: "x", Claims: 4}); err != nil {
			s.t.Fatal(err)
		}
	}
}

// TestSettlingIsDecidedByTheLog: what is settled already answers at once, and
// what contradicts it is a conflict.
func TestSettlingIsDecidedByTheLog(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{})
	s.settling()
	for _, c := range []struct {
		url, body string
		status    int
	}{
		{"approvals/asked", `{"decision":"approve"}`, 200},
		{"approvals/asked", `{"decision":"deny"}`, 409},
		{"approvals/ask", `{"decision":"maybe"}`, 400},
		{"approvals/ask", `{"decision":"approve","args_sha256":"00"}`, 409},
		{"approvals/mine", `{"decision":"approve"}`, 409},
		{"approvals/none", `{"decision":"approve"}`, 404},
		{"tools/given", `{"content":"a"}`, 200},
		{"tools/given", `{"content":"b"}`, 409},
		{"tools/ask", `{"content":"b"}`, 409},
		{"tools/none", `{"content":"b"}`, 404},
		{"steer", `{"input":"and this"}`, 202},
		{"steer", `{}`, 400},
		{"resume", ``, 409},
		{"stop", `{"wait":7}`, 400},
	} {
		if resp := e.do("POST", "/v1/runs/run_w/"+c.url, c.body); resp.StatusCode != c.status {
			t.Errorf("%s %s: status %d, want %d: %s", c.url, c.body, resp.StatusCode, c.status, wantStatus(t, resp, resp.StatusCode))
		}
	}
	if resp := e.do("POST", "/v1/runs/run_f/steer", `{"input":"x"}`); resp.StatusCode != http.StatusConflict {
		t.Errorf("steering a run that ended: %d", resp.StatusCode)
	}
	waiting, err := s.log.Inbox(t.Context(), s.scribe("default", "ses_settle").k)
	if err != nil || len(waiting) != 1 || waiting[0].Kind != event.Steer || waiting[0].Messages[0].Parts[0].Text != "and this" {
		t.Errorf("the inbox holds %+v, %v", waiting, err)
	}
}

// inDoubt writes a session with a call that was approved and broken off, and waits to be
// decided about again.
func (s *site) inDoubt() *scribe {
	s.t.Helper()
	w := s.scribe("default", "ses_doubt")
	w.write(event.New(event.SessionCreated, event.SessionCreatedData{Agent: "demo"}), started("run_d"),
		of("run_d", event.ToolStarted, event.ToolStartedData{CallID: "x", Name: "t", MessageID: "m", Executor: event.ByWorker}),
		of("run_d", event.ApprovalRequested, event.ApprovalRequestedData{CallID: "x", ArgsSHA256: event.ArgsHash("")}),
		of("run_d", event.ApprovalResolved, event.ApprovalResolvedData{CallID: "x", Decision: event.Approved, By: "boss"}),
		of("run_d", event.ToolRunning, event.ToolRunningData{CallID: "x", Attempt: 1}),
		of("run_d", event.ApprovalRequested, event.ApprovalRequestedData{CallID: "x", ArgsSHA256: event.ArgsHash(""), Reason: event.CodeInterrupted}),
		of("run_d", event.RunStatus, event.RunStatusData{Status: event.WaitingApproval, Previous: event.WaitingTool}))
	s.project("default", "ses_doubt")
	return w
}

// An approval of before is not taken for one of what is asked now.
func TestACallInDoubtIsApprovedAnew(t *testing.T) {
	s := newSite(t)
	w := s.inDoubt()
	wantStatus(t, s.edge(edge.Options{}).do("POST", "/mcp", `{"jsonrpc":"2.0","id":"run_d/x","result":{"action":"accept"}}`), http.StatusAccepted)
	waiting, err := s.log.Inbox(t.Context(), w.k)
	if err != nil || len(waiting) != 1 || waiting[0].Kind != event.Approve || waiting[0].CommandID != "run_d.x.1.approve" {
		t.Errorf("the inbox holds %+v, %v", waiting, err)
	}
}

// TestACallInDoubtTakesAResult: what somebody has found out about a call that was
// broken off, once. The answer to an approval of before is not taken for one.
func TestACallInDoubtTakesAResult(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{})
	w := s.inDoubt()
	answers := make(chan int, 1)
	go func() {
		answers <- e.do("POST", "/v1/runs/run_d/tools/x", `{"content":"it did happen"}`).StatusCode
	}()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		waiting, err := s.log.Inbox(t.Context(), w.k)
		if len(waiting) == 1 && waiting[0].Kind == event.Result && waiting[0].CommandID == "run_d.x.1.result" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the inbox holds %+v, %v", waiting, err)
		}
	}
	w.write(of("run_d", event.ToolCompleted, event.ToolCompletedData{CallID: "x", Name: "t", Content: []event.Part{event.TextPart("it did happen")}}))
	if status := <-answers; status != http.StatusOK {
		t.Errorf("the result is answered with %d", status)
	}
	for body, want := range map[string]int{`{"content":"it did happen"}`: http.StatusOK, `{"content":"it did not"}`: http.StatusConflict} {
		if got := e.do("POST", "/v1/runs/run_d/tools/x", body).StatusCode; got != want {
			t.Errorf("once more, %s: %d, want %d", body, got, want)
		}
	}
}

// TestResumingTwiceIsOneRun: the second request gets the first one's run.
func TestResumingTwiceIsOneRun(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{})
	s.settling()
	type run struct {
		RunID     string `json:"run_id"`
		SessionID string `json:"session_id"`
	}
	first := as[run](t, wantStatus(t, e.do("POST", "/v1/runs/run_f/resume", ""), 202))
	second := as[run](t, wantStatus(t, e.do("POST", "/v1/runs/run_f/resume", ""), 202))
	if first != second || first.SessionID != "ses_settle" || first.RunID == "run_f" {
		t.Errorf("resumed as %+v and %+v", first, second)
	}
}

// TestAPausedRunIsGivenMore: the command says how much, and is one for each pause.
func TestAPausedRunIsGivenMore(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{})
	until := event.At(time.Now().Add(time.Hour))
	w := s.scribe("default", "ses_paused")
	w.write(event.New(event.SessionCreated, event.SessionCreatedData{Agent: "demo"}), started("run_p"),
		of("run_p", event.BudgetExceeded, event.BudgetExceededData{Kind: "steps", Limit: 5, Used: 5}),
		of("run_p", event.RunStatus, event.RunStatusData{Status: event.WaitingApproval, Reason: "budget", ExpiresAt: &until}))
	s.project("default", "ses_paused")
	for range 2 {
		wantStatus(t, e.do("POST", "/v1/runs/run_p/resume", `{"config":{"limits":{"steps":7}}}`), 202)
	}
	wantStatus(t, e.do("POST", "/v1/runs/run_p/resume", `{"config":{"limits":{"steps":-7}}}`), 400)
	waiting, err := s.log.Inbox(t.Context(), w.k)
	if err != nil || len(waiting) != 1 || waiting[0].Kind != event.Resume || waiting[0].Config.Limits.Steps != 7 {
		t.Fatalf("the inbox holds %+v, %v", waiting, err)
	}
	// Its answer was lost, and it is sent again when the run goes on, and when it has ended.
	again := func(want int, changed ...event.Event) {
		t.Helper()
		w.write(changed...)
		if st := as[run](t, wantStatus(t, e.do("POST", "/v1/runs/run_p/resume", `{"config":{"limits":{"steps":7}}}`), want)); st.RunID != "run_p" {
			t.Errorf("%+v", st)
		}
	}
	on := of("run_p", event.RunStatus, event.RunStatusData{Status: event.Running, Previous: event.WaitingApproval, Reason: "resumed", Raised: &event.Limits{Steps: 7}})
	on.CommandID = waiting[0].CommandID
	again(202, on)
	again(200, completed("run_p"))
	if waiting, err := s.log.Inbox(t.Context(), w.k); err != nil || len(waiting) != 1 {
		t.Errorf("the inbox holds %+v, %v", waiting, err)
	}
	w.write(started("run_q")) // was never paused
	s.project("default", "ses_paused")
	wantStatus(t, e.do("POST", "/v1/runs/run_q/resume", ""), 409)
}

// TestALateRepetitionDoesNotRaiseTwice: a request for more budget that arrives again in
// the run's next pause, with its idempotency key, is not another one.
func TestALateRepetitionDoesNotRaiseTwice(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{})
	w := s.scribe("default", "ses_paused")
	w.write(event.New(event.SessionCreated, event.SessionCreatedData{Agent: "demo"}), started("run_p"))
	pause := func() {
		until := event.At(time.Now().Add(time.Hour))
		w.write(of("run_p", event.BudgetExceeded, event.BudgetExceededData{Kind: "steps", Limit: 5, Used: 5}),
			of("run_p", event.RunStatus, event.RunStatusData{Status: event.WaitingApproval, Reason: "budget", ExpiresAt: &until}))
		s.project("default", "ses_paused")
	}
	raise := func(key string) {
		t.Helper()
		resp := e.do("POST", "/v1/runs/run_p/resume", `{"config":{"limits":{"steps":7}}}`, "Idempotency-Key", key)
		wantStatus(t, resp, 202)
	}
	inbox := func(want int) []eventlog.Waiting {
		t.Helper()
		waiting, err := s.log.Inbox(t.Context(), w.k)
		if err != nil || len(waiting) != want {
			t.Fatalf("the inbox holds %+v, %v, want %d", waiting, err, want)
		}
		return waiting
	}
	pause()
	raise("first")
	raise("first")
	on := of("run_p", event.RunStatus, event.RunStatusData{Status: event.Running, Previous: event.WaitingApproval, Reason: "resumed", Raised: &event.Limits{Steps: 7}})
	on.CommandID = inbox(1)[0].CommandID
	w.write(on)
	pause()
	raise("first")
	inbox(1)
	raise("second")
	inbox(2)
}

// TestRedirectNeedsAStoreWithAnAddress: a directory has none, and says so.
func TestRedirectNeedsAStoreWithAnAddress(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{})
	s.store("art_1", "note.md", "# Note\n")
	if p := as[problem](t, wantStatus(t, e.do("GET", "/artifacts/art_1?redirect=1", ""), 400)); p.Code != "unsupported" {
		t.Errorf("%+v", p)
	}
}

// TestDeadLettersAreRedrivenOrDropped: whichever, they leave the list; another
// tenant's never shows.
func TestDeadLettersAreRedrivenOrDropped(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{})
	s.settling()
	if err := s.log.Bury(t.Context(), "other", eventlog.DeadLetter{RunID: "theirs"}); err != nil {
		t.Fatal(err)
	}
	e.get(404, "/v1/dlq/theirs")
	wantStatus(t, e.do("POST", "/v1/dlq/run_f/redrive", ""), 202)
	wantStatus(t, e.do("DELETE", "/v1/dlq/run_w", ""), 204)
	if got := string(e.get(200, "/v1/dlq")); got != `{"dead_letters":[]}`+"\n" {
		t.Errorf("the list is %s", got)
	}
	waiting, err := s.log.Inbox(t.Context(), eventlog.Key{Tenant: "default", Session: "ses_settle"})
	if err != nil || len(waiting) != 1 || waiting[0].Resumes != "run_f" {
		t.Errorf("the inbox holds %+v, %v", waiting, err)
	}
}
