package edge_test

import (
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/runlog-dev/runlog/catalog"
	"github.com/runlog-dev/runlog/edge"
	"github.com/runlog-dev/runlog/edge/auth"
	"github.com/runlog-dev/runlog/eventlog"
)

// key creates a key and returns the header that presents it.
func (s *site) key(tenant string, scopes ...string) string {
	s.t.Helper()
	secret, _, err := s.catalog.CreateKey(s.t.Context(), tenant, "test", scopes)
	if err != nil {
		s.t.Fatal(err)
	}
	return "Bearer " + secret
}

// Another tenant's ids are not there, on every route, and learn nothing from how
// that is said.
func TestTenantWalls(t *testing.T) {
	s := newSite(t)
	a, b := s.key("a", auth.Audit), s.key("b", auth.Audit)
	e := s.edge(edge.Options{})
	s.work()
	body := `{"input":"secret of a","session_id":"ses","run_id":"run","trace_id":"trace"}`
	wantStatus(t, e.do("POST", "/v1/runs?wait=30s", body, "Authorization", a), 200)
	s.project("a", "ses")
	art := as[struct {
		ID string `json:"artifact_id"`
	}](t, wantStatus(t, e.do("POST", "/v1/artifacts?name=x", "secret of a", "Authorization", a), 201)).ID
	for _, route := range []string{
		"GET /v1/runs/run", "GET /v1/runs/run/events", "GET /v1/runs/run/events?follow=false&include=internal", "POST /v1/runs/run/cancel",
		"GET /v1/sessions/ses", "GET /v1/sessions/ses/events", "GET /v1/sessions/ses/events?snapshot=1", "GET /v1/sessions/ses/snapshot",
		"GET /v1/sessions/ses/messages", "GET /v1/sessions/ses/messages?format=openai",
		"GET /v1/traces/trace", "GET /v1/traces/trace/events", "GET /artifacts/" + art, "HEAD /artifacts/" + art, "GET /v1/artifacts/" + art,
	} {
		method, path, _ := strings.Cut(route, " ")
		own := e.do(method, path, "", "Authorization", a, "Accept", "*/*")
		if own.StatusCode != 200 {
			t.Errorf("%s: the owner gets %d", route, own.StatusCode)
		}
		resp := e.do(method, path, "", "Authorization", b)
		got := string(wantStatus(t, resp, 404))
		if strings.Contains(got, "secret") || !strings.Contains(got, "not_found") && method != "HEAD" {
			t.Errorf("%s: %s", route, got)
		}
		wantStatus(t, e.do(method, path, ""), 401)
		wantStatus(t, e.do(method, path, "", "Authorization", "Bearer rl_guess"), 401)
	}
	if list := string(wantStatus(t, e.do("GET", "/v1/runs", "", "Authorization", b), 200)); strings.Contains(list, `"run"`) {
		t.Errorf("b lists %s", list)
	}
	// The same ids, created by b, are b's own.
	mine := as[run](t, wantStatus(t, e.do("POST", "/v1/runs?wait=30s", `{"input":"of b","session_id":"ses","run_id":"run"}`, "Authorization", b, "Idempotency-Key", "k"), 200))
	if mine.SessionID != "ses" {
		t.Errorf("%+v", mine)
	}
	for who, want := range map[string]string{a: "secret of a", b: "of b"} {
		got := string(wantStatus(t, e.do("GET", "/v1/sessions/ses/snapshot", "", "Authorization", who), 200))
		if !strings.Contains(got, "you said: "+want) || who == b && strings.Contains(got, "secret") {
			t.Errorf("got %s", got)
		}
	}
}

// project brings a session into the catalog, as the recorder does.
func (s *site) project(tenant, session string) {
	s.t.Helper()
	k := eventlog.Key{Tenant: tenant, Session: session}
	head, err := s.log.Head(s.t.Context(), k)
	if err != nil {
		s.t.Fatal(err)
	}
	for f, err := range s.log.Read(s.t.Context(), k, 0, head) {
		if err != nil {
			s.t.Fatal(err)
		}
		events, err := f.Events()
		if err == nil {
			err = s.catalog.Apply(s.t.Context(), tenant, events)
		}
		if err != nil {
			s.t.Fatal(err)
		}
	}
}

func TestInternalEventsNeedTheScope(t *testing.T) {
	s := newSite(t)
	plain, audit := s.key("a"), s.key("a", auth.Audit)
	e := s.edge(edge.Options{})
	s.scribe("a", "s").write(hiddenEvent())
	for _, path := range []string{"/v1/sessions/s/events?follow=false&include=internal", "/v1/sessions/s/snapshot?include=internal", "/v1/sessions/s/messages?include=internal"} {
		p := as[problem](t, wantStatus(t, e.do("GET", path, "", "Authorization", plain), 403))
		if p.Code != "forbidden" {
			t.Errorf("%+v", p)
		}
		wantStatus(t, e.do("GET", path, "", "Authorization", audit), 200)
	}
	wantStatus(t, e.do("GET", "/v1/agents", "", "X-Api-Key", strings.TrimPrefix(plain, "Bearer ")), 200)
}

// Whoever can be reached by others does not start without keys.
func TestPublicListenerWithoutKeysIsRefused(t *testing.T) {
	s := newSite(t)
	ln, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	for _, db := range []*catalog.DB{nil, s.catalog} {
		err = edge.New(edge.Deps{Log: s.log, Catalog: db}, edge.Options{}).Run(t.Context(), ln)
		if err == nil || !strings.Contains(err.Error(), "runlog keys create") {
			t.Errorf("got %v", err)
		}
	}
	if _, err := ln.Accept(); err == nil {
		t.Error("the listener is still open")
	}
}

// The first key closes an edge that was open.
func TestAnEdgeWithoutKeysIsForThisMachine(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{})
	e.get(200, "/v1/agents")
	e.get(200, "/v1/agents", "Authorization", "Bearer whatever-an-SDK-sends")
	e.get(200, "/v1/agents", "Origin", "http://localhost:3000")
	if p := as[problem](t, e.get(403, "/v1/agents", "Origin", "https://evil.example")); p.Code != "forbidden" {
		t.Errorf("%+v", p)
	}
	resp := e.do("POST", "/v1/runs", `{"input":"x"}`, "Origin", "https://evil.example", "Content-Type", "text/plain")
	wantStatus(t, resp, 403)
	if got := resp.Header.Get("Access-Control-Allow-Origin"); got != "" {
		t.Errorf("allowed %q", got)
	}
	wantStatus(t, e.doHost("evil.example"), 403)
	wantStatus(t, e.doHost("localhost:8080"), 200)
	wantStatus(t, e.doHost("edge-1:8080"), 200) // a container
}

func TestPreflight(t *testing.T) {
	s := newSite(t)
	s.key("a")
	e := s.edge(edge.Options{Origins: []string{"https://app.example"}})
	resp := e.do("OPTIONS", "/v1/runs", "", "Origin", "https://app.example", "Access-Control-Request-Method", "POST",
		"Access-Control-Request-Headers", "authorization,last-event-id,idempotency-key")
	wantStatus(t, resp, 204)
	for name, want := range map[string]string{
		"Access-Control-Allow-Origin": "https://app.example", "Access-Control-Max-Age": "7200",
		"Access-Control-Allow-Headers": "authorization,last-event-id,idempotency-key",
	} {
		if got := resp.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got := e.do("OPTIONS", "/v1/runs", "", "Origin", "https://other.example").Header.Get("Access-Control-Allow-Origin"); got != "" {
		t.Errorf("another origin is allowed: %q", got)
	}
	got := e.do("GET", "/v1/agents", "", "Origin", "https://app.example") // 401, and readable
	if got.Header.Get("Access-Control-Allow-Origin") == "" {
		t.Errorf("%v", got.Header)
	}
	exposed := strings.Split(got.Header.Get("Access-Control-Expose-Headers"), ", ")
	for _, name := range []string{"Location", "Content-Location", "ETag", "Content-Range", "Retry-After", "RateLimit", "RateLimit-Policy", "X-Request-Id",
		"Runlog-Run-Id", "Runlog-Session-Id", "Runlog-Trace-Id", "Mcp-Session-Id", "X-Vercel-AI-UI-Message-Stream"} {
		if !slices.Contains(exposed, name) {
			t.Errorf("pages of other origins cannot read %s", name)
		}
	}
}
