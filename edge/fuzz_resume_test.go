package edge_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/runlog-dev/runlog/edge"
	"github.com/runlog-dev/runlog/edge/stream"
	"github.com/runlog-dev/runlog/event"
)

// Whatever a client sends to resume by, it is told what is wrong, or gets what
// follows its cursor, once and in order.
func FuzzResume(f *testing.F) {
	s := newSite(f)
	w := s.scribe("default", "s")
	w.write(started("r"), said("r", "a\r\n\u2028"), hiddenEvent(), said("r", "b"), completed("r"))
	e := s.edge(edge.Options{})
	e.get(200, "/healthz") // it runs
	for _, seed := range []struct{ id, query, accept string }{
		{"", "", ""}, {"3", "", "text/event-stream"}, {"0", "after=4", "application/x-ndjson"}, {"2.0", "catchup=merged", "*/*"}, {"-1", "", ""}, {"6", "", ""},
		{"18446744073709551615", "snapshot=1", ""}, {"4", "catchup=snapshot&after=9", "text/event-stream;dialect=v1"}, {"", "after=1&last_event_id=2&include=internal", ""}, {"1", "dialect=agui&follow=false", "text/html, */*;q=0.1"},
	} {
		f.Add(seed.id, seed.query, seed.accept)
	}
	f.Fuzz(func(t *testing.T, id, query, accept string) {
		q, err := url.ParseQuery(query)
		if err != nil || strings.ContainsAny(id+accept, "\r\n\x00") { // what no HTTP server would let through
			return
		}
		q.Set("follow", "false")
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/v1/sessions/s/events?"+q.Encode(), nil)
		r.Host, r.RemoteAddr = "127.0.0.1", "127.0.0.1:1"
		r.Header["Last-Event-Id"], r.Header["Accept"] = []string{id}, []string{accept}
		answer := httptest.NewRecorder()
		e.srv.Handler().ServeHTTP(answer, r)
		switch answer.Code {
		case http.StatusOK:
			checkResumed(t, answer, cursorOf(id, q))
		case http.StatusBadRequest, http.StatusForbidden, http.StatusNotAcceptable, http.StatusConflict:
			if p := as[problem](t, answer.Body.Bytes()); p.Code == "" || p.Detail == "" {
				t.Errorf("%d without a reason: %s", answer.Code, answer.Body)
			}
		default:
			t.Errorf("%q %q %q: %d %s", id, query, accept, answer.Code, answer.Body)
		}
	})
}

func cursorOf(id string, q url.Values) string {
	for _, c := range []string{id, q.Get("after"), q.Get("last_event_id")} {
		if c != "" {
			return c
		}
	}
	return ""
}

// checkResumed: what is said in SSE comes after the cursor, in order.
func checkResumed(t *testing.T, answer *httptest.ResponseRecorder, cursor string) {
	t.Helper()
	at, err := stream.ParsePosition(cursor)
	if err != nil {
		t.Fatalf("%q was taken for a cursor", cursor)
	}
	last := at
	for line := range strings.Lines(answer.Body.String()) {
		id, ok := strings.CutPrefix(line, "id: ")
		if !ok {
			continue
		}
		next, err := stream.ParsePosition(strings.TrimSpace(id))
		if err != nil {
			return // a dialect with numbers of its own
		}
		if next.Seq < last.Seq || next == last {
			t.Fatalf("%v after %v: %s", next, last, answer.Body)
		}
		last = next
	}
	if last.Seq > event.Seq(5) {
		t.Fatalf("%v is beyond the log", last)
	}
}
