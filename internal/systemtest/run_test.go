package systemtest

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/runlog-dev/runlog/event"
)

// The demo run: two tools at once, progress, an artifact, all of it as one story that is the same everywhere.
func streamIsTheRun(t *testing.T, p *production) {
	e := p.at[0]
	for _, form := range []string{sse, ndjson} {
		s := e.start(t, http.MethodPost, "/v1/runs", `{"agent":"demo","input":"hello"}`, form)
		defer s.close()
		checkStreamHeaders(t, s.resp.Header)
		list := events(t, s.rest())
		runID := list[0].RunID
		if got := s.resp.Header.Get("Location"); got != "/v1/runs/"+runID {
			t.Errorf("Location %q, want that of %s", got, runID)
		}
		checkDemo(t, list)
		log := checkLog(t, e, list[0].SessionID)
		if want := ofRun(log, runID); !slices.EqualFunc(list, want, same) {
			t.Errorf("the stream has %d events that differ from the log's %d", len(list), len(want))
		}
		checkSession(t, e, list[0].SessionID)
	}
}

func same(a, b event.Event) bool { return string(a.AppendLine(nil)) == string(b.AppendLine(nil)) }

func checkStreamHeaders(t *testing.T, h http.Header) {
	t.Helper()
	for name, want := range map[string]string{"Cache-Control": "no-cache, no-transform", "X-Accel-Buffering": "no", "Content-Encoding": ""} {
		if got := h.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// checkDemo looks for what the demo is meant to show.
func checkDemo(t *testing.T, list []event.Event) {
	t.Helper()
	if first, end := list[0], last(list); first.Type != event.RunStarted || end.Type != event.RunCompleted {
		t.Errorf("the run goes from %s to %s", first.Type, end.Type)
	}
	for kind, least := range map[event.Type]int{
		event.ReasoningDelta: 2, event.TextDelta: 5, event.ToolRunning: 2, event.ToolProgress: 2, event.ToolCompleted: 2,
		event.ArtifactStarted: 1, event.ArtifactCompleted: 1, event.StepCompleted: 2,
	} {
		if n := count(list, kind); n < least {
			t.Errorf("%d times %s, want at least %d", n, kind, least)
		}
	}
	at := func(kind event.Type) int {
		return slices.IndexFunc(list, func(e event.Event) bool { return e.Type == kind })
	}
	running := 0
	for _, e := range list[:at(event.ToolCompleted)] {
		if e.Type == event.ToolRunning {
			running++
		}
	}
	if running != 2 {
		t.Errorf("%d tools run before the first one is through, want both", running)
	}
}

// checkSession folds a client's view of a whole session and compares it with what /snapshot says.
func checkSession(t *testing.T, e edge, session string) {
	t.Helper()
	s := e.listen(t, "/v1/sessions/"+session+"/events?follow=false", sse)
	defer s.close()
	folded := fold(t, events(t, s.rest()))
	sameConversation(t, "fold of the stream", folded.EncodePublic(), e.get(t, "/v1/sessions/"+session+"/snapshot").body)
}

// Strange text comes out as it went in, over every transport, and tears no frame.
func byteExact(t *testing.T, p *production) {
	e := p.at[0]
	odd := "x\u2028\u2029\u0085 \r \r\n \n\ndata: x\n\nid: 7\nevent: y\n\n: z 漢字 🙂 \u0000 \\ \" <b>&amp; \ufeff\u200d e\u0301 end"
	want := "You said: " + odd
	for _, form := range []string{sse, ndjson} {
		s := e.start(t, http.MethodPost, "/v1/runs", request{Input: odd}.body(), form)
		defer s.close()
		said, heard := "", ""
		for _, ev := range events(t, s.rest()) {
			switch ev.Type {
			case event.TextDelta:
				var d event.TextDeltaData
				_ = ev.Into(&d)
				said += d.Delta
			case event.MessageCompleted:
				var d event.MessageCompletedData
				_ = ev.Into(&d)
				if d.Role == event.RoleUser {
					heard = textOf(d.Parts)
				}
			}
		}
		if said != want {
			t.Errorf("over %s: %q, want %q", form, said, want)
		}
		if heard != odd {
			t.Errorf("over %s the user's message is %q, want %q", form, heard, odd)
		}
	}
	// Text that Postgres refuses does not stop the catalog.
	marked := e.finish(t, request{TraceID: "00f067aa0ba902b700f067aa0ba902b7", Input: odd})
	eventually(t, "the catalog", func() bool {
		return strings.Contains(string(e.get(t, "/v1/runs?trace_id="+marked.TraceID).body), marked.RunID)
	})
	chat := into[struct{ Messages json.RawMessage }](t, e.do(t, http.StatusOK, http.MethodPost, "/chat",
		string(event.Encode(map[string]string{"agent": "probe", "user_input": odd}))))
	if !strings.Contains(string(chat.Messages), string(event.Encode(want))) {
		t.Errorf("/chat: %s", chat.Messages)
	}
}
