package edge_test

import (
	"encoding/base64"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/runlog-dev/runlog/edge"
	"github.com/runlog-dev/runlog/edge/dialect/scenarios"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// play writes a scenario as the session's log.
func (w *scribe) play(name string) {
	w.t.Helper()
	w.playWhile(name, func(event.Event) bool { return true })
}

// playUntilParked stops where the scenario's run waits for somebody.
func (w *scribe) playUntilParked(name string) {
	w.t.Helper()
	parked := false
	w.playWhile(name, func(e event.Event) bool {
		before := parked
		parked = parked || e.Type == event.RunStatus && strings.Contains(string(e.Data), "expires_at")
		return !before
	})
}

func (w *scribe) playWhile(name string, wanted func(event.Event) bool) {
	w.t.Helper()
	sc, ok := scenarios.Named(name)
	if !ok {
		w.t.Fatalf("there is no scenario %s", name)
	}
	for _, e := range sc.Log() {
		if !wanted(e) {
			break
		}
		if _, err := w.w.Append(e); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := w.w.Sync(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// bare reads to the end messages that need not have names.
func (l *listener) bare() (all []message) {
	l.t.Helper()
	for {
		m, err := l.any()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			l.t.Fatalf("stream broke off after %d messages: %v", len(all), err)
		}
		if m.event != "heartbeat" {
			all = append(all, m)
		}
	}
}

// TestFollowingDialectsResumeAtEveryID: dialects that have to see their run from
// its start give a client that comes back what it has not, and nothing else.
func TestFollowingDialectsResumeAtEveryID(t *testing.T) {
	s := newSite(t)
	s.scribe("default", scenarios.SessionID).play("takeover")
	s.project("default", scenarios.SessionID)
	one, other := s.edge(edge.Options{}), s.edge(edge.Options{})
	for _, path := range []string{"/v1/sessions/ses_1/events?follow=false&dialect=", "/v1/runs/run_1/events?dialect="} {
		for _, name := range []string{"aisdk", "openai"} {
			all := one.listen(path + name).bare()
			if len(all) < 15 {
				t.Fatalf("%s: only %d messages", name, len(all))
			}
			for i, m := range all[:len(all)-1] {
				got := other.listen(path+name, "Last-Event-ID", m.id).bare()
				if !slices.Equal(got, all[i+1:]) {
					t.Errorf("%s%s after %s: %d messages, want %d", path, name, m.id, len(got), len(all)-i-1)
				}
			}
		}
	}
	last := one.listen("/v1/runs/run_1/events?dialect=openai").bare()
	wantStatus(t, other.do("GET", "/v1/runs/run_1/events?dialect=openai", "", "Last-Event-ID", last[len(last)-1].id), 204)
}

// TestVendorFacesHaveTenantWalls: whoever knows another tenant's ids learns nothing.
func TestVendorFacesHaveTenantWalls(t *testing.T) {
	s := newSite(t)
	a, b := s.key("a"), s.key("b")
	e := s.edge(edge.Options{})
	s.work()
	wantStatus(t, e.do("POST", "/v1/runs?wait=30s", `{"input":"secret","session_id":"ses","run_id":"run"}`, "Authorization", a), 200)
	for _, c := range []struct {
		method, path, body string
		own, foreign       int
	}{
		{"GET", "/v1/responses/run", "", 200, 404},
		{"GET", "/v1/responses/run?stream=true", "", 200, 404},
		{"POST", "/v1/responses/run/cancel", "", 200, 404},
		{"POST", "/v1/responses", `{"input":"x","previous_response_id":"run"}`, 200, 404},
		{"GET", "/api/chat/ses/stream", "", 200, 204},
		{"GET", "/api/chat/a%2Fb/stream", "", 404, 404},
	} {
		if got := e.do(c.method, c.path, c.body, "Authorization", b); got.StatusCode != c.foreign {
			t.Errorf("%s %s: another tenant gets %d, want %d", c.method, c.path, got.StatusCode, c.foreign)
		}
		if got := e.do(c.method, c.path, c.body, "Authorization", a); got.StatusCode != c.own {
			t.Errorf("%s %s: the owner gets %d, want %d", c.method, c.path, got.StatusCode, c.own)
		}
		wantStatus(t, e.do(c.method, c.path, c.body), 401)
	}
}

// TestVendorErrors: the SDKs are kept from repeating what would be refused again
// or done twice, and from nothing else.
func TestVendorErrors(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{})
	w := s.scribe("default", "ses_1")
	w.play("approval")
	s.project("default", "ses_1")
	for _, c := range []struct {
		method, path, body string
		status             int
		retry              string
	}{
		{"POST", "/v1/responses", `{"model":"demo","conversation":"ses_1","input":[{"type":"mcp_approval_response","approval_request_id":"mcpr_x","approve":true}]}`, 409, "false"},
		{"GET", "/v1/responses/run_1?stream=true&starting_after=99999", ``, 409, "false"},
		{"GET", "/v1/responses/run_1?stream=true&starting_after=x", ``, 400, ""},
		{"POST", "/v1/responses", `{"model":"demo","input":[{"type":"computer_call"}]}`, 400, ""},
		{"POST", "/v1/responses", `{"model":"demo"}`, 400, ""},
		{"POST", "/v1/responses", `{"model":"demo","input":[{"type":"reasoning"}]}`, 400, ""},
		{"POST", "/v1/chat/completions", `{"model":"demo","messages":[{"role":"user","content":"x"}],"n":2}`, 400, ""},
		{"POST", "/v1/chat/completions", `{"model":"demo","messages":[{"role":"tool","tool_call_id":"c@run_1","content":"x"}]}`, 400, ""},
		{"POST", "/v1/chat/completions", `{"model":"demo","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,?"}}]}]}`, 400, ""},
	} {
		resp := e.do(c.method, c.path, c.body)
		if resp.StatusCode != c.status || resp.Header.Get("X-Should-Retry") != c.retry {
			t.Errorf("%s %s %s: %d, retry %q, want %d, %q", c.method, c.path, c.body, resp.StatusCode, resp.Header.Get("X-Should-Retry"), c.status, c.retry)
			continue
		}
		p := as[struct {
			Error struct{ Type, Message string }
		}](t, wantStatus(t, resp, c.status))
		if p.Error.Type == "" || p.Error.Message == "" {
			t.Errorf("%s %s: %+v", c.method, c.path, p)
		}
	}
}

// FuzzDataURL: what strangers send is data or an error.
func FuzzDataURL(f *testing.F) {
	for _, s := range []string{"data:,x", "data:text/plain;base64,eA==", "data:", "data:;base64,", "data:a,%zz", "x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		mediaType, data, err := edge.ReadDataURL(s)
		if err == nil && mediaType == "" {
			t.Errorf("%q has no media type", s)
		}
		if strings.HasSuffix(s, ";base64,"+base64.StdEncoding.EncodeToString([]byte("hello"))) && string(data) != "hello" {
			t.Errorf("%q: %q", s, data)
		}
	})
}

// TestChatsAreIdempotent: the same message is the same run on every edge, and
// after a failure another one.
func TestChatsAreIdempotent(t *testing.T) {
	s := newSite(t)
	one, other := s.edge(edge.Options{}), s.edge(edge.Options{})
	w := s.work()
	body := `{"id":"chat","messages":[{"id":"m1","role":"user","parts":[{"type":"text","text":"hello"}]}]}`
	together(8, func(i int) {
		wantStatus(t, []*edgeNode{one, other}[i%2].do("POST", "/api/chat", body), 200)
	})
	cmd := <-w.invokes
	if len(w.invokes) > 0 || cmd.Kind != event.Invoke {
		t.Errorf("%d more runs", len(w.invokes))
	}
	wantStatus(t, one.do("POST", "/api/chat", strings.Replace(body, `{"id":"chat"`, `{"trigger":"regenerate-message","id":"chat"`, 1)), 200)
	again := <-w.invokes
	if again.RunID == cmd.RunID || again.Messages[0].MessageID == cmd.Messages[0].MessageID {
		t.Errorf("the run again: %+v", again)
	}
}

// TestChatsComeBackAfterTheirAnswer: a chat whose connection broke once it had answered is told
// what its answer has led to, though nobody has taken it yet, or the run has not gone on.
func TestChatsComeBackAfterTheirAnswer(t *testing.T) {
	sc, _ := scenarios.Named("client-tool")
	log := sc.Log()
	parked := slices.IndexFunc(log, func(e event.Event) bool {
		return e.Type == event.RunStatus && strings.Contains(string(e.Data), "expires_at")
	})
	given := slices.IndexFunc(log, func(e event.Event) bool { return e.Type == event.ToolCompleted })
	var result event.ToolCompletedData
	if err := log[given].Into(&result); err != nil || given != parked+1 {
		t.Fatal(parked, given, err)
	}
	for name, there := range map[string]int{"in the inbox": parked + 1, "in the log": given + 1} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			w := s.scribe("default", scenarios.SessionID)
			w.write(log[:there]...)
			s.index(scenarios.RunID, scenarios.SessionID)
			if there == parked+1 {
				cmd := event.Command{CommandID: "answer", Kind: event.Result, SessionID: scenarios.SessionID, RunID: scenarios.RunID,
					CallID: result.CallID, Content: result.Content}
				if err := s.log.Submit(t.Context(), eventlog.Key{Tenant: "default", Session: scenarios.SessionID}, cmd); err != nil {
					t.Fatal(err)
				}
			}
			l := s.edge(edge.Options{}).listen("/api/chat/" + scenarios.SessionID + "/stream")
			for {
				m, err := l.any()
				if err != nil {
					t.Fatalf("the chat is not told that its run waits: %v", err)
				}
				if strings.Contains(m.data, `"finishReason":"tool-calls"`) {
					break
				}
			}
			w.write(log[there:]...)
			all := l.bare()
			if n := len(all); n < 3 || all[n-1].data != "[DONE]" || !strings.Contains(all[n-2].data, `"finishReason":"stop"`) {
				t.Errorf("after its answer the chat is told %+v", all)
			}
		})
	}
}

// TestWhatIsSaidInPlaceOfAnAnswer ends the wait: behind a run that waits for its client another
// one would wait for as long.
func TestWhatIsSaidInPlaceOfAnAnswer(t *testing.T) {
	for path, body := range map[string]string{
		"/v1/chat/completions":          `{"model":"demo","session_id":"ses_1","messages":[{"role":"user","content":"something else"}]}`,
		"/v1/responses":                 `{"model":"demo","conversation":"ses_1","input":"something else"}`,
		"/v1/messages":                  `{"model":"demo","messages":[{"role":"user","content":"something else"}]}`,
		"/langgraph/threads/ses_1/runs": `{"assistant_id":"demo","input":"something else"}`,
		"/api/chat":                     `{"id":"ses_1","agent":"demo","messages":[{"id":"m","role":"user","parts":[{"type":"text","text":"something else"}]}]}`,
	} {
		t.Run(path, func(t *testing.T) {
			s := newSite(t)
			s.scribe("default", scenarios.SessionID).playUntilParked("client-tool")
			e := s.edge(edge.Options{})
			go func() { _, _ = e.try("POST", path, body, "Runlog-Session-Id", scenarios.SessionID) }() // answered when the run ends
			var said []eventlog.Waiting
			waitFor(t, func() (some bool) {
				said, _ = s.log.Inbox(t.Context(), eventlog.Key{Tenant: "default", Session: scenarios.SessionID})
				return len(said) > 0
			})
			if said[0].Kind != event.Invoke || said[0].Queue != event.Interrupt {
				t.Errorf("%s, queue %q", said[0].Kind, said[0].Queue)
			}
		})
	}
}
