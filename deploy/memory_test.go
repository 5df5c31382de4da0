package deploy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/internal/testservers"
)

// An edge that is given little memory takes streams until it is nearly used up, refuses more, goes on serving those it
// has, and takes others when some have left.
func TestAnEdgeStaysWithinItsMemory(t *testing.T) {
	f := startFrontOf(t, testservers.PlainRunlogBinary(t), "RUNLOG_MEMORY=20MiB", "RUNLOG_MEMORY=0")
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
	takes := resident(t, f.edges[0].PID())
	t.Logf("%d streams in %.1f MiB, then: no more", len(open), float64(takes)/(1<<20))
	if takes > 24<<20 { // what the collector cannot keep below the ceiling is little
		t.Errorf("the edge takes %d MiB of 20", takes>>20)
	}
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

// Large bodies, however many come at once and however slowly, do not use up the memory of an edge, which is measured
// as the kernel counts it: those that are too many are told so, small requests are answered meanwhile, and who has
// gone leaves room.
func TestBodiesDoNotUseUpMemory(t *testing.T) {
	const memory, large, many = 128 << 20, 8 << 20, 40
	f := startFrontOf(t, testservers.PlainRunlogBinary(t), fmt.Sprintf("RUNLOG_MEMORY=%d", memory), "RUNLOG_MEMORY=0")
	before := resident(t, f.edges[0].PID())
	var held [many]*heldBody
	for i := range held {
		held[i] = hold(t, f.addrs[0], large)
	}
	var refused atomic.Int64
	for _, h := range held {
		go func() {
			if h.refused(t) {
				refused.Add(1)
			}
		}()
	}
	for deadline := time.Now().Add(patience); refused.Load() < many-2; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d bodies were refused", refused.Load(), many)
		}
	}
	peak := resident(t, f.edges[0].PID())
	t.Logf("%d of %d bodies of %d MiB were refused; %d MiB before, %d MiB now", refused.Load(), many, large>>20, before>>20, peak>>20)
	ask := func(size int) int {
		resp, _, err := send(t.Context(), http.MethodPost, "http://"+f.addrs[0]+"/v1/responses", strings.NewReader(body(size)+`"}`))
		if err != nil {
			return 0
		}
		return resp.StatusCode
	}
	if status := ask(1000); status != http.StatusOK {
		t.Errorf("a small request meanwhile: %d", status)
	}
	for _, h := range held {
		h.conn.Close()
	}
	// So much text is too large for a message, which is found out when all of it was read.
	for deadline := time.Now().Add(patience); ask(large-100) != http.StatusRequestEntityTooLarge; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("all have gone, and there is still no room: %d", ask(large-100))
		}
	}
	// Little text that is large when it is decoded: one has too many values, the other as many as it may.
	for status, values := range map[int]int{http.StatusRequestEntityTooLarge: large/3 - 100, http.StatusBadRequest: 124_000} {
		resp, got, err := send(t.Context(), http.MethodPost, "http://"+f.addrs[0]+"/v1/chat/completions", strings.NewReader(`{"model":"demo","messages":[{}`+strings.Repeat(`,{}`, values)+`]}`))
		if err != nil || resp.StatusCode != status {
			t.Errorf("%d values: %v %.300s", values, err, got)
		}
		peak = max(peak, resident(t, f.edges[0].PID()))
	}
	if peak > memory {
		t.Errorf("the edge takes %d MiB of %d", peak>>20, memory>>20)
	}
}

// body is a request that lacks its end.
func body(size int) string {
	return `{"model":"demo","background":true,"input":"` + strings.Repeat("x", size)
}

// resident is what the kernel holds in memory for a process besides its program's file.
func resident(t *testing.T, pid int) int64 {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	var kb int64
	for line := range strings.Lines(string(raw)) {
		if n, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			_, _ = fmt.Sscan(n, &kb)
		}
	}
	return kb << 10
}

// A heldBody is a request whose body is sent but for its last byte.
type heldBody struct {
	conn net.Conn
	sent chan struct{}
}

func hold(t *testing.T, addr string, size int) *heldBody {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	h := &heldBody{conn, make(chan struct{})}
	go func() {
		defer close(h.sent)
		fmt.Fprintf(conn, "POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", size)
		_, _ = io.WriteString(conn, body(size-100))
	}()
	return h
}

// refused waits for an answer before the body is whole, which has to say that there is no room.
func (h *heldBody) refused(t *testing.T) bool {
	<-h.sent
	resp, err := http.ReadResponse(bufio.NewReader(h.conn), nil)
	if err != nil {
		return false
	}
	got, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" || !strings.Contains(string(got), "overloaded") {
		t.Errorf("%s %s", resp.Status, got)
	}
	return true
}
