package edge_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/edge"
	"github.com/runlog-dev/runlog/edge/stream"
)

// A closer asks for streams with "Connection: close", over connections of its own.
type closer struct {
	*served
	secure *tls.Config // nil: in clear text
}

// ask returns the header of the answer and what reads its body.
func (c closer) ask(path, accept string) (header string, body *bufio.Reader, conn net.Conn) {
	c.t.Helper()
	_, addr, _ := strings.Cut(c.url, "//")
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		c.t.Fatal(err)
	}
	if c.secure != nil {
		conn = tls.Client(conn, c.secure)
	}
	c.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\nAccept: %s\r\nConnection: close\r\n\r\n", path, accept)
	body = bufio.NewReader(conn)
	for !strings.HasSuffix(header, "\r\n\r\n") {
		line, err := body.ReadString('\n')
		if err != nil {
			c.t.Fatalf("after %q: %v", header, err)
		}
		header += line
	}
	return header, body, conn
}

// closers are an edge in clear text and one with TLS, where no stream is parked.
func (s *site) closers() map[string]closer {
	s.t.Helper()
	plain, secure, roots := s.serveBoth(edge.Options{DrainRate: 1 << 20, Stream: stream.Options{Ping: time.Hour, Heartbeat: time.Hour}})
	return map[string]closer{
		"clear text": {plain, nil},
		"TLS":        {secure, &tls.Config{RootCAs: roots, ServerName: "example.com"}},
	}
}

// A client that asks for "Connection: close" gets streams in chunks that do not say so:
// whoever takes a closed connection for the end where it was said (undici) could not
// tell an aborted stream from a whole one.
func TestStreamsToClientsThatCloseAreToldApart(t *testing.T) {
	s := newSite(t)
	w := s.scribe("default", "s")
	w.write(started("r"), said("r", "hello"))
	s.index("r", "s")
	const lastChunk = "\r\n0\r\n\r\n"
	for name, c := range s.closers() {
		streams := map[string]*bufio.Reader{}
		for path, accept := range map[string]string{
			"/v1/runs/r/events": "text/event-stream", "/v1/sessions/s/events": "application/x-ndjson", "/v1/stream?session=s": "text/event-stream",
			"/v1/runs/r/events?dialect=openai": "text/event-stream", "/v1/sessions/s/events?follow=false": "text/event-stream",
		} {
			header, body, _ := c.ask(path, accept)
			low := strings.ToLower(header)
			if !strings.HasPrefix(header, "HTTP/1.1 200 OK\r\n") || strings.Contains(low, "connection:") || !strings.Contains(low, "transfer-encoding: chunked\r\n") {
				t.Errorf("%s, %s: the header is %q", name, path, header)
			}
			if strings.Contains(path, "follow=false") {
				if all, err := io.ReadAll(body); err != nil || !strings.HasSuffix(string(all), lastChunk) {
					t.Errorf("%s, %s: %v after %q", name, path, err, all)
				}
				continue
			}
			streams[path] = body
		}
		waitFor(t, func() bool { _, open := c.sample("open_streams"); return open == 4 })
		c.stop()
		if err := <-c.ended; err != nil {
			t.Error(err)
		}
		for path, body := range streams {
			if all, _ := io.ReadAll(body); len(all) == 0 || strings.HasSuffix(string(all), lastChunk) {
				t.Errorf("%s, %s: the drain looks like the end: %q", name, path, all)
			}
		}
	}
}

// Clients that close are noticed when they leave, and what they were sent is theirs:
// nothing is kept of a stream that is over.
func TestClientsThatCloseAreNoticed(t *testing.T) {
	s := newSite(t)
	w := s.scribe("default", "s")
	w.write(started("r"))
	s.index("r", "s")
	for name, c := range s.closers() {
		for _, path := range []string{"/v1/runs/r/events", "/v1/stream?session=s"} {
			_, body, conn := c.ask(path, "text/event-stream")
			_, _ = io.WriteString(conn, "GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n") // is not answered
			if line, err := body.ReadString('\n'); err != nil {
				t.Fatalf("%s: %v after %q", name, err, line)
			}
			waitFor(t, func() bool { _, open := c.sample("open_streams"); return open == 1 })
			_ = conn.Close()
			waitFor(t, func() bool { _, open := c.sample("open_streams"); return open == 0 })
			waitFor(t, func() bool { return len(c.records.of(strings.SplitN(path, "?", 2)[0])) == 1 })
			if r := c.records.of(strings.SplitN(path, "?", 2)[0])[0]; r["ended"] != "client" || r["bytes"] == 0.0 {
				t.Errorf("%s: the record is %v", name, r)
			}
		}
	}
	_, body, _ := s.closers()["clear text"].ask("/v1/runs/r/events", "text/event-stream")
	w.write(said("r", "hello"), completed("r"))
	resp, err := http.ReadResponse(bufio.NewReader(io.MultiReader(strings.NewReader("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), body)), nil)
	if err != nil {
		t.Fatal(err)
	}
	if all, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(all), "run.completed") {
		t.Errorf("%v after %s", err, all)
	}
}

// An artifact of a type that streams have is none: its answer tells its length, and is not in chunks besides, at which
// Node.js gives up.
func TestArtifactsThatLookLikeStreamsAreNone(t *testing.T) {
	c := newSite(t).closers()["clear text"]
	for _, kind := range []string{"application/x-ndjson", "text/event-stream"} {
		up := as[struct{ URL string }](t, wantStatus(t, c.do("POST", "/v1/artifacts?name=a", "{}\n", "Content-Type", kind), 201))
		header, body, _ := c.ask(up.URL, "*/*")
		rest, err := io.ReadAll(body)
		if err != nil || string(rest) != "{}\n" || !strings.Contains(header, "Content-Length: 3\r\n") || strings.Contains(header, "Transfer-Encoding") {
			t.Errorf("%s: %v, %q behind\n%s", kind, err, rest, header)
		}
	}
}
