package edge_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/runlog-dev/runlog/edge"
)

// Connections over the limits are told so and closed; who gives one back gets
// another.
func TestTooManyConnections(t *testing.T) {
	for name, c := range map[string]struct {
		opts   edge.Options
		status int
		limit  string
		code   string
	}{
		"in all":         {edge.Options{MaxConns: 3}, 503, "connections", "overloaded"},
		"of one address": {edge.Options{AddressConns: 3}, 429, "address_connections", "rate_limited"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newSite(t).serve(c.opts)
			http.DefaultClient.CloseIdleConnections()
			var open []net.Conn
			refused := 0
			for range 8 {
				conn, resp := e.knock(t)
				switch resp.StatusCode {
				case 200:
					open = append(open, conn)
					continue
				case c.status:
					refused++
				}
				body, _ := io.ReadAll(resp.Body)
				p := as[problem](t, body)
				if p.Status != c.status || p.Code != c.code || resp.Header.Get("Retry-After") == "" || !resp.Close || resp.Header.Get("Content-Type") != "application/problem+json" {
					t.Errorf("%v %s", resp.Header, body)
				}
			}
			for _, path := range []string{"/healthz", "/readyz"} { // over connections for which there is no room
				if resp, err := e.alone(path); err != nil || resp.StatusCode != 200 || !resp.Close {
					t.Errorf("%s of a full edge: %v %v", path, resp, err)
				}
			}
			if len(open) > 3 || len(open) == 0 || refused < 5 {
				t.Errorf("%d are served, %d were refused", len(open), refused)
			}
			if e.refusals(c.limit) < 5 {
				t.Error("the metrics do not tell")
			}
			for _, conn := range open {
				conn.Close()
			}
			waitFor(t, func() bool { resp, err := e.alone("/v1/agents"); return err == nil && resp.StatusCode == 200 })
		})
	}
}

// alone asks over a connection of its own.
func (e *served) alone(path string) (*http.Response, error) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(e.url + path)
	if err == nil {
		resp.Body.Close()
	}
	return resp, err
}

// A proxy's connections are those of its clients.
func TestTrustedProxiesMayConnectMore(t *testing.T) {
	e := newSite(t).serve(edge.Options{AddressConns: 3, TrustedProxies: loopback})
	for range 8 {
		if _, resp := e.knock(t); resp.StatusCode != 200 {
			t.Error(resp.Status)
		}
	}
}

// knock opens a connection and asks over it.
func (e *served) knock(t *testing.T) (net.Conn, *http.Response) {
	t.Helper()
	conn := e.connect()
	fmt.Fprintf(conn, "GET /v1/agents HTTP/1.1\r\nHost: localhost\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("closed without a word: %v", err)
	}
	return conn, resp
}
