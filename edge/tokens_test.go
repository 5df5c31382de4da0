package edge_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/edge"
	"github.com/runlog-dev/runlog/edge/auth"
)

type tokenAnswer struct {
	Token     string    `json:"token"`
	ExpiresAt time.Time `json:"expires_at"`
}

// A token opens the streams it is for, on every edge, and nothing else.
func TestTokensAreForOneThing(t *testing.T) {
	s := newSite(t)
	key, other := s.key("a"), s.key("b")
	one, two := s.serve(edge.Options{}), s.serve(edge.Options{})
	s.work()
	for _, session := range []string{"s1", "s2"} {
		wantStatus(t, one.do("POST", "/v1/runs?wait=20s", `{"input":"x","session_id":"`+session+`","run_id":"run_`+session+`"}`, "Authorization", key), 200)
	}
	wantStatus(t, one.do("POST", "/v1/runs?wait=20s", `{"input":"x","session_id":"s1","run_id":"run_b"}`, "Authorization", other), 200)
	token := func(body string) string {
		return as[tokenAnswer](t, wantStatus(t, one.do("POST", "/v1/tokens", body, "Authorization", key), 201)).Token
	}
	session, run := token(`{"session_id":"s1"}`), token(`{"run_id":"run_s1","ttl":"1h"}`)
	for _, c := range []struct {
		token, path string
		status      int
	}{
		{session, "/v1/sessions/s1/events?follow=false", 200},
		{session, "/v1/runs/run_s1/events?follow=false", 200},
		{session, "/v1/sessions/s2/events?follow=false", 404},
		{session, "/v1/runs/run_s2/events?follow=false", 404},
		{session, "/v1/runs/run_b/events?follow=false", 404},
		{session, "/v1/sessions/s1/events?follow=false&include=internal", 403},
		{run, "/v1/runs/run_s1/events?follow=false", 200},
		{run, "/v1/runs/run_s2/events?follow=false", 404},
		{run, "/v1/sessions/s1/events?follow=false", 404},
		{session, "/v1/sessions/s1/snapshot?", 401},
		{session, "/v1/runs/run_s1?", 401},
		{session, "/v1/runs?", 401},
		{session[:len(session)-1], "/v1/sessions/s1/events?follow=false", 401},
		{session[:8] + "A" + session[9:], "/v1/sessions/s1/events?follow=false", 401},
	} {
		resp := two.do("GET", c.path+"&access_token="+c.token, "")
		if wantStatus(t, resp, c.status); t.Failed() {
			return
		}
	}
	wantStatus(t, two.do("POST", "/v1/runs/run_s1/cancel?access_token="+session, ""), 401)
	wantStatus(t, two.do("POST", "/v1/tokens?access_token="+session, `{"session_id":"s1"}`), 401)
	wantStatus(t, two.do("GET", "/v1/runs", "", "Authorization", "Bearer "+session), 401)
	for _, bad := range []string{`{}`, `{"session_id":"a","run_id":"b"}`, `{"session_id":"a","ttl":"2h"}`, `{"session_id":"a","ttl":"x"}`, `{"session_id":"a/b"}`} {
		wantStatus(t, one.do("POST", "/v1/tokens", bad, "Authorization", key), 400)
	}
	for _, e := range []*served{one, two} {
		e.records.mu.Lock()
		if logged := e.records.buf.String(); strings.Contains(logged, session[:20]) || strings.Contains(logged, "access_token") {
			t.Error("a token was logged")
		}
		e.records.mu.Unlock()
	}
}

func TestTokensExpire(t *testing.T) {
	secret := []byte("secret")
	now := time.Now()
	token := auth.Grant{Tenant: "a", Session: "s", Expires: now.Unix() + 60}.Sign(secret)
	if g, ok := auth.ReadToken(secret, token, now); !ok || g.Session != "s" {
		t.Errorf("%+v %v", g, ok)
	}
	if _, ok := auth.ReadToken(secret, token, now.Add(61*time.Second)); ok {
		t.Error("it did not expire")
	}
	if _, ok := auth.ReadToken([]byte("other"), token, now); ok {
		t.Error("another installation takes it")
	}
}

// Who has a token is told what to do about it, and is not sent for an API key.
func TestATokenThatIsNotValidIsSaidToBeOne(t *testing.T) {
	s := newSite(t)
	s.key("a")
	e := s.edge(edge.Options{})
	token := auth.Grant{Tenant: "a", Session: "s", Expires: time.Now().Unix() - 1}.Sign([]byte("secret"))
	if got := string(e.get(401, "/v1/sessions/s/events?access_token="+token)); !strings.Contains(got, "/v1/tokens") || strings.Contains(got, "Bearer rl_") {
		t.Error(got)
	}
}

// A cookie serves pages of the edge's own host, and those of named origins, to
// follow; it commands nothing.
func TestCookies(t *testing.T) {
	s := newSite(t)
	key := s.key("a")
	e := s.edge(edge.Options{Origins: []string{"https://app.example"}})
	s.scribe("a", "s").write(started("r"))
	resp := e.do("POST", "/v1/tokens", `{"session_id":"s","cookie":true}`, "Authorization", key, "X-Forwarded-Proto", "https")
	wantStatus(t, resp, 201)
	cookie := resp.Cookies()[0]
	if !cookie.HttpOnly || !cookie.Secure || cookie.SameSite != http.SameSiteStrictMode {
		t.Errorf("%v", cookie)
	}
	path, header := "/v1/sessions/s/events?follow=false", cookie.Name+"="+cookie.Value
	e.get(200, path, "Cookie", header)
	e.get(200, path, "Cookie", header, "Origin", e.url)
	got := e.do("GET", path, "", "Cookie", header, "Origin", "https://app.example")
	if wantStatus(t, got, 200); got.Header.Get("Access-Control-Allow-Credentials") != "true" {
		t.Errorf("%v", got.Header)
	}
	got = e.do("GET", path, "", "Cookie", header, "Origin", "https://evil.example")
	if wantStatus(t, got, 403); got.Header.Get("Access-Control-Allow-Credentials") != "" {
		t.Errorf("%v", got.Header)
	}
	wantStatus(t, e.do("POST", "/v1/runs/r/cancel", "", "Cookie", header), 401)
	e.get(401, "/v1/runs", "Cookie", header)
	e.get(401, path, "Cookie", cookie.Name+"="+strings.TrimPrefix(key, "Bearer ")) // no key in a cookie
}
