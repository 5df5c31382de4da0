package edge_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/edge"
	"github.com/runlog-dev/runlog/edge/room"
	"github.com/runlog-dev/runlog/edge/stream"
)

// http2Start is how a connection of HTTP/2 begins, with a request of one header frame.
func http2Start(method byte, flags byte, path, id string) string {
	block := http2Header(path, id)
	block[0] = method
	return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + string(http2Frame(4, 0, 0, nil)) + string(http2Frame(1, flags, 1, block))
}

// Over HTTP/2 and in the middle of a handshake, too, whoever holds a connection by
// sending next to nothing loses it, or what it asks for.
func TestSlowlorisOverHTTP2IsCutOff(t *testing.T) {
	const get, post, endHeaders = 0x82, 0x83, 4
	opts := edge.Options{HeaderTimeout: 300 * time.Millisecond, BodyTimeout: 300 * time.Millisecond, SocketPing: 300 * time.Millisecond,
		Stream: stream.Options{WriteTimeout: 300 * time.Millisecond}}
	s := newSite(t)
	plain := s.serve(opts)
	st := s.stageOf(way{tls: true, client: http1}, opts, 1)
	for name, a := range map[string]struct {
		url, first, drip string
		request          string // that is ended with 408; empty: it is none yet, and the connection ends
	}{
		"half a preface":         {plain.url, "PRI * HTTP/2.0\r\n\r\nSM", "", ""},
		"nothing after it":       {plain.url, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "", ""},
		"a header without end":   {plain.url, http2Start(get, 0, "/v1/agents", "header"), "", ""},
		"headers without end":    {plain.url, http2Start(get, 0, "/v1/agents", "headers"), string(http2Frame(9, 0, 1, nil)), ""},
		"a body byte by byte":    {plain.url, http2Start(post, endHeaders, "/v1/runs", "byte"), string(http2Frame(0, 0, 1, []byte(" "))), "byte"},
		"an upload byte by byte": {plain.url, http2Start(post, endHeaders, "/v1/artifacts?name=x", "upload"), string(http2Frame(0, 0, 1, []byte("x"))), "upload"},
		"half a TLS handshake":   {st.edges[0].url, "\x16\x03\x01\x02\x00\x01", "", ""},
		"no TLS handshake":       {st.edges[0].url, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, addr, _ := strings.Cut(a.url, "//")
			conn := dialSmall(t, addr)
			stop := make(chan struct{})
			defer close(stop)
			go drip(conn, a.first, a.drip, stop)
			if a.request != "" { // the connection may have others
				waitFor(t, func() bool { return plain.records.ended(a.request) != nil })
				if r := plain.records.ended(a.request); r["status"] != 408.0 {
					t.Errorf("the record says %v", r)
				}
				return
			}
			_ = conn.SetReadDeadline(time.Now().Add(patience))
			_, err := io.Copy(io.Discard, conn)
			if ne, ok := err.(net.Error); ok && ne.Timeout() { //nolint:errorlint // as it comes from the connection
				t.Fatalf("it is still open after %s", patience)
			}
		})
	}
}

// What a client sends as the body of a request that has none is not kept.
func TestBodiesThatNobodyReadsAreNotKept(t *testing.T) {
	s := newSite(t)
	e := s.serve(edge.Options{})
	s.scribe("default", "s").write(started("r"))
	runtime.GC()
	before := room.InUse()
	const conns, frames, size = 60, 60, 16_000
	body := strings.Repeat(string(http2Frame(0, 0, 1, make([]byte, size))), frames)
	_, addr, _ := strings.Cut(e.url, "//")
	together(conns, func(i int) {
		conn := dialSmall(t, addr)
		_ = conn.SetDeadline(time.Now().Add(patience))
		const get, endHeaders = 0x82, 4 // and not END_STREAM
		_, _ = io.WriteString(conn, http2Start(get, endHeaders, "/v1/sessions/s/events", fmt.Sprint("body-", i)))
		rd := bufio.NewReader(conn)
		for room := 65_535; room < frames*size; { // the server gives the connection more room, and the stream
			if kind, payload := readFrame(t, rd); kind == 8 {
				room += int(binary.BigEndian.Uint32(payload))
			}
		}
		_, _ = io.WriteString(conn, body+string(http2Frame(6, 0, 0, make([]byte, 8))))
		for kind := byte(0); kind != 6; { // the ping is answered: what came before it was taken
			kind, _ = readFrame(t, rd)
		}
	})
	if _, n := e.sample("open_streams"); n != conns {
		t.Errorf("%v streams are open", n)
	}
	runtime.GC()
	if kept := room.InUse() - before; kept > conns*frames*size/2 {
		t.Errorf("%d MiB are kept", kept>>20)
	}
}

// readFrame returns the kind and the payload of the next frame.
func readFrame(t *testing.T, rd *bufio.Reader) (kind byte, payload []byte) {
	head := make([]byte, 9)
	_, err := io.ReadFull(rd, head)
	if err == nil {
		payload = make([]byte, binary.BigEndian.Uint32(head)>>8)
		_, err = io.ReadFull(rd, payload)
	}
	if err != nil {
		t.Error(err)
		runtime.Goexit()
	}
	return head[3], payload
}

// A tenant's streams are counted over all of its connections, and one connection of
// HTTP/2 has no more of them than many.
func TestLimitsHoldOverHTTP2(t *testing.T) {
	s := newSite(t)
	a, b := s.key("a"), s.key("b")
	e := s.serve(edge.Options{TenantStreams: 5, TenantRate: 40})
	s.scribe("a", "s").write(started("r"))
	s.scribe("b", "s").write(started("r"))
	status := func(client *http.Client, key string) int {
		req, err := http.NewRequestWithContext(t.Context(), "GET", e.url+"/v1/sessions/s/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", key)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		if resp.ProtoMajor != 2 {
			t.Error(resp.Proto)
		}
		if resp.StatusCode == 429 && (resp.Header.Get("Retry-After") == "" || resp.Header.Get("RateLimit") == "") {
			t.Errorf("%v", resp.Header)
		}
		return resp.StatusCode
	}
	got := map[int]int{}
	one := http2(nil)
	t.Cleanup(one.CloseIdleConnections)
	for range 10 {
		got[status(one, a)]++
	}
	for range 10 {
		another := http2(nil)
		t.Cleanup(another.CloseIdleConnections)
		got[status(another, a)]++
	}
	if want := fmt.Sprint(map[int]int{200: 5, 429: 15}); fmt.Sprint(got) != want {
		t.Errorf("answers %v, want %s", got, want)
	}
	if n := e.refusals("tenant_streams"); n != 15 {
		t.Errorf("%v streams were refused", n)
	}
	if got := status(one, b); got != 200 { // over the same connection
		t.Errorf("another tenant: %d", got)
	}
}
