package edge_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/edge"
	"github.com/runlog-dev/runlog/edge/stream"
)

// Clients that hold a connection by sending next to nothing lose it, whatever they
// began; others are served meanwhile.
func TestSlowlorisIsCutOff(t *testing.T) {
	s := newSite(t)
	e := s.serve(edge.Options{HeaderTimeout: 300 * time.Millisecond, BodyTimeout: 300 * time.Millisecond})
	attacks := map[string]struct{ first, drip, answer string }{
		"a header without end":        {"GET /v1/agents HTTP/1.1\r\nHost: localhost\r\n", "x-a: b\r\n", ""},
		"nothing at all":              {"", "", ""},
		"half a request line":         {"GE", "", ""},
		"a body byte by byte":         {"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{", " ", " 408 "},
		"a body that never comes":     {"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n", "", " 408 "},
		"chunks without end":          {"POST /v1/artifacts?name=x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\nx\r\n", " 408 "},
		"an upload byte by byte":      {"POST /v1/artifacts?name=x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n", "x", " 408 "},
		"a body of another protocol":  {"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{", " ", " 408 "},
		"a body that nobody reads":    {"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n", "x", " 200 "},
		"a body for what is not here": {"POST /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n", "x", " 404 "},
	}
	for name, a := range attacks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := e.connect()
			stop := make(chan struct{})
			defer close(stop)
			go drip(conn, a.first, a.drip, stop)
			got, err := io.ReadAll(conn)
			if ne, ok := err.(net.Error); ok && ne.Timeout() { //nolint:errorlint // as it comes from the connection
				t.Fatalf("it is still open after %s; so far %q", patience, got)
			}
			line, _, _ := strings.Cut(string(got), "\r\n")
			if !strings.Contains(line, a.answer) {
				t.Errorf("the answer is %q, want %q", line, a.answer)
			}
			if a.answer == " 408 " && !strings.Contains(string(got), "application/problem+json") && !strings.Contains(string(got), `"error"`) {
				t.Errorf("it is not told why: %s", got)
			}
		})
	}
	e.get(200, "/healthz")
}

// drip sends the beginning and then a little now and then, until the connection is
// gone.
func drip(conn net.Conn, first, drip string, stop chan struct{}) {
	_, err := io.WriteString(conn, first)
	tick := time.NewTicker(40 * time.Millisecond)
	defer tick.Stop()
	for err == nil && drip != "" {
		select {
		case <-stop:
			return
		case <-tick.C:
			_, err = io.WriteString(conn, drip)
		}
	}
}

// After a request with a body the connection waits for the next one as long as
// ever: the body's deadline is not the connection's.
func TestConnectionsOutliveBodies(t *testing.T) {
	s := newSite(t)
	e := s.serve(edge.Options{BodyTimeout: 200 * time.Millisecond})
	s.scribe("default", "s").write(started("r"))
	s.index("r", "s")
	conn := e.connect()
	rd := bufio.NewReader(conn)
	ask := func() *http.Response {
		body := `{"input":"x","session_id":"s"}`
		fmt.Fprintf(conn, "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
		resp, err := http.ReadResponse(rd, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp
	}
	for range 2 {
		if resp := ask(); resp.StatusCode != 202 {
			t.Fatal(resp.Status)
		}
		time.Sleep(500 * time.Millisecond) // longer than BodyTimeout, which is what is tested
	}
	// A stream that was asked for with a body outlives it, too.
	body := `{"input":"hold"}`
	fmt.Fprintf(conn, "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	resp, err := http.ReadResponse(rd, nil)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(500 * time.Millisecond)
	s.work()
	if l := newListener(t, resp); l.must().event != "run.started" {
		t.Error("the stream does not go on")
	}
}

// In HTTP/1.0 the end of the connection is the end of the answer: one that is cut off,
// since its client does not read or the edge goes away, ends with a reset, so that
// nobody takes it for the whole.
func TestOldClientsSeeThatAStreamIsCutOff(t *testing.T) {
	s := newSite(t)
	w := s.scribe("default", "s")
	w.write(started("r"))
	e := s.serve(edge.Options{Stream: stream.Options{WriteTimeout: 300 * time.Millisecond}})
	follow := func(query string) net.Conn {
		conn := e.connect()
		_ = conn.SetReadBuffer(64 << 10)
		fmt.Fprintf(conn, "GET /v1/sessions/s/events%s HTTP/1.0\r\n\r\n", query)
		return conn
	}
	cutOff := func(conn net.Conn) {
		t.Helper()
		if n, err := io.Copy(io.Discard, conn); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("after %d bytes the connection ended with %v, want a reset", n, err)
		}
	}
	open := func(n float64) {
		t.Helper()
		waitFor(t, func() bool { _, streams := e.sample("open_streams"); return streams == n })
	}
	slow := follow("")
	open(1)
	big := strings.Repeat("x", 100_000)
	for range 100 {
		w.write(said("r", big))
	}
	open(0)
	cutOff(slow)
	rests := follow("?after=101")
	open(1)
	e.stop()
	if err := <-e.ended; err != nil {
		t.Error(err)
	}
	cutOff(rests)
}
