package deploy

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/internal/testservers"
)

// Clients of HTTP/2 that make no room for any answer, be it a stream, a value, or that there is nothing there or no
// memory, take no more than the edge's memory, however many requests their connections have; when they have gone others
// are served.
func TestAnswersWithoutRoomStayWithinMemory(t *testing.T) {
	const memory, conns, each = 96 << 20, 40, 250
	f := startFrontOf(t, testservers.PlainRunlogBinary(t), fmt.Sprintf("RUNLOG_LOG=error\nRUNLOG_MEMORY=%d", memory), "RUNLOG_MEMORY=0")
	f.fullSession(t)
	stop := watchResident(t, f.edges[0].PID())
	paths := []string{"/nothing/here", "/v1/sessions/full", "/v1/sessions/full/events", "/v1/runs/nobody"}
	var open []net.Conn
	for i := range conns {
		conn, err := net.Dial("tcp", f.addrs[0])
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		open = append(open, conn)
		_ = conn.SetDeadline(time.Now().Add(patience))
		// The edge may have closed the connection.
		_, _ = io.WriteString(conn, withoutRoom(paths[i%len(paths)], each))
	}
	// What came in a connection before a ping was read, and when all of them have answered twice what it has begun is on its way.
	for _, conn := range slices.Concat(open, open) {
		_, _ = io.WriteString(conn, frameHTTP2(pingFrame, 0, 0, "8 bytes."))
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		awaitPong(conn)
	}
	peak := stop()
	t.Logf("%d MiB at most, of %d", peak>>20, memory>>20)
	if peak > memory {
		t.Errorf("the edge takes %d MiB of %d", peak>>20, memory>>20)
	}
	for _, conn := range open {
		conn.Close()
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		conn, _, resp := knock(t, f.addrs[0])
		if conn.Close(); resp.StatusCode == 200 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("all have gone, and there is still no room: %s", resp.Status)
		}
	}
}

// Kinds of frames of HTTP/2.
const (
	headersFrame  = 1
	settingsFrame = 4
	pingFrame     = 6
)

// withoutRoom is a connection of HTTP/2 that asks for a path many times and has windows of no byte.
func withoutRoom(path string, times int) string {
	const endStream, endHeaders, initialWindow = 1, 4, "\x00\x04\x00\x00\x00\x00"
	var b strings.Builder
	b.WriteString("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frameHTTP2(settingsFrame, 0, 0, initialWindow))
	const get, http, authority, pathIs = "\x82", "\x86", "\x01\x09localhost", "\x04"
	for i := range times {
		b.WriteString(frameHTTP2(headersFrame, endStream|endHeaders, uint32(1+2*i), get+http+authority+pathIs+string(rune(len(path)))+path))
	}
	return b.String()
}

func frameHTTP2(kind, flags byte, stream uint32, payload string) string {
	head := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
	return string(binary.BigEndian.AppendUint32(append(head, flags), stream)) + payload
}

// awaitPong reads frames up to the answer to a ping, or to the end of the connection.
func awaitPong(conn net.Conn) {
	for head := make([]byte, 9); ; {
		if _, err := io.ReadFull(conn, head); err != nil {
			return
		}
		if _, err := io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint32(head)>>8)); err != nil || head[3] == pingFrame {
			return
		}
	}
}
