package edge_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/runlog-dev/runlog/catalog"
	"github.com/runlog-dev/runlog/edge"
	"github.com/runlog-dev/runlog/edge/auth"
	"github.com/runlog-dev/runlog/edge/stream"
	"github.com/runlog-dev/runlog/internal/testservers"
)

// soon is an edge that believes a valid key for half a second.
func soon() edge.Options {
	return edge.Options{Auth: auth.Options{TTL: 500 * time.Millisecond}, Stream: stream.Options{Ping: time.Hour, Heartbeat: time.Hour}}
}

// newKey is key, with what revokes it.
func (s *site) newKey(tenant string) (header string, revoke func()) {
	s.t.Helper()
	secret, key, err := s.catalog.CreateKey(s.t.Context(), tenant, "test", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return "Bearer " + secret, func() {
		s.t.Helper()
		if _, err := s.catalog.RevokeKey(s.t.Context(), tenant, key.ID); err != nil {
			s.t.Fatal(err)
		}
	}
}

// holding is a request that lasts as long as its run, which "hold" makes endless; UNIQUE
// is another word in each.
type holding struct{ method, path, body, accept string }

// held is how it ended.
type held struct {
	what   string
	status int
	said   string
	err    error
}

var holds = []holding{
	{"GET", "/v1/sessions/s/events", "", "text/event-stream"},
	{"GET", "/v1/sessions/s/events", "", "application/x-ndjson"},
	{"GET", "/v1/sessions/s/events?dialect=agui", "", "text/event-stream"},
	{"GET", "/v1/runs/run/events", "", "text/event-stream"},
	{"GET", "/v1/stream?session=s", "", "text/event-stream"},
	{"GET", "/v1/stream?session=s", "", "application/x-ndjson"},
	{"POST", "/v1/runs", `{"input":"hold"}`, "text/event-stream"},
	{"POST", "/v1/runs", `{"input":"hold","on_disconnect":"cancel"}`, "text/event-stream"},
	{"POST", "/v1/runs?wait=5m", `{"input":"hold"}`, "application/json"},
	{"POST", "/chat", `{"user_input":"hold"}`, "application/json"},
	{"POST", "/chat", `{"user_input":"hold","stream":true}`, ""},
	{"POST", "/rpc", call(1, "agent.attach", `{"run_id":"run"}`), ""},
	{"POST", "/rpc", call(1, "agent.invoke", `{"input_text":"hold"}`), ""},
	{"POST", "/mcp", mcpCall(1, "hold", `,"_meta":{"progressToken":1}`), "text/event-stream"},
	{"POST", "/mcp", mcpCall(2, "hold", ""), "application/json"},
	{"POST", "/a2a", call(1, "SendStreamingMessage", a2aSays("UNIQUE", `[{"text":"hold"}]`, "")), ""},
	{"POST", "/a2a", call(1, "SendMessage", a2aSays("UNIQUE", `[{"text":"hold"}]`, "")), ""},
	{"POST", "/agui/demo", `{"threadId":"UNIQUE","runId":"UNIQUE","messages":[{"id":"m","role":"user","content":"hold"}]}`, "text/event-stream"},
	{"POST", "/v1/responses", `{"model":"demo","input":"hold","stream":true}`, ""},
	{"POST", "/v1/responses", `{"model":"demo","input":"hold"}`, ""},
	{"POST", "/v1/chat/completions", `{"model":"demo","stream":true,"messages":[{"role":"user","content":"hold"}]}`, ""},
	{"POST", "/v1/messages", `{"model":"demo","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"hold"}]}`, ""},
	{"POST", "/langgraph/threads/UNIQUE/runs/stream", `{"assistant_id":"demo","if_not_exists":"create","input":{"messages":[{"role":"user","content":"hold"}]}}`, ""},
	{"GET", "/langgraph/threads/s/stream", "", "text/event-stream"},
}

// When a key is revoked, everything that was opened with it ends, in every protocol and
// on every edge, and is counted as that; what came by another key of the tenant goes on.
func TestWhatARevokedKeyOpenedEnds(t *testing.T) {
	s := newSite(t)
	key, revoke := s.newKey("a")
	other, _ := s.newKey("a")
	edges := []*served{s.serve(soon()), s.serve(soon())}
	s.work()
	wantStatus(t, edges[0].do("POST", "/v1/runs", `{"input":"hold","session_id":"s","run_id":"run"}`, "Authorization", key), 202)
	begun := edges[0].listen("/v1/runs/run/events", "Authorization", other)
	begun.must()
	begun.close()

	ends := make(chan held, 100)
	var opened int
	for i, h := range holds {
		for _, client := range []*http.Client{http1(nil), http2(nil)} {
			opened++
			mine := h
			mine.body = strings.ReplaceAll(h.body, "UNIQUE", fmt.Sprint("u", opened))
			mine.path = strings.ReplaceAll(h.path, "UNIQUE", fmt.Sprint("u", opened))
			go func() { ends <- mine.by(t, client, edges[i%2].url, key) }()
		}
	}
	token := as[tokenAnswer](t, wantStatus(t, edges[0].do("POST", "/v1/tokens", `{"session_id":"s"}`, "Authorization", key), 201)).Token
	byOther := edges[1].listen("/v1/sessions/s/events", "Authorization", other)
	byToken := edges[1].listen("/v1/sessions/s/events?access_token=" + token)
	sockets := []*caller{
		edges[0].dial("/v1/sessions/s/events?after=0", websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {key}}}),
		edges[1].dial("/v1/stream?session=s&after=0&access_token="+strings.TrimPrefix(key, "Bearer "), websocket.DialOptions{}),
		edges[1].dial("/v1/runs/run/events?after=0&access_token="+token, websocket.DialOptions{}),
	}
	waitFor(t, func() bool {
		return edges[0].srv.Holds().Streams+edges[1].srv.Holds().Streams >= int64(opened+2+len(sockets))
	})
	select {
	case e := <-ends:
		t.Fatalf("ended before anything was revoked: %+v", e)
	case <-time.After(3 * soon().Auth.TTL): // the catalog was asked meanwhile
	}
	byOther.must()

	revoke()
	streams := 1 + len(sockets)
	for range opened {
		switch e := <-ends; {
		case e.err != nil && e.status == 200: // aborted
			streams++
		case e.err == nil && strings.Contains(e.said, auth.ErrRevoked.Error()): // a wait is told
		default:
			t.Errorf("%s: %d, %v: %.200s", e.what, e.status, e.err, e.said)
		}
	}
	for {
		if _, err := byToken.next(); err != nil {
			if err == io.EOF {
				t.Error("a stream by token has come to its end")
			}
			break
		}
	}
	for _, c := range sockets {
		if code := c.closed(); code != 4401 {
			t.Errorf("a WebSocket was closed with %d", code)
		}
	}
	for _, e := range edges {
		for _, with := range []string{token, strings.TrimPrefix(key, "Bearer ")} {
			e.get(401, "/v1/sessions/s/events?access_token="+with, "Last-Event-ID", "1")
		}
	}
	waitFor(t, func() bool { return edges[0].endings()["revoked"]+edges[1].endings()["revoked"] == float64(streams) })
	waitFor(t, func() bool { return edges[0].srv.Holds().Streams+edges[1].srv.Holds().Streams == 1 })
	s.scribe("a", "s").write(said("run", "on"))
	for byOther.must().event != "text.delta" {
	}
}

// by has a request with a key go on until it ends.
func (h holding) by(t *testing.T, client *http.Client, url, key string) (e held) {
	defer client.CloseIdleConnections()
	e.what = fmt.Sprintf("%s %s %s %s", h.method, h.path, h.accept, h.body)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, h.method, url+h.path, strings.NewReader(h.body))
	if err != nil {
		return held{err: err}
	}
	req.Header.Set("Authorization", key)
	if h.accept != "" {
		req.Header.Set("Accept", h.accept)
	}
	resp, err := client.Do(req)
	if err != nil {
		e.err = err
		return e
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	e.status, e.said, e.err = resp.StatusCode, string(said), err
	return e
}

// endings are the streams that have ended, by why.
func (e *served) endings() map[string]float64 {
	e.t.Helper()
	families, err := e.metrics.Gather()
	if err != nil {
		e.t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "runlog_edge_streams_ended_total" {
				all[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	return all
}

// A token opens streams until it expires; one that it has opened goes on until its key is
// revoked, and so does one by a cookie.
func TestStreamsOutliveTheirTokenButNotItsKey(t *testing.T) {
	s := newSite(t)
	key, revoke := s.newKey("a")
	w := s.scribe("a", "s")
	w.write(started("r"))
	e := s.serve(soon())
	token := as[tokenAnswer](t, wantStatus(t, e.do("POST", "/v1/tokens", `{"session_id":"s","ttl":"4s"}`, "Authorization", key), 201))
	all := []*listener{e.listen("/v1/sessions/s/events?access_token=" + token.Token), e.listen("/v1/sessions/s/events", "Cookie", auth.Cookie+"="+token.Token)}
	time.Sleep(time.Until(token.ExpiresAt))
	e.get(401, "/v1/sessions/s/events?access_token="+token.Token)
	w.write(said("r", "on"))
	for _, l := range all {
		for l.must().event != "text.delta" {
		}
	}
	revoke()
	for _, l := range all {
		if m, err := l.next(); err == nil || err == io.EOF {
			t.Errorf("it goes on after its key: %v, %v", m, err)
		}
	}
	waitFor(t, func() bool { return e.endings()["revoked"] == 2 })
	for _, r := range e.records.of("/v1/sessions/s/events") {
		if r["ended"] == "revoked" && (r["tenant"] != "a" || !strings.HasPrefix(fmt.Sprint(r["key"]), "key_")) {
			t.Errorf("the record is %v", r)
		}
	}
}

// A restart of PostgreSQL ends no stream; what was revoked before it ends when it is back.
func TestARestartOfTheCatalogEndsNoStream(t *testing.T) {
	s := newSite(t)
	server := testservers.StartPostgres(t)
	db, err := catalog.Open(t.Context(), server.URL(), catalog.Options{Migrate: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	s.catalog = db
	key, revoke := s.newKey("a")
	other, _ := s.newKey("a")
	w := s.scribe("a", "s")
	w.write(started("r"))
	e := s.serve(soon())
	one, stays := e.listen("/v1/sessions/s/events", "Authorization", key), e.listen("/v1/sessions/s/events", "Authorization", other)
	c := e.dial("/v1/sessions/s/events?after=0", websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {key}}})
	server.Stop()
	time.Sleep(4 * soon().Auth.TTL) // it is asked in vain meanwhile
	w.write(said("r", "still"))
	for _, l := range []*listener{one, stays} {
		for l.must().event != "text.delta" {
		}
	}
	c.until(func(m socketMessage) bool { return m.Event == "text.delta" })
	e.get(200, "/v1/sessions/s/events?follow=false", "Authorization", key)
	server.Start()
	revoke()
	if m, err := one.next(); err == nil || err == io.EOF {
		t.Errorf("it goes on: %v, %v", m, err)
	}
	if code := c.closed(); code != 4401 {
		t.Errorf("the WebSocket was closed with %d", code)
	}
	e.get(401, "/v1/sessions/s/events", "Authorization", key)
	w.write(said("r", "on"))
	stays.must()
}

// The first key ends what could be opened without one.
func TestTheFirstKeyEndsOpenStreams(t *testing.T) {
	s := newSite(t)
	s.scribe("default", "s").write(started("r"))
	e := s.serve(soon())
	l := e.listen("/v1/sessions/s/events")
	l.must()
	c := e.dial("/v1/sessions/s/events?after=0", websocket.DialOptions{})
	c.until(func(m socketMessage) bool { return m.Event == "run.started" })
	s.key("default")
	if m, err := l.next(); err == nil || err == io.EOF {
		t.Errorf("it goes on: %v, %v", m, err)
	}
	if code := c.closed(); code != 4401 {
		t.Errorf("the WebSocket was closed with %d", code)
	}
	e.get(401, "/v1/sessions/s/events")
}

// Thousands of parked streams of a key do not end at once, and do not come to the catalog
// when they come back.
func TestManyStreamsOfARevokedKeyEndInTurn(t *testing.T) {
	const n, rate = 2000, 1000
	s := newSite(t)
	key, revoke := s.newKey("a")
	s.scribe("a", "s").write(started("r"))
	opts := soon()
	opts.DrainRate = rate
	e := s.serve(opts)
	request := fmt.Sprintf("GET /v1/sessions/s/events HTTP/1.1\r\nHost: x\r\nAuthorization: %s\r\n\r\n", key)
	ends := make(chan time.Time, n)
	for range n {
		conn := e.connect()
		if _, err := io.WriteString(conn, request); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || resp.StatusCode != 200 {
			t.Fatal(resp, err)
		}
		go func() {
			_, err := io.Copy(io.Discard, resp.Body)
			at := time.Now()
			if err == nil {
				t.Error("a stream has come to its proper end")
			}
			again, err := http.DefaultTransport.RoundTrip(mustRequest(e.url+"/v1/sessions/s/events", key))
			if err != nil || again.StatusCode != 401 {
				t.Errorf("it came back to %v, %v", again, err)
			} else {
				again.Body.Close()
			}
			ends <- at
		}()
	}
	waitFor(t, func() bool { return e.srv.Parked() == n })
	revoke()
	var at []time.Time
	for range n {
		at = append(at, <-ends)
	}
	slices.SortFunc(at, time.Time.Compare)
	if took := at[n-1].Sub(at[0]); took < n*time.Second/rate/2 {
		t.Errorf("%d streams ended within %s", n, took)
	}
	waitFor(t, func() bool { return e.endings()["revoked"] == n && e.srv.Parked() == 0 })
}

func mustRequest(url, key string) *http.Request {
	r, err := http.NewRequest("GET", url, nil)
	if err != nil {
		panic(err)
	}
	r.Header.Set("Authorization", key)
	return r
}
