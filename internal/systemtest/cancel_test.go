package systemtest

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/event"
)

// cancelBound is how long a cancel may take to reach what runs.
const cancelBound = 10 * time.Second

// A cancel in the middle of the model's answer reaches the model's socket; what was said stays.
func cancelInModel(t *testing.T, p *production) {
	r := p.at[0].submit(t, request{Agent: "talker", Input: "talk"})
	reach(t, p.at[0], r, event.TextDelta)
	got := cancelled(t, p, r, "enough")
	if got.Reason != "enough" {
		t.Errorf("reason %q", got.Reason)
	}
	asked := p.talking.Requests()
	model := asked[len(asked)-1] // nobody else talks to it now
	select {
	case <-model.Done():
	case <-time.After(cancelBound):
		t.Fatal("the model goes on")
	}
	if dropped, _ := model.Dropped(); !dropped {
		t.Error("the model's socket was not closed")
	}
	list := ofRun(checkLog(t, p.at[0], r.SessionID), r.RunID)
	if count(list, event.MessageCompleted) != 2 {
		t.Errorf("%d messages, want the user's and what the model has said so far", count(list, event.MessageCompleted))
	}
}

// cancelled cancels a run with wait and checks that the answer is the truth, on both edges.
func cancelled(t *testing.T, p *production, r run, reason string) run {
	t.Helper()
	began := time.Now()
	got := p.at[1].cancel(t, r.RunID, reason)
	if took := time.Since(began); took > cancelBound {
		t.Errorf("the cancel took %v", took)
	}
	for i, e := range p.at {
		if now := e.state(t, r.RunID); got.Status != event.Cancelled || now.Status != event.Cancelled {
			t.Errorf("edge %d: the answer says %s, the run is %s", i, got.Status, now.Status)
		}
	}
	again := p.at[0].cancel(t, r.RunID, "once more")
	if again.Status != got.Status || again.Seq < got.Seq || again.Reason != got.Reason {
		t.Errorf("a second cancel answers %+v after %+v", again, got)
	}
	return got
}

// A cancel in the middle of a tool: the server is told, the call gets its closing event at once, and the session
// can be used again.
func cancelInTool(t *testing.T, p *production) {
	r := p.at[0].submit(t, request{Input: "three"})
	s := p.at[0].listen(t, "/v1/runs/"+r.RunID+"/events", sse)
	defer s.close()
	s.until(event.ToolCompleted) // lookup is through, two calls go on
	key := cancelledKey(t, s)
	cancelled(t, p, r, "")
	outcomes := map[string]event.Outcome{}
	for _, e := range ofRun(checkLog(t, p.at[0], r.SessionID), r.RunID) {
		var d event.ToolFailedData
		if e.Type == event.ToolFailed && e.Into(&d) == nil {
			outcomes[d.Name] = d.Outcome
		}
	}
	if len(outcomes) != 2 || outcomes["sleep"] != event.OutcomeCancelled || outcomes["count_slowly"] != event.OutcomeCancelled {
		t.Errorf("calls that were going on: %v", outcomes)
	}
	eventually(t, "the tool's server to notice the cancel", func() bool {
		return strings.Contains(p.worker[0].Log()+p.worker[1].Log(), "key="+key)
	})
	// A new message in the same session: the model gets a valid request although calls were cut off.
	next := p.at[1].finish(t, request{SessionID: r.SessionID, Input: "and now?"})
	if next.Status != event.Completed || next.Text != "You said: and now?" {
		t.Errorf("the next run: %+v", next)
	}
	checkLog(t, p.at[0], r.SessionID)
}

// cancelledKey waits until the counting has begun and returns its idempotency key, which the server logs when the
// call is cancelled.
func cancelledKey(t *testing.T, s *stream) string {
	t.Helper()
	var d event.ToolProgressData
	list := events(t, s.until(event.ToolProgress))
	if err := last(list).Into(&d); err != nil {
		t.Fatal(err)
	}
	return last(list).RunID + "/" + d.CallID
}

// A turn that was cut off leaves a conversation that a model server, which refuses what is not valid, accepts.
func cancelledTurnIsValid(t *testing.T, p *production) {
	r := p.at[0].submit(t, request{Agent: "caller", Input: "call"})
	reach(t, p.at[0], r, event.ToolCompleted) // one of three
	cancelled(t, p, r, "")
	next := p.at[1].finish(t, request{Agent: "caller", SessionID: r.SessionID, Input: "and now?"})
	if next.Status != event.Completed || next.Text != "Done." {
		t.Errorf("the next run: %+v", next)
	}
	checkLog(t, p.at[0], r.SessionID)
}

// A run that waits behind another one, or that nobody has begun.
func cancelPending(t *testing.T, p *production) {
	first := p.at[0].submit(t, request{Input: `sleep {"ms":60000}`})
	reach(t, p.at[0], first, event.ToolRunning)
	waiting := p.at[0].submit(t, request{SessionID: first.SessionID, Input: "later"})
	cancelled(t, p, waiting, "never mind")
	if got := p.at[0].state(t, first.RunID); got.Status.Terminal() {
		t.Errorf("the run before it: %s", got.Status)
	}
	cancelled(t, p, first, "")
	third := p.at[0].finish(t, request{SessionID: first.SessionID, Input: "still here?"})
	if third.Status != event.Completed {
		t.Errorf("the session is stuck: %+v", third)
	}
	list := checkLog(t, p.at[0], first.SessionID)
	if n := count(ofRun(list, waiting.RunID), event.RunStarted); n != 0 {
		t.Errorf("the run that was cancelled while it waited was started %d times", n)
	}
	p.ledger.once(t, first.RunID, "sleep")
}

// A cancel that races the very acceptance of its run still comes to an end, whichever it is.
func cancelAtOnce(t *testing.T, p *production) {
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			r := p.at[i%2].submit(t, request{Input: `sleep {"ms":60000}`})
			if got := p.at[(i+1)%2].cancel(t, r.RunID, "at once"); got.Status != event.Cancelled {
				t.Errorf("%+v", got)
			}
			checkLog(t, p.at[0], r.SessionID)
		})
	}
	all.Wait()
}

// After the end a cancel changes nothing and says what became of the run.
func cancelAfterTheEnd(t *testing.T, p *production) {
	r := p.at[0].finish(t, request{Input: "hello"})
	for _, e := range p.at {
		if got := e.cancel(t, r.RunID, "too late"); got.Status != event.Completed {
			t.Errorf("%+v", got)
		}
	}
	list := checkLog(t, p.at[0], r.SessionID)
	if n := count(list, event.RunCancelled); n > 0 {
		t.Errorf("%d times run.cancelled after the end", n)
	}
	p.at[0].refused(t, http.StatusNotFound, event.CodeNotFound, http.MethodPost, "/v1/runs/run_nobody/cancel", "{}")
}

// Who closes the stream does not stop the run.
func disconnectIsNotStop(t *testing.T, p *production) {
	ctx, hangUp := context.WithCancel(t.Context())
	resp, err := p.at[0].open(ctx, http.MethodPost, "/v1/runs", request{Input: "tell"}.body(), "Accept", sse)
	if err != nil {
		t.Fatal(err)
	}
	runID := resp.Header.Get("Runlog-Run-Id")
	buf := make([]byte, 2000)
	if _, err := resp.Body.Read(buf); err != nil {
		t.Fatal(err)
	}
	hangUp()
	resp.Body.Close()
	if got := p.at[1].ended(t, runID); got.Status != event.Completed {
		t.Errorf("the run that nobody watched: %+v", got)
	}
}
