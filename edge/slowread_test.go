package edge_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/runlog-dev/runlog/edge"
	"github.com/runlog-dev/runlog/edge/stream"
)

// A staller asks for something and reads nothing of the answer; its connection lives
// on as far as its kernel is concerned.
type staller struct {
	name string
	tls  bool
	ask  func(t *testing.T, addr, path, id string, roots *x509.CertPool)
}

var stallers = []staller{
	{"HTTP/1.1", false, func(t *testing.T, addr, path, id string, _ *x509.CertPool) {
		_, _ = io.WriteString(dialSmall(t, addr), http1Request(path, id))
	}},
	{"HTTP/1.1 and TLS", true, func(t *testing.T, addr, path, id string, roots *x509.CertPool) {
		conn := tls.Client(dialSmall(t, addr), &tls.Config{RootCAs: roots, ServerName: "example.com"})
		_, _ = io.WriteString(conn, http1Request(path, id))
	}},
	{"HTTP/2, a stream", false, func(t *testing.T, addr, path, id string, _ *x509.CertPool) { // pings are answered
		stallStream(t, http2(nil), "http://"+addr+path, id)
	}},
	{"HTTP/2 and TLS, a stream", true, func(t *testing.T, addr, path, id string, roots *x509.CertPool) {
		stallStream(t, http2(roots), "https://"+addr+path, id)
	}},
	{"HTTP/2, the connection", false, func(t *testing.T, addr, path, id string, _ *x509.CertPool) {
		_, _ = dialSmall(t, addr).Write(http2Request(path, id))
	}},
}

func dialSmall(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.(*net.TCPConn).SetReadBuffer(64 << 10)
	return conn
}

func http1Request(path, id string) string {
	return fmt.Sprintf("GET %s HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: %s\r\n\r\n", path, id)
}

func stallStream(t *testing.T, client *http.Client, url, id string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(client.CloseIdleConnections)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Request-Id", id)
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != 200 || resp.ProtoMajor != 2 {
		t.Fatal(resp.Proto, resp.Status)
	}
}

// http2Request is all that a client says for a GET whose answer may be of any size:
// RFC 9113, with windows as large as they can be.
func http2Request(path, id string) []byte {
	const whole = 1<<31 - 1
	b := []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	b = append(b, http2Frame(4, 0, 0, binary.BigEndian.AppendUint32([]byte{0, 4}, whole))...) // SETTINGS: INITIAL_WINDOW_SIZE
	b = append(b, http2Frame(8, 0, 0, binary.BigEndian.AppendUint32(nil, whole-65535))...)    // WINDOW_UPDATE
	return append(b, http2Frame(1, 5, 1, http2Header(path, id))...)                           // HEADERS, the last ones of the request
}

// http2Header has GET and http of HPACK's table, and literals.
func http2Header(path, id string) []byte {
	b := append([]byte{0x82, 0x86, 0x01}, short("localhost")...)
	b = append(append(b, 0x04), short(path)...)
	return append(append(append(b, 0), short("x-request-id")...), short(id)...)
}

func short(text string) []byte { return append([]byte{byte(len(text))}, text...) }

func http2Frame(kind, flags byte, id uint32, payload []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(payload))<<8|uint32(kind))
	b = binary.BigEndian.AppendUint32(append(b, flags), id)
	return append(b, payload...)
}

// zeros never end.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// ended is the record of a request that is over; nil if none is.
func (r *records) ended(id string) map[string]any {
	r.mu.Lock()
	defer r.mu.Unlock()
	for line := range bytes.Lines(r.buf.Bytes()) {
		var m map[string]any
		if bytes.Contains(line, []byte(id)) && json.Unmarshal(line, &m) == nil && m["request"] == id {
			return m
		}
	}
	return nil
}

// Whoever does not read an answer loses it in the end, whatever it is and over
// whatever HTTP: what the edge holds for it is given back.
func TestAnswersThatNobodyReadsAreCutOff(t *testing.T) {
	s := newSite(t)
	plain, secure, roots := s.serveBoth(edge.Options{Stream: stream.Options{WriteTimeout: time.Second}})
	artifact := s.large(t, plain)
	for _, st := range stallers {
		for n, path := range []string{artifact, "/v1/sessions/s/snapshot", "/v1/sessions/s/events", "/v1/sessions/s/events?snapshot=1", "/v1/stream?session=s"} {
			t.Run(st.name+" "+strings.Replace(path, artifact, "artifact", 1), func(t *testing.T) {
				t.Parallel()
				e, id := plain, fmt.Sprintf("%s-%d", strings.NewReplacer(" ", "-", "/", "-", ",", "").Replace(st.name), n)
				if st.tls {
					e = secure
				}
				_, addr, _ := strings.Cut(e.url, "//")
				st.ask(t, addr, path, id, roots)
				waitFor(t, func() bool { return e.records.ended(id) != nil })
				if r := e.records.ended(id); strings.Contains(path, "events") && r["ended"] != "slow_client" && !(strings.HasSuffix(st.name, "connection") && r["ended"] == "connection") {
					t.Errorf("the record says %v", r)
				}
			})
		}
	}
}

// large makes an artifact and a session of 12 MB each.
func (s *site) large(t *testing.T, e *served) (artifact string) {
	t.Helper()
	w := s.scribe("default", "s")
	w.write(started("r"))
	for range 24 {
		w.write(said("r", strings.Repeat("x", 500_000)))
	}
	resp, err := http.Post(e.url+"/v1/artifacts?name=x", "text/plain", io.LimitReader(zeros{}, 12<<20))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.Header.Get("Location")
}

// A trickle is a line that takes 2 MB/s at most.
type trickle struct{ net.Conn }

func (c trickle) Read(b []byte) (int, error) {
	time.Sleep(30 * time.Millisecond) // what is tested is that it is slow
	return c.Conn.Read(b[:min(len(b), 64<<10)])
}

func slowClient() *http.Client {
	return &http.Client{Transport: &http.Transport{ReadBufferSize: 64 << 10, DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err == nil {
			err = conn.(*net.TCPConn).SetReadBuffer(64 << 10)
		}
		return trickle{conn}, err
	}}}
}

// A client that reads slowly, but reads, gets all of an answer or a message that takes
// several times as long as it may pause.
func TestSlowReadersGetLargeMessages(t *testing.T) {
	s := newSite(t)
	e := s.serve(edge.Options{Stream: stream.Options{WriteTimeout: 2 * time.Second}})
	artifact := s.large(t, e)
	for _, path := range []string{artifact, "/v1/sessions/s/snapshot", "/v1/sessions/s/events?snapshot=1&follow=false"} {
		t.Run(strings.Replace(path, artifact, "artifact", 1), func(t *testing.T) {
			t.Parallel()
			client := slowClient()
			t.Cleanup(client.CloseIdleConnections)
			resp, err := client.Get(e.url + path)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if n, err := io.Copy(io.Discard, resp.Body); err != nil || n < 12e6 {
				t.Errorf("%d bytes, then %v", n, err)
			}
		})
	}
	t.Run("WebSocket", func(t *testing.T) {
		t.Parallel()
		conn, _, err := websocket.Dial(t.Context(), e.url+"/v1/sessions/s/events?snapshot=1&follow=false", &websocket.DialOptions{HTTPClient: slowClient(), Subprotocols: []string{"runlog.v1"}})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.CloseNow()
		conn.SetReadLimit(64 << 20)
		if _, raw, err := conn.Read(t.Context()); err != nil || len(raw) < 12e6 {
			t.Errorf("%d bytes, then %v", len(raw), err)
		}
	})
}

// A stream that has nothing to say for longer than a client may take for a write goes
// on after that.
func TestSilentStreamsOutliveTheirWriteTimeout(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			log := s.scribe("default", "s")
			log.write(started("r"))
			opts := edge.Options{Stream: stream.Options{WriteTimeout: 400 * time.Millisecond, Ping: time.Hour, Heartbeat: time.Hour}}
			st := s.stageOf(w, opts, 1)
			v, err := w.open(t, st.client, st.edges[0].url+"/v1/sessions/s/events", "0")
			if err == nil {
				_, err = v.next()
			}
			time.Sleep(time.Second) // is what is tested
			log.write(said("r", "x"))
			if err == nil {
				_, err = v.next()
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// A client of HTTP/2 that is gone without a word is found out, though nothing is sent
// to it but what shows it that the stream lives.
func TestDeadHTTP2ClientsAreFoundOut(t *testing.T) {
	s := newSite(t)
	s.scribe("default", "s").write(started("r"))
	e := s.serve(edge.Options{SocketPing: 200 * time.Millisecond, Stream: stream.Options{WriteTimeout: time.Second, Ping: 100 * time.Millisecond}})
	_, addr, _ := strings.Cut(e.url, "//")
	conn := dialSmall(t, addr)
	if _, err := conn.Write(http2Request("/v1/sessions/s/events", "dead")); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	if n, err := io.Copy(io.Discard, conn); err != nil || n == 0 { // its kernel takes everything, and nobody answers pings
		t.Errorf("%d bytes, then %v", n, err)
	}
	waitFor(t, func() bool { return e.records.ended("dead") != nil })
}

// Who reads nothing does not hold up an edge that stops: its stream is broken off as
// the others are, and not when its write times out.
func TestReadersThatReadNothingDoNotHoldUpADrain(t *testing.T) {
	s := newSite(t)
	plain, secure, roots := s.serveBoth(edge.Options{DrainPeriod: 20 * time.Second})
	s.large(t, plain)
	for _, st := range stallers {
		for n, path := range []string{"/v1/sessions/s/events", "/v1/stream?session=s"} {
			e := plain
			if st.tls {
				e = secure
			}
			_, addr, _ := strings.Cut(e.url, "//")
			st.ask(t, addr, path, fmt.Sprint("stall-", n), roots)
		}
	}
	_, addr, _ := strings.Cut(plain.url, "//")
	_, _ = io.WriteString(dialSmall(t, addr), rawHandshake("/v1/sessions/s/events?after=0"))
	for _, e := range []*served{plain, secure} {
		waitFor(t, func() bool { _, n := e.sample("events_sent_total"); return n > 0 })
		e.stop()
		if err := <-e.ended; err != nil {
			t.Error(err)
		}
		if _, n := e.sample("open_streams"); n != 0 {
			t.Errorf("%v streams are open", n)
		}
	}
}
