package deploy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// An edge that is given little memory takes streams until it is nearly used up, refuses more, goes on serving those it
// has, and takes others when some have left.
func TestAnEdgeStaysWithinItsMemory(t *testing.T) {
	f := startFront(t, "RUNLOG_MEMORY=20MiB", "RUNLOG_MEMORY=0")
	s, err := f.scribe(t.Context(), "full", "run-full")
	if err != nil {
		t.Fatal(err)
	}
	const most = 15_000 // a stream costs some KB
	var open []*bufio.Reader
	var conns []net.Conn
	for {
		conn, rd, resp := knock(t, f.addrs[0])
		if resp.StatusCode == http.StatusOK {
			conns, open = append(conns, conn), append(open, rd)
			if len(open) < most {
				continue
			}
			t.Fatalf("%d streams are open with 20 MiB, and nobody says stop", most)
		}
		body, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" || !strings.Contains(string(body), "overloaded") {
			t.Fatalf("stream %d: %s %s", len(open), resp.Status, body)
		}
		break
	}
	t.Logf("%d streams, then: no more", len(open))
	if len(open) < 100 {
		t.Errorf("only %d streams were taken", len(open))
	}
	if err := s.say(t.Context(), "still here"); err != nil {
		t.Fatal(err)
	}
	for i, rd := range open {
		if err := readTo(rd, "still here"); err != nil {
			t.Fatalf("stream %d: %v", i, err)
		}
	}
	for _, conn := range conns[:len(conns)/2] {
		conn.Close()
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		conn, _, resp := knock(t, f.addrs[0])
		if conn.Close(); resp.StatusCode == http.StatusOK {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("half of the streams have left, and there is still no room")
		}
	}
}

// knock asks for a stream over a connection of its own, with no more memory than needs be.
func knock(t *testing.T, addr string) (net.Conn, *bufio.Reader, *http.Response) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(3 * patience))
	fmt.Fprintf(conn, "GET /v1/sessions/full/events?after=1 HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
	rd := bufio.NewReaderSize(conn, 1024)
	resp, err := http.ReadResponse(rd, nil)
	if err != nil {
		t.Fatal(err)
	}
	return conn, rd, resp
}

func readTo(rd *bufio.Reader, text string) error {
	for {
		line, err := rd.ReadString('\n')
		if err != nil || strings.Contains(line, text) {
			return err
		}
	}
}
