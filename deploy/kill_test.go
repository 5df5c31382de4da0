package deploy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"
)

// What a killed edge leaves looks broken off to clients of HTTP/1.0 too, for which the
// end of the connection is that of the answer: the kernel resets it. In HTTP/1.1 the
// last chunk is missing, and no header has said that the connection closes.
func TestStreamsOfAKilledEdgeAreBrokenOff(t *testing.T) {
	f := startFront(t)
	if _, err := f.scribe(t.Context(), "s", "r"); err != nil {
		t.Fatal(err)
	}
	old := follow(t, f.addrs[0], "HTTP/1.0\r\nConnection: close")
	closes := follow(t, f.addrs[0], "HTTP/1.1\r\nConnection: close")
	f.edges[0].Kill()
	if rest, err := io.ReadAll(old); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("HTTP/1.0: %v after %q", err, rest)
	}
	if rest, _ := io.ReadAll(closes); strings.HasSuffix(string(rest), "0\r\n\r\n") {
		t.Errorf("HTTP/1.1: the end is %q", rest)
	}
}

// follow reads a session's stream up to its first event.
func follow(t *testing.T, addr, version string) *bufio.Reader {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(conn, "GET /v1/sessions/s/events %s\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n", version)
	body := bufio.NewReader(conn)
	for line := ""; !strings.HasPrefix(line, "event: run.started"); {
		if line, err = body.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(version, "1.1") && strings.HasPrefix(strings.ToLower(line), "connection: close") {
			t.Error("the header says that the connection closes")
		}
	}
	return body
}
