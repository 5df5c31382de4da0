package edge_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/runlog-dev/runlog/edge/auth"
	"github.com/runlog-dev/runlog/edge/dialect/scenarios"
	"github.com/runlog-dev/runlog/event"
)

// A credential is how a client says who it is.
type credential struct {
	name string
	// of returns what goes into the query, and what is done to a request's header.
	of func(key, token string) (query string, header func(http.Header))
}

var credentials = []credential{
	{"a key", func(key, _ string) (string, func(http.Header)) {
		return "", func(h http.Header) { h.Set("Authorization", key) }
	}},
	{"a token in the query", func(_, token string) (string, func(http.Header)) {
		return "access_token=" + token, func(http.Header) {}
	}},
	{"a cookie", func(_, token string) (string, func(http.Header)) {
		return "", func(h http.Header) { h.Set("Cookie", auth.Cookie+"="+token) }
	}},
}

// bearing gives every request its credential.
type bearing struct {
	http.RoundTripper
	set func(http.Header)
}

func (b bearing) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	b.set(r.Header)
	return b.RoundTripper.RoundTrip(r)
}

// Every scenario reads the same over every transport, version of HTTP and
// credential, whole and resumed in the middle on another edge; and no credential is
// in any edge's log.
func TestEveryScenarioEveryWay(t *testing.T) {
	s := newSite(t)
	key := s.key("default")
	plain, secure := s.stage(ways[0]), s.stage(way{tls: true, client: http1})
	secrets := []string{strings.TrimPrefix(key, "Bearer "), "access_token"}
	for n, sc := range scenarios.All() {
		t.Run(sc.Name, func(t *testing.T) {
			session, run := "s-"+sc.Name, "r-"+sc.Name
			s.play(sc, session, run)
			resp := plain.edges[0].do("POST", "/v1/tokens", fmt.Sprintf(`{"session_id":%q}`, session), "Authorization", key)
			token := as[tokenAnswer](t, wantStatus(t, resp, 201)).Token
			secrets = append(secrets, token[:20])
			path := "/v1/runs/" + run + "/events"
			if sc.LogOnly {
				path = "/v1/sessions/" + session + "/events?follow=false"
			}
			var want []message
			for i, w := range ways {
				c := credentials[(i+n)%len(credentials)]
				st := plain
				if w.tls {
					st = secure
				}
				got := st.readTwice(t, w, c, key, token, path)
				if want == nil {
					want = got
				}
				if !slices.Equal(got, want) || len(want) == 0 {
					t.Errorf("%s with %s: %d messages, %d over %s", w.name, c.name, len(got), len(want), ways[0].name)
				}
			}
		})
	}
	for _, e := range slices.Concat(plain.edges, secure.edges) {
		e.records.mu.Lock()
		if !strings.Contains(e.records.buf.String(), "/v1/runs/r-text/events") {
			t.Error("an edge has logged nothing")
		}
		for line := range strings.Lines(e.records.buf.String()) {
			for _, secret := range secrets {
				if strings.Contains(line, secret) {
					t.Errorf("a credential is in the log: %s", line)
				}
			}
		}
		e.records.mu.Unlock()
	}
}

// play writes a scenario as the log of a session.
func (s *site) play(sc scenarios.Scenario, session, run string) {
	s.t.Helper()
	w := s.scribe("default", session)
	for _, step := range sc.Steps(scenarios.Invoke{RunID: run, TraceID: "t", CommandID: run + ".invoke", Agent: "demo", Fold: event.NewSession(session),
		Messages: []event.InputMessage{{MessageID: "m", Role: event.RoleUser, Parts: []event.Part{event.TextPart("x")}}}}) {
		w.write(step.Event)
	}
	s.index(run, session)
}

// readTwice reads a stream whole, and again with a cut in the middle and the rest
// from the other edge, which has to be the same.
func (s *stage) readTwice(t *testing.T, w way, c credential, key, token, path string) []message {
	t.Helper()
	query, header := c.of(key, token)
	client := w.client(s.roots)
	client.Transport = bearing{client.Transport, header}
	t.Cleanup(client.CloseIdleConnections)
	read := func(edge int, after string) []message {
		u, err := url.Parse(s.edges[edge].url + path)
		if err != nil {
			t.Fatal(err)
		}
		u.RawQuery = strings.Trim(u.RawQuery+"&"+query, "&")
		v, err := w.open(t, client, u.String(), after)
		list, err := all(t, v, err)
		var r refused
		if err != nil && (!errors.As(err, &r) || r.status != http.StatusNoContent) {
			t.Fatalf("%s with %s: %v", w.name, c.name, err)
		}
		for i := range list {
			list[i].event = "" // NDJSON has the type in the body alone
		}
		return list
	}
	whole := read(0, "")
	cut := len(whole) / 2
	if rest := read(1, whole[cut].id); !slices.Equal(rest, whole[cut+1:]) {
		t.Errorf("%s with %s: after %s came %d messages, want %d", w.name, c.name, whole[cut].id, len(rest), len(whole)-cut-1)
	}
	return whole
}
