package edge_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/runlog-dev/runlog/edge"
	"github.com/runlog-dev/runlog/edge/stream"
)

// A client that has gone without a word, as a phone does that changes networks, is found out although all that it is
// sent would fit into the kernel's buffers: what it had does not count against it when it is back.
func TestClientsThatVanishAreFoundOut(t *testing.T) {
	for _, version := range []string{"HTTP/1.1", "HTTP/1.0"} { // parked, and not
		t.Run(version, func(t *testing.T) {
			s := newSite(t)
			s.scribe("default", "s").write(started("r"))
			e := s.serve(edge.Options{AddressStreams: 1, Stream: stream.Options{WriteTimeout: 500 * time.Millisecond, Ping: 100 * time.Millisecond}})
			conn := e.connect()
			fmt.Fprintf(conn, "GET /v1/sessions/s/events %s\r\nHost: localhost\r\n\r\n", version)
			if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != 200 {
				t.Fatalf("%v %v", resp, err)
			}
			wantStatus(t, e.do("GET", "/v1/sessions/s/events", ""), 429)
			vanish(t, conn)
			waitFor(t, func() bool {
				resp, err := e.try("GET", "/v1/sessions/s/events?follow=false", "")
				return err == nil && resp.StatusCode == 200
			})
		})
	}
}

// vanish has the kernel drop whatever comes for a connection, so that nothing is acknowledged.
func vanish(t *testing.T, conn *net.TCPConn) {
	t.Helper()
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	drop := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K}
	controlErr := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &drop})
	})
	if controlErr != nil || err != nil {
		t.Fatal(controlErr, err)
	}
}
