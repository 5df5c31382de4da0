package edge_test

import (
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/runlog-dev/runlog/edge"
)

// A tenant that hammers is told to wait; another one does not notice.
func TestTenantRate(t *testing.T) {
	s := newSite(t)
	a, b := s.key("a"), s.key("b")
	e := s.edge(edge.Options{TenantRate: 5})
	s.scribe("a", "s").write(started("r"))
	refused := 0
	for range 20 {
		resp := e.do("GET", "/v1/agents", "", "Authorization", a)
		if resp.Header.Get("RateLimit-Policy") != `"tenant";q=5;w=60` || !strings.HasPrefix(resp.Header.Get("RateLimit"), `"tenant";r=`) {
			t.Errorf("%v", resp.Header)
		}
		if resp.StatusCode == 429 {
			refused++
			if resp.Header.Get("Retry-After") != "12" || as[problem](t, wantStatus(t, resp, 429)).Code != "rate_limited" {
				t.Errorf("%v", resp.Header)
			}
		}
	}
	if refused < 10 {
		t.Errorf("%d of 20 were refused", refused)
	}
	e.get(429, "/v1/sessions/s/events?follow=0", "Authorization", a)
	c := e.dial("/v1/sessions/s/events", websocket.DialOptions{Subprotocols: []string{"runlog.v1", "bearer." + strings.TrimPrefix(a, "Bearer ")}})
	c.say(`{}`)
	if code := c.closed(); code != 4429 {
		t.Errorf("a WebSocket: %d", code)
	}
	e.get(200, "/v1/agents", "Authorization", b)
	e.get(200, "/healthz")
}

func TestTenantStreams(t *testing.T) {
	s := newSite(t)
	a, b := s.key("a"), s.key("b")
	e := s.edge(edge.Options{TenantStreams: 2})
	s.scribe("a", "s").write(started("r"))
	s.scribe("b", "s").write(started("r"))
	r := as[run](t, wantStatus(t, e.do("POST", "/v1/runs", `{"input":"x"}`, "Authorization", a), 202))
	first := e.listen("/v1/sessions/s/events", "Authorization", a)
	e.listen("/v1/sessions/s/events", "Authorization", a).must()
	e.get(429, "/v1/sessions/s/events", "Authorization", a)
	wantStatus(t, e.do("POST", "/v1/runs/"+r.RunID+"/cancel", "", "Authorization", a), 202)
	e.listen("/v1/sessions/s/events", "Authorization", b).must()
	first.close()
	waitFor(t, func() bool { // its place is free again
		resp := e.do("GET", "/v1/sessions/s/events?follow=0", "", "Authorization", a)
		resp.Body.Close()
		return resp.StatusCode == 200
	})
}
