package deploy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/eventlog"
	"github.com/runlog-dev/runlog/internal/testservers"
)

// A knocker asks an edge for a stream in one way. It returns what the stream's messages are read from, or errRefused.
type knocker struct {
	name  string
	tls   bool
	often bool // in each run of the tests
	open  func(ctx context.Context, addr string) (io.ReadCloser, error)
}

// errRefused: the edge has said that it takes no more streams, or closed the connection before it answered anything.
var errRefused = errors.New("refused")

const sse, upgrade = "Accept: text/event-stream\r\n", "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"

var knockers = []knocker{
	{"HTTP/1.1", false, false, plainly("GET /v1/sessions/full/events?after=1", sse, "")},
	{"HTTP/1.1 over TLS", true, false, plainly("GET /v1/sessions/full/events?after=1", sse, "")},
	{"HTTP/2 over TLS", true, true, streamsHTTP2(true)},
	{"h2c, 200 a connection", false, false, streamsHTTP2(false)},
	{"WebSocket", false, true, plainly("GET /v1/sessions/full/events?after=1", upgrade, "")},
	{"WebSocket over TLS", true, false, plainly("GET /v1/sessions/full/events?after=1", upgrade, "")},
	{"JSON-RPC", false, true, plainly("POST /rpc", "", `{"jsonrpc":"2.0","id":1,"method":"agent.attach","params":{"run_id":"run-full"}}`)},
	{"MCP", false, true, plainly("POST /mcp", "Accept: application/json, text/event-stream\r\n", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"follow_run","arguments":{"run_id":"run-full"},"_meta":{"progressToken":1}}}`)},
}

// plainly sends a request of HTTP/1.1 over a connection of its own.
func plainly(line, header, body string) func(context.Context, string) (io.ReadCloser, error) {
	if body != "" {
		header += fmt.Sprintf("Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	request := line + " HTTP/1.1\r\nHost: localhost\r\n" + header + "\r\n" + body
	return func(ctx context.Context, addr string) (io.ReadCloser, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", strings.TrimPrefix(addr, "tls:"))
		if err != nil {
			return nil, err
		}
		_ = conn.SetDeadline(time.Now().Add(3 * patience))
		if strings.HasPrefix(addr, "tls:") {
			conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
		}
		if _, err := io.WriteString(conn, request); err != nil {
			conn.Close()
			return nil, errRefused
		}
		rd := bufio.NewReaderSize(conn, 1024)
		resp, err := http.ReadResponse(rd, nil)
		if err != nil {
			conn.Close()
			return nil, errRefused
		}
		return opened(resp, rd, conn)
	}
}

// opened looks at an answer's beginning.
func opened(resp *http.Response, rd io.Reader, conn io.Closer) (io.ReadCloser, error) {
	type both struct {
		io.Reader
		io.Closer
	}
	kind := resp.Header.Get("Content-Type")
	switch {
	case resp.StatusCode == http.StatusSwitchingProtocols:
		return both{rd, conn}, nil
	case resp.StatusCode == http.StatusOK && (strings.HasPrefix(kind, "text/event-stream") || strings.HasPrefix(kind, "application/x-ndjson")):
		return both{resp.Body, conn}, nil
	}
	body, _ := io.ReadAll(resp.Body)
	conn.Close()
	if !strings.Contains(string(body), "overloaded") || resp.StatusCode == http.StatusServiceUnavailable && resp.Header.Get("Retry-After") == "" {
		return nil, fmt.Errorf("%s: %s", resp.Status, body)
	}
	return nil, errRefused
}

func streamsHTTP2(secure bool) func(context.Context, string) (io.ReadCloser, error) {
	protocols := new(http.Protocols)
	protocols.SetHTTP2(secure)
	protocols.SetUnencryptedHTTP2(!secure)
	fresh := func() *http.Transport {
		return &http.Transport{Protocols: protocols, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	}
	var mu sync.Mutex
	var shared *http.Transport
	n := 0
	return func(ctx context.Context, addr string) (io.ReadCloser, error) {
		url := "http://" + addr
		mu.Lock()
		if n++; secure || n%200 == 1 {
			shared = fresh()
		}
		tr := shared
		mu.Unlock()
		if secure {
			url = "https://" + strings.TrimPrefix(addr, "tls:")
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/v1/sessions/full/events?after=1", nil)
		if err != nil {
			return nil, err
		}
		resp, err := tr.RoundTrip(req)
		if err != nil {
			return nil, errRefused
		}
		return opened(resp, resp.Body, closerOf{resp.Body, tr})
	}
}

type closerOf struct {
	io.Closer
	tr *http.Transport
}

func (c closerOf) Close() error {
	err := c.Closer.Close()
	c.tr.CloseIdleConnections()
	return err
}

// Thousands of streams that are opened at once, over whatever transport, do not take more than the edge's memory: those
// that are too many are refused, those that were taken lose nothing, and when they have gone others are taken.
func TestBurstsStayWithinMemory(t *testing.T) {
	soak := os.Getenv("RUNLOG_SOAK") != ""
	for _, k := range knockers {
		if k.often || soak {
			t.Run(k.name, func(t *testing.T) { burst(t, k, 1500) })
		}
	}
}

func burst(t *testing.T, k knocker, many int) {
	const memory = 96 << 20
	env := fmt.Sprintf("RUNLOG_LOG=error\nRUNLOG_PING=15s\nRUNLOG_MEMORY=%d", memory)
	if k.tls {
		cert, key := certificate(t)
		env += "\nRUNLOG_TLS_CERT=" + cert + "\nRUNLOG_TLS_KEY=" + key
	}
	f := startFrontOf(t, testservers.PlainRunlogBinary(t), env, "RUNLOG_MEMORY=0")
	s := f.fullSession(t)
	before, stop := resident(t, f.edges[0].PID()), watchResident(t, f.edges[0].PID())
	addr := f.addrs[0]
	if k.tls {
		addr = "tls:" + addr
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	var mu sync.Mutex
	var open []io.ReadCloser
	var refused int
	var all sync.WaitGroup
	began := time.Now()
	for range many {
		all.Go(func() {
			r, err := k.open(ctx, addr)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				open = append(open, r)
			case errors.Is(err, errRefused):
				refused++
			default:
				t.Error(err)
			}
		})
	}
	all.Wait()
	took := time.Since(began)
	atOpen := resident(t, f.edges[0].PID())
	if err := s.say(ctx, "still here"); err != nil {
		t.Fatal(err)
	}
	for i, r := range open {
		if err := reads(r, "still here"); err != nil {
			t.Fatalf("stream %d of %d: %v", i, len(open), err)
		}
	}
	for _, r := range open {
		r.Close()
	}
	peak := stop()
	t.Logf("%d taken, %d refused in %s; %d MiB before, %d when all were open, %d at most", len(open), refused, took.Round(time.Millisecond), before>>20, atOpen>>20, peak>>20)
	if peak > memory {
		t.Errorf("the edge takes %d MiB of %d", peak>>20, memory>>20)
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		r, err := k.open(ctx, addr)
		if err == nil {
			r.Close()
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("all have gone, and there is still no room: %v", err)
		}
	}
}

// reads looks for a text in whatever comes, with line ends or without.
func reads(r io.Reader, text string) error {
	var got []byte
	for b := make([]byte, 1024); !bytes.Contains(got, []byte(text)); {
		n, err := r.Read(b)
		if got = append(got, b[:n]...); err != nil {
			return fmt.Errorf("%w after %.500q", err, got)
		}
	}
	return nil
}

// fullSession is the session "full" with a run under way.
func (f *front) fullSession(t *testing.T) *scribe {
	t.Helper()
	ref, _, err := f.log.Reserve(t.Context(), "default", "", eventlog.RunRef{RunID: "run-full", SessionID: "full", TraceID: "trace-run-full", Agent: "demo"})
	if err == nil {
		err = f.log.Accept(t.Context(), ref)
	}
	if err != nil {
		t.Fatal(err)
	}
	s, err := f.scribe(t.Context(), "full", "run-full")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// certificate makes one that nobody has signed, in files.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	of := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"}}
	raw, err := x509.CreateCertificate(rand.Reader, of, of, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, kind string, raw []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("cert.pem", "CERTIFICATE", raw), write("key.pem", "PRIVATE KEY", secret)
}
