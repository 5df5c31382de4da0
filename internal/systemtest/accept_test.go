package systemtest

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/event"
)

// Twenty requests with one key at once on two edges are one run; the same key with another body is refused.
func oneKeyOneRun(t *testing.T, p *production) {
	key := fmt.Sprint("key of ", time.Now().UnixNano())
	body := request{Input: `count {"n":3,"delay_ms":50}`}.body()
	ids := make([]run, 20)
	var all sync.WaitGroup
	for i := range ids {
		all.Go(func() {
			a, err := p.at[i%2].try(t.Context(), http.MethodPost, "/v1/runs", body, "Idempotency-Key", key)
			if err != nil || a.StatusCode != http.StatusAccepted {
				t.Errorf("request %d: %v %v", i, a, err)
				return
			}
			ids[i] = into[run](t, a)
		})
	}
	all.Wait()
	for _, r := range ids {
		if r.RunID != ids[0].RunID || r.SessionID != ids[0].SessionID || r.TraceID != ids[0].TraceID {
			t.Fatalf("two runs: %+v and %+v", r, ids[0])
		}
	}
	p.at[0].refused(t, http.StatusUnprocessableEntity, event.CodeMismatch, http.MethodPost, "/v1/runs", request{Input: "else"}.body(), "Idempotency-Key", key)
	p.at[0].ended(t, ids[0].RunID)
	late := p.at[1].do(t, http.StatusAccepted, http.MethodPost, "/v1/runs", body, "Idempotency-Key", key)
	if got := into[run](t, late); got.RunID != ids[0].RunID || got.Status != event.Completed {
		t.Errorf("after the end the key gives %+v", got)
	}
	s := p.at[1].start(t, http.MethodPost, "/v1/runs", body, sse, "Idempotency-Key", key)
	defer s.close()
	if list := events(t, s.rest()); list[0].RunID != ids[0].RunID || last(list).Type != event.RunCompleted {
		t.Errorf("as a stream the key gives %d events of %s", len(list), list[0].RunID)
	}
	p.ledger.once(t, ids[0].RunID, "count_slowly")
	list := checkLog(t, p.at[0], ids[0].SessionID)
	if n := count(list, event.RunStarted); n != 1 {
		t.Errorf("%d runs", n)
	}
	other := into[run](t, p.at[0].with(p.rival).do(t, http.StatusAccepted, http.MethodPost, "/v1/runs", body, "Idempotency-Key", key))
	if other.RunID == ids[0].RunID || other.SessionID == ids[0].SessionID {
		t.Error("another tenant's key is the same key")
	}
}

// Many clients post to one session at once: its runs come one after the other, all of them.
func runsQueueUp(t *testing.T, p *production) {
	const n = 20
	session := fmt.Sprintf("queue-%d", time.Now().UnixNano())
	runs := make([]run, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			a, err := p.at[i%2].try(t.Context(), http.MethodPost, "/v1/runs?wait=60s", request{SessionID: session, Input: fmt.Sprint("number ", i)}.body())
			if err != nil || a.StatusCode != http.StatusOK {
				t.Errorf("run %d: %v, %v", i, a, err)
				return
			}
			runs[i] = into[run](t, a)
		})
	}
	all.Wait()
	for i, r := range runs {
		if r.Status != event.Completed || r.Text != fmt.Sprint("You said: number ", i) {
			t.Errorf("run %d: %s, %q", i, r.Status, r.Text)
		}
	}
	if list := checkLog(t, p.at[0], session); count(list, event.RunCompleted) != n {
		t.Errorf("%d runs have completed, want %d", count(list, event.RunCompleted), n)
	}
}

// The model fails in the middle of its answer and says it again: the fold has one clean text.
func retriedStep(t *testing.T, p *production) {
	r := p.at[0].finish(t, request{Input: "stumble"})
	want := &strings.Builder{}
	for i := range 30 {
		fmt.Fprintf(want, "word%d ", i+1)
	}
	if r.Text != want.String()+"end" {
		t.Errorf("the answer is %q", r.Text)
	}
	list := checkLog(t, p.at[0], r.SessionID)
	if n := count(list, event.MessageDiscarded); n != 1 {
		t.Errorf("%d answers were taken back, want 1", n)
	}
	if conv := p.at[1].get(t, "/v1/sessions/"+r.SessionID+"/messages?format=openai"); strings.Count(string(conv.body), "word1 ") != 1 {
		t.Errorf("the conversation is %s", conv.body)
	}
}

// A tool that is silent for four leases is executed once, and nobody takes the session over; meanwhile the stream
// says that the run is alive.
func silentTool(t *testing.T, p *production) {
	ms, began := 4*lease.Milliseconds(), time.Now()
	s := p.at[0].start(t, http.MethodPost, "/v1/runs", request{Input: fmt.Sprintf(`sleep {"ms":%d}`, ms)}.body(), sse)
	defer s.close()
	var list []message
	beats, pings := 0, 0
	for {
		m, err := s.next()
		if err != nil {
			break
		}
		switch {
		case m.kind == "heartbeat":
			beats++
			if !strings.Contains(m.data, `"status":"waiting_tool"`) {
				t.Errorf("heartbeat %s", m.data)
			}
		case m.ofLog():
			list = append(list, m)
		case strings.HasPrefix(m.raw, ":"):
			pings++
		}
	}
	if took := time.Since(began); took < 4*lease {
		t.Errorf("it took %v", took)
	}
	all := events(t, list)
	if last(all).Type != event.RunCompleted || beats == 0 || pings < 5 {
		t.Errorf("the run ends with %s after %d heartbeats and %d pings", last(all).Type, beats, pings)
	}
	p.ledger.once(t, all[0].RunID, "sleep")
	if n := count(checkLog(t, p.at[0], all[0].SessionID), event.SessionClaimed); n != 1 {
		t.Errorf("%d claims, want 1", n)
	}
}

// Ten tools that take nearly a lease each, on two workers: each is executed once.
func longTools(t *testing.T, p *production) {
	ms := lease.Milliseconds() * 9 / 10
	runs := make([]run, 10)
	for i := range runs {
		runs[i] = p.at[i%2].submit(t, request{Input: fmt.Sprintf(`sleep {"ms":%d}`, ms)})
	}
	for _, r := range runs {
		if got := p.at[0].ended(t, r.RunID); got.Status != event.Completed {
			t.Errorf("%+v", got)
		}
		p.ledger.once(t, r.RunID, "sleep")
		if n := count(checkLog(t, p.at[0], r.SessionID), event.SessionClaimed); n != 1 {
			t.Errorf("%d claims, want 1", n)
		}
	}
}

// The same agent with another provider, by its file alone.
func providers(t *testing.T, p *production) {
	for _, agent := range []string{"caller", "claude"} {
		r := p.at[0].finish(t, request{Agent: agent, Input: "call"})
		if r.Status != event.Completed || r.Text != "Done." || len(r.ToolCalls) != 3 {
			t.Errorf("%s: %+v", agent, r)
		}
		for _, c := range r.ToolCalls {
			if c.Status != event.Completed {
				t.Errorf("%s: call of %s: %+v", agent, c.Name, c)
			}
		}
		checkLog(t, p.at[0], r.SessionID)
	}
}

// A tool whose server dies in the middle of the call: the call fails visibly, the run goes on, the next call finds a
// new server.
func toolServerDies(t *testing.T, p *production) {
	r := p.at[0].finish(t, request{Agent: "doomed", Input: "die"})
	if call := r.ToolCalls[0]; r.Status != event.Completed || call.Status != event.Failed || call.Outcome != event.OutcomeUnknown {
		t.Errorf("the run is %s, the call %+v", r.Status, call)
	}
	p.ledger.once(t, r.RunID, "die")
	checkLog(t, p.at[0], r.SessionID)
	next := p.at[0].finish(t, request{Agent: "doomed", SessionID: r.SessionID, Input: `count {"n":1}`})
	if next.Text != "Counted to 1." {
		t.Errorf("the next call: %+v", next)
	}
}

// What nobody knows, and what is malformed, is refused with a code, never ignored.
func wrongIsRefused(t *testing.T, p *production) {
	for _, body := range []string{
		`{"agent":"probe","input":"x","queue":"sideways"}`, `{"agent":"probe","input":"x","on_disconnect":"panic"}`, `{"agent":"probe"}`,
		`{"agent":"probe","input":""}`, `{"agent":"probe","input":7}`, `{"agent":"probe","input":[{"type":"hologram"}]}`, `"x"`, ``,
	} {
		p.at[0].refused(t, http.StatusBadRequest, event.CodeBadRequest, http.MethodPost, "/v1/runs", body)
	}
	p.at[0].refused(t, http.StatusNotFound, event.CodeNotFound, http.MethodPost, "/v1/runs", `{"agent":"nobody","input":"x"}`)
	p.at[0].refused(t, http.StatusBadRequest, event.CodeBadRequest, http.MethodPost, "/v1/runs", `{"agent":"probe","input":"x"`)
	p.at[0].refused(t, http.StatusBadRequest, event.CodeBadRequest, http.MethodPost, "/v1/runs", `{"agent":"probe","session_id":"a b/c","input":"x"}`)
	p.at[0].refused(t, http.StatusUnauthorized, event.CodeUnauthorized, http.MethodGet, "/v1/runs", "", "Authorization", "Bearer rl_wrong")
	p.at[0].with("").refused(t, http.StatusUnauthorized, event.CodeUnauthorized, http.MethodGet, "/v1/runs", "")
}
