package edge_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/runlog-dev/runlog/edge"
	"github.com/runlog-dev/runlog/event"
)

// Old and new clients read the same run side by side, each in its own words,
// however they name them; and each goes on where it was on another edge.
func TestViewsSideBySide(t *testing.T) {
	s := newSite(t)
	e, other := s.edge(edge.Options{}), s.edge(edge.Options{})
	w := s.scribe("default", goldenSession)
	path := "/v1/runs/run_01k9example/events"
	wantStatus(t, e.do("POST", "/v1/runs", `{"input":"Weather?","session_id":"`+goldenSession+`","run_id":"run_01k9example"}`), 202)
	ways := map[string]*listener{
		"v1":     e.listen(path + "?dialect=v1"),
		"parts":  e.listen(path, "Runlog-Dialect", "parts"),
		"agents": e.listen(path, "Accept", "text/event-stream;dialect=agents"),
		"native": e.listen(path),
		"plain":  e.listen(path, "Runlog-Dialect", "v1", "Accept", "application/x-ndjson;dialect=parts, */*").queryWins(e, path+"?dialect=plain"),
	}
	go w.golden()
	words := map[string][]string{
		"v1":     {"text_delta", "text_reset", "tool_start", "tool_end", "done"},
		"parts":  {"assistant.message", "session.updated", "user.message"},
		"agents": {"response_complete", "response_start", "tool_call_complete", "tool_call_start"},
		"native": {"run.started", "text.delta", "run.completed"},
		"plain":  {"message_start", "message_stop"},
	}
	ends := map[string]string{"v1": "done", "parts": "session.updated", "agents": "response_complete", "native": string(event.RunCompleted), "plain": "message_stop"}
	for name, l := range ways {
		all := l.rest()
		var kinds []string
		for _, m := range all {
			if m.event != "position" {
				kinds = append(kinds, m.event)
			}
		}
		for _, word := range words[name] {
			if !slices.Contains(kinds, word) {
				t.Errorf("%s says nothing of %s: %q", name, word, kinds)
			}
		}
		if len(kinds) == 0 || kinds[len(kinds)-1] != ends[name] {
			t.Errorf("%s ends with %q", name, kinds)
		}
		for i, m := range all[:len(all)-1] {
			rest := other.listen(path+"?dialect="+name, "Last-Event-ID", m.id).rest()
			if len(rest) != len(all)-i-1 || len(rest) > 0 && rest[0].data != all[i+1].data {
				t.Errorf("%s after %s: %d messages, want %d", name, m.id, len(rest), len(all)-i-1)
			}
		}
	}
	for _, ask := range [][]string{{"?dialect=klingon"}, {"", "Runlog-Dialect", "klingon"}, {"", "Accept", "text/event-stream; dialect=klingon"}} {
		p := as[problem](t, e.get(400, path+ask[0], ask[1:]...))
		for _, name := range []string{"native", "plain", "v1", "parts", "agents", "rpc"} {
			if p.Code != "unknown_dialect" || !slices.Contains(p.Known, name) || !strings.Contains(p.Detail, name) {
				t.Errorf("%v: %+v", ask, p)
			}
		}
	}
}

// queryWins is the stream of a client that names its dialect three times.
func (l *listener) queryWins(e *edgeNode, path string) *listener {
	l.close()
	return e.listen(path, "Runlog-Dialect", "v1", "Accept", "text/event-stream;dialect=parts")
}
