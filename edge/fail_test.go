package edge_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/runlog-dev/runlog/edge"
)

// A wait is what an EventSource was told that is to come back.
type wait struct {
	resp  *http.Response
	retry time.Duration
	why   string
}

var onlyRetry = regexp.MustCompile(`^: (\d+ .+)\nretry: (\d+)\n\n$`)

// comesLater reads an answer that says nothing but when to come back, and breaks off.
func comesLater(t testing.TB, resp *http.Response) wait {
	t.Helper()
	body, err := io.ReadAll(resp.Body)
	if err == nil {
		t.Errorf("it ended as if it were whole: %q", body)
	}
	m := onlyRetry.FindSubmatch(body)
	if resp.StatusCode != 200 || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") || m == nil {
		t.Fatalf("status %d, %v: %q", resp.StatusCode, resp.Header, body)
	}
	ms, _ := strconv.Atoi(string(m[2]))
	return wait{resp, time.Duration(ms) * time.Millisecond, string(m[1])}
}

// A limit does not end an EventSource, whichever it is: it is told when to come back, by
// an answer that no client takes for the end. Everybody else gets the status.
func TestLimitsDoNotEndAnEventSource(t *testing.T) {
	for limit, opts := range map[string]edge.Options{
		"tenant_rate":     {TenantRate: 6},
		"tenant_streams":  {TenantStreams: 1},
		"address_rate":    {AddressRate: 6},
		"address_streams": {AddressStreams: 1},
	} {
		t.Run(limit, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			key := s.key("a")
			opts.Origins = []string{"https://app.example"}
			e := s.serve(opts)
			s.scribe("a", "s").write(started("r"))
			const path = "/v1/sessions/s/events"
			ask := func(path string, header ...string) *http.Response {
				return e.do("GET", path, "", append(header, "Authorization", key, "Origin", "https://app.example")...)
			}
			least := time.Second
			if strings.HasSuffix(limit, "_rate") {
				least = 10 * time.Second
				for range 6 {
					ask("/v1/agents").Body.Close()
				}
			}
			newListener(t, firstOf(t, limit, ask, path)).must()
			before := e.refusals(limit)
			for name, resp := range map[string]*http.Response{
				"by header":      ask(path, "Accept", "text/event-stream", "Last-Event-ID", "1"),
				"by query":       ask(path+"?lastEventId=1", "Accept", "text/event-stream"),
				"before its ids": ask(path+"?after=1", "Accept", "text/event-stream", "Cache-Control", "no-cache"),
			} {
				got := comesLater(t, resp)
				if got.retry < least || got.retry > 2*least || !strings.HasPrefix(got.why, "429 ") || resp.Header.Get("Retry-After") == "" {
					t.Errorf("%s: %+v", name, got)
				}
				if resp.Header.Get("Access-Control-Allow-Origin") != "https://app.example" {
					t.Errorf("%s: a page may not read that: %v", name, resp.Header)
				}
				id := resp.Header.Get("X-Request-Id")
				waitFor(t, func() bool { return e.records.ended(id) != nil })
				if r := e.records.ended(id); r["status"] != 429.0 || r["err"] == nil {
					t.Errorf("%s: the record says %v", name, r)
				}
			}
			if got := e.refusals(limit) - before; got != 3 {
				t.Errorf("%v refusals are counted, want 3", got)
			}
			for name, resp := range map[string]*http.Response{
				"a stream that is no EventSource's": ask(path, "Accept", "text/event-stream"),
				"NDJSON":                            ask(path, "Accept", "application/x-ndjson", "Last-Event-ID", "1"),
				"who accepts problems":              ask(path, "Accept", "text/event-stream, application/problem+json", "Last-Event-ID", "1"),
			} {
				if p := as[problem](t, wantStatus(t, resp, 429)); p.Code != "rate_limited" || resp.Header.Get("Retry-After") == "" {
					t.Errorf("%s: %+v", name, p)
				}
			}
			if strings.HasPrefix(limit, "tenant") { // an address is limited before the handshake
				c := e.dial(path, websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {key}}})
				c.say(`{"after":"1"}`)
				if m, err := c.hear(); err != nil || m.Error == nil || m.Error.Status != 429 || m.RetryAfter == 0 {
					t.Errorf("a WebSocket: %+v %v", m, err)
				}
				if code := c.closed(); code != websocket.StatusTryAgainLater {
					t.Errorf("a WebSocket: %d", code)
				}
			}
		})
	}
}

// firstOf is the stream that takes a limit's only place; where requests are limited it
// is nobody's.
func firstOf(t *testing.T, limit string, ask func(string, ...string) *http.Response, path string) *http.Response {
	if strings.HasSuffix(limit, "_streams") {
		return ask(path)
	}
	return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader("event: none\ndata: x\n\n"))}
}

// Over every transport a client that resumes at a limit gets in once there is room,
// and has lost nothing.
func TestResumingAtALimitOverEveryTransport(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			st := newSite(t).stageOf(w, edge.Options{TenantStreams: 1}, 1)
			log := st.scribe("default", "s")
			log.write(started("r"), said("r", "x"))
			url := st.edges[0].url + "/v1/sessions/s/events"
			other, err := w.open(t, st.client, url, "")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := other.next(); err != nil {
				t.Fatal(err)
			}
			v, err := w.open(t, st.client, url, "1")
			if err == nil {
				_, err = v.next()
			}
			var status refused
			switch {
			case w.accept == "":
				if websocket.CloseStatus(err) != websocket.StatusTryAgainLater {
					t.Errorf("at the limit: %v", err)
				}
			case strings.HasPrefix(w.accept, "text/event-stream"):
				if err == nil || errors.Is(err, io.EOF) || errors.As(err, &status) {
					t.Errorf("at the limit: %v, want a stream that breaks off", err)
				}
			case !errors.As(err, &status) || status.status != 429:
				t.Errorf("at the limit: %v", err)
			}
			other.close()
			waitFor(t, func() bool {
				if v, err = w.open(t, st.client, url, "1"); err != nil {
					return false
				}
				m, err := v.next()
				return err == nil && m.id == "2"
			})
		})
	}
}

// In HTTP/1.0 the end of the connection would be that of the answer: it is reset.
func TestOldEventSourcesAreToldToWait(t *testing.T) {
	s := newSite(t)
	s.scribe("default", "s").write(started("r"))
	e := s.serve(edge.Options{TenantStreams: 1})
	e.listen("/v1/sessions/s/events").must()
	conn := e.connect()
	fmt.Fprintf(conn, "GET /v1/sessions/s/events HTTP/1.0\r\nAccept: text/event-stream\r\nLast-Event-ID: 1\r\n\r\n")
	all, err := io.ReadAll(conn)
	_, body, _ := strings.Cut(string(all), "\r\n\r\n")
	if !errors.Is(err, syscall.ECONNRESET) || !onlyRetry.MatchString(body) {
		t.Errorf("%q, %v", all, err)
	}
}

// An edge without room for its connection closes it, and it comes back. Who asks
// nothing is told why all the same.
func TestEventSourcesThatFindNoConnectionComeBack(t *testing.T) {
	for name, opts := range map[string]edge.Options{"in all": {MaxConns: 1}, "of one address": {AddressConns: 1}} {
		t.Run(name, func(t *testing.T) {
			e := newSite(t).serve(opts)
			http.DefaultClient.CloseIdleConnections()
			var first net.Conn
			waitFor(t, func() bool {
				conn, resp := e.knock(t)
				if first = conn; resp.StatusCode != 200 {
					conn.Close()
				}
				return resp.StatusCode == 200
			})
			conn := e.connect()
			fmt.Fprintf(conn, "GET /v1/sessions/s/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\nLast-Event-ID: 1\r\n\r\n")
			if got, err := io.ReadAll(conn); len(got) > 0 {
				t.Errorf("it was told %q, %v", got, err)
			}
			silent := e.connect()
			resp, err := http.ReadResponse(bufio.NewReader(silent), nil)
			if err != nil || resp.StatusCode != 429 && resp.StatusCode != 503 {
				t.Errorf("who asks nothing: %v %v", resp, err)
			}
			first.Close()
		})
	}
}
