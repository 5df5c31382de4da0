package edge_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/runlog-dev/runlog/edge"
	"github.com/runlog-dev/runlog/edge/auth"
	"github.com/runlog-dev/runlog/edge/room"
	"github.com/runlog-dev/runlog/edge/stream"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// What a client says last, and then leaves, is done: a page that is closed right
// after "cancel" has cancelled.
func TestCommandsOutliveTheirSocket(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{})
	s.settling()
	const each = 10
	for i := range 2 * each {
		c := e.dial("/v1/sessions/ses_settle/events?after=0", websocket.DialOptions{})
		c.say(fmt.Sprintf(`{"id":"c","do":"steer","run_id":"run_w","idempotency_key":"%d","body":{"input":"x"}}`, i))
		if i < each {
			_ = c.conn.Close(websocket.StatusNormalClosure, "")
		} else {
			_ = c.conn.CloseNow()
		}
	}
	var waiting []eventlog.Waiting
	waitFor(t, func() (all bool) {
		var err error
		waiting, err = s.log.Inbox(t.Context(), s.scribe("default", "ses_settle").k)
		return err == nil && len(waiting) == 2*each
	})
}

// Who asks for the end of the run that a WebSocket shows gets the answer before it
// is closed, and one to everything else.
func TestAnswersComeBeforeTheEnd(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{})
	s.work()
	for range 10 {
		r := as[run](t, wantStatus(t, e.do("POST", "/v1/runs", `{"input":"hold"}`), 202))
		c := e.dial("/v1/runs/"+r.RunID+"/events?after=0", websocket.DialOptions{})
		c.until(func(m socketMessage) bool { return m.Event == "run.started" })
		c.say(`{"id":"2","do":"approve","call_id":"none"}`)
		c.say(`{"id":"1","do":"cancel","body":{"wait":true}}`)
		answered := map[string]int{}
		for {
			m, err := c.hear()
			if err != nil {
				if code := websocket.CloseStatus(err); code != websocket.StatusNormalClosure {
					t.Errorf("closed with %d", code)
				}
				break
			}
			if m.Answer != "" {
				answered[m.Answer] = m.Status
			}
		}
		if answered["1"] != 200 || answered["2"] != 404 {
			t.Fatalf("answers %v", answered)
		}
	}
}

// Each command asks anew who calls: one that comes after its token has expired is refused,
// while the stream goes on; after its key was revoked there is none either.
func TestCommandsAskWhoCalls(t *testing.T) {
	s := newSite(t)
	secret, made, err := s.catalog.CreateKey(t.Context(), "a", "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	key := "Bearer " + secret
	const ttl = time.Millisecond
	e := s.edge(edge.Options{Auth: auth.Options{TTL: ttl}})
	w := s.scribe("a", "s")
	w.write(started("r"))
	resp := e.do("POST", "/v1/tokens", `{"session_id":"s","commands":true,"ttl":"2s"}`, "Authorization", key)
	token := as[tokenAnswer](t, wantStatus(t, resp, 201))
	byToken := e.dial("/v1/sessions/s/events", websocket.DialOptions{})
	byToken.say(`{"after":"0","token":"` + token.Token + `"}`)
	byCookie := e.dial("/v1/sessions/s/events?after=0", websocket.DialOptions{HTTPHeader: http.Header{"Cookie": {auth.Cookie + "=" + token.Token}}})
	byKey := e.dial("/v1/sessions/s/events?after=0", websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {key}}})
	all := []*caller{byToken, byCookie, byKey}
	for _, c := range all {
		if m := c.ask("early", `"do":"cancel","run_id":"r"`); m.Status != 404 {
			t.Errorf("early: %d %s", m.Status, m.Body) // it was let in, and there is no such run in the index
		}
	}
	time.Sleep(time.Until(token.ExpiresAt))
	for _, c := range []*caller{byToken, byCookie} {
		if m := c.ask("late", `"do":"cancel","run_id":"r"`); m.Status != 401 {
			t.Errorf("late: %d %s", m.Status, m.Body)
		}
	}
	w.write(said("r", "on"))
	for _, c := range all {
		c.until(func(m socketMessage) bool { return m.Event == "text.delta" })
	}
	if _, err := s.catalog.RevokeKey(t.Context(), "a", made.ID); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * ttl) // so long the key is still believed to be valid
	for _, c := range all {
		_ = c.conn.Write(t.Context(), websocket.MessageText, []byte(`{"id":"after","do":"cancel","run_id":"r"}`))
		for {
			m, err := c.hear()
			if m.Answer == "after" && m.Status != 401 {
				t.Errorf("after: %d %s", m.Status, m.Body)
			}
			if err != nil {
				if code := websocket.CloseStatus(err); code != 4401 {
					t.Errorf("closed with %d: %v", code, err)
				}
				break
			}
		}
	}
}

// A command is a request like any other: it counts where requests are limited, even
// if nothing can be made of it.
func TestCommandsCountAsRequests(t *testing.T) {
	s := newSite(t)
	e := s.serve(edge.Options{TenantRate: 20})
	s.scribe("default", "s").write(started("r"))
	c := e.dial("/v1/sessions/s/events?after=0", websocket.DialOptions{})
	got := map[int]int{}
	for i := range 40 {
		rest := `"do":"steer","run_id":"r"`
		if i%2 == 0 {
			rest = `"what":1`
		}
		m := c.ask(fmt.Sprint("c", i), rest)
		got[m.Status]++
		if (m.Status == 429) != (m.RetryAfter > 0) {
			t.Errorf("%+v", m)
		}
	}
	if got[429] < 15 || got[429] > 25 {
		t.Errorf("answers %v", got)
	}
}

// Commands that take their time do not keep the edge from hearing that their client
// lives; those beyond what it holds are refused.
func TestCommandsThatWaitDoNotDeafen(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const timeout = time.Second
	e := s.serve(edge.Options{SocketPing: 20 * time.Millisecond, Stream: stream.Options{WriteTimeout: timeout}})
	w := s.scribe("default", "s")
	w.write(started("r"))
	s.index("r", "s")
	c := e.dial("/v1/sessions/s/events?after=0", websocket.DialOptions{})
	heard := make(chan socketMessage, 200)
	go func() { // answers pings meanwhile
		defer close(heard)
		for {
			m, err := c.hear()
			if err != nil {
				return
			}
			heard <- m
		}
	}()
	const held = 64
	for i := range held + 1 {
		c.say(fmt.Sprintf(`{"id":"c%d","do":"stop","run_id":"r","body":{"wait":true}}`, i))
	}
	time.Sleep(2 * timeout) // of silence, in which pings have to be answered
	w.write(completed("r"))
	got := map[int]int{}
	for got[200]+got[429] < held+1 {
		m, ok := <-heard
		if !ok {
			t.Fatalf("the WebSocket was closed after the answers %v", got)
		}
		if m.Answer != "" {
			got[m.Status]++
		}
	}
	if got[200] != held {
		t.Errorf("answers %v", got)
	}
}

// Messages that are begun and not ended count as the bodies that they are, before
// anybody has said who he is.
func TestUnfinishedMessagesCountAsBodies(t *testing.T) {
	s := newSite(t)
	s.key("a")
	const each = 200 << 10
	memory := (room.InUse() + 64<<20) * 100 / 85 // a WebSocket needs some that is free
	n := int(memory / 4 / each)                  // an eighth is for bodies, a tenant may have half of that
	e := s.serve(edge.Options{Memory: memory})
	s.scribe("a", "s").write(started("r"))
	closed := 0
	var open []net.Conn
	for range n {
		conn := e.connect()
		open = append(open, conn)
		const header, mask = "\x81\xff\x00\x00\x00\x00\x00\x03\xff\xff", "\x00\x00\x00\x00"
		_, _ = io.WriteString(conn, rawHandshake("/v1/sessions/s/events")+header+mask+strings.Repeat(" ", each)) // it may be refused meanwhile
	}
	waitFor(t, func() bool { return int(e.refusals("bodies")) >= n/2 })
	for _, conn := range slices.Backward(open) { // the last ones first: the first ones are not closed
		if closed >= n/2 {
			break
		}
		_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		if answer, _ := io.ReadAll(conn); strings.Contains(string(answer), "\x03\xf5") { // 1013
			closed++
		}
	}
	if closed < n/2 {
		t.Errorf("%d of %d were closed with 1013", closed, n)
	}
}

func rawHandshake(path string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
}

// HEAD of a stream is its header and nothing more: whatever follows on the connection
// is answered, and a client that has left holds nothing.
func TestHeadOfAStream(t *testing.T) {
	s := newSite(t)
	s.scribe("default", "s").write(started("r"))
	s.index("r", "s")
	for _, w := range []way{ways[0], ways[1], ways[3], ways[5], ways[7]} {
		st := s.stageOf(w, edge.Options{}, 1)
		for _, path := range []string{"/v1/sessions/s/events", "/v1/runs/r/events", "/v1/stream?session=s"} {
			req, err := http.NewRequestWithContext(t.Context(), "HEAD", st.edges[0].url+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Accept", w.accept)
			resp, err := st.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";"); resp.StatusCode != 200 || kind != w.accept {
				t.Errorf("%s, %s: %s %v", w.name, path, resp.Status, resp.Header)
			}
		}
		waitFor(t, func() bool { _, n := st.edges[0].sample("open_streams"); return n == 0 })
	}
	e := s.serve(edge.Options{})
	conn := e.connect()
	head := "HEAD /v1/sessions/s/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
	if _, err := io.WriteString(conn, head+head+strings.ReplaceAll(head, "HEAD /v1/sessions/s/events", "GET /healthz")); err != nil {
		t.Fatal(err)
	}
	rd := bufio.NewReader(conn)
	for _, method := range []string{"HEAD", "HEAD", "GET"} {
		resp, err := http.ReadResponse(rd, &http.Request{Method: method})
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("%v %v", resp, err)
		}
		resp.Body.Close()
	}
}

// What is decided about a call that waits no longer, since its run has ended
// meanwhile, is refused, not kept.
func TestADecisionThatComesTooLate(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{})
	s.settling()
	answer := make(chan *http.Response, 1)
	go func() { answer <- e.do("POST", "/v1/runs/run_w/approvals/ask", `{"decision":"approve"}`) }()
	w := s.scribe("default", "ses_settle")
	waitFor(t, func() bool {
		waiting, err := s.log.Inbox(t.Context(), w.k)
		return err == nil && len(waiting) == 1
	})
	w.write(of("run_w", event.ToolFailed, event.ToolFailedData{CallID: "ask", Name: "t", Code: event.CodeInterrupted, Outcome: event.OutcomeCancelled}),
		of("run_w", event.RunCancelled, event.RunCancelledData{By: "x"}))
	if resp := <-answer; resp.StatusCode != http.StatusConflict {
		t.Errorf("status %d: %s", resp.StatusCode, wantStatus(t, resp, resp.StatusCode))
	}
}
