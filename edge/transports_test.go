package edge_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/runlog-dev/runlog/edge"
	"github.com/runlog-dev/runlog/edge/stream"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// A way is a transport over a version of HTTP, as a client goes it.
type way struct {
	name   string
	tls    bool
	client func(*x509.CertPool) *http.Client
	accept string // empty: WebSocket
}

func http1(roots *x509.CertPool) *http.Client {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	return &http.Client{Transport: &http.Transport{Protocols: p, TLSClientConfig: &tls.Config{RootCAs: roots}}}
}

// closing wants its connections closed after each answer.
func closing(roots *x509.CertPool) *http.Client {
	c := http1(roots)
	c.Transport.(*http.Transport).DisableKeepAlives = true
	return c
}

func http2(roots *x509.CertPool) *http.Client {
	p := new(http.Protocols)
	p.SetHTTP2(true)
	p.SetUnencryptedHTTP2(true)
	return &http.Client{Transport: &http.Transport{Protocols: p, TLSClientConfig: &tls.Config{RootCAs: roots}}}
}

var ways = []way{
	{"SSE over HTTP/1.1", false, http1, "text/event-stream"},
	{"NDJSON over HTTP/1.1", false, http1, "application/x-ndjson"},
	{"WebSocket", false, http1, ""},
	{"SSE over h2c", false, http2, "text/event-stream"},
	{"NDJSON over h2c", false, http2, "application/x-ndjson"},
	{"SSE over HTTP/2 and TLS", true, http2, "text/event-stream"},
	{"NDJSON over HTTP/2 and TLS", true, http2, "application/x-ndjson"},
	{"SSE over HTTP/1.1 and TLS", true, http1, "text/event-stream"},
	{"NDJSON over HTTP/1.1 and TLS", true, http1, "application/x-ndjson"},
	{"WebSocket over TLS", true, http1, ""},
	{"SSE over HTTP/1.1, Connection: close", false, closing, "text/event-stream"},
	{"NDJSON over HTTP/1.1 and TLS, Connection: close", true, closing, "application/x-ndjson"},
}

// A viewer is a client of one stream. next returns io.EOF at a proper end alone.
type viewer interface {
	next() (message, error)
	close()
}

// refused is an answer that is no stream; status 204 is nothing more to come.
type refused struct{ status int }

func (r refused) Error() string { return "status " + strconv.Itoa(r.status) }

// open asks for a stream after a position; empty: none is named.
func (w way) open(t testing.TB, client *http.Client, url, after string) (viewer, error) {
	if w.accept == "" {
		return openSocket(t, client, url, after)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", w.accept)
	if after != "" {
		req.Header.Set("Last-Event-ID", after)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != 200 {
		return nil, refused{resp.StatusCode}
	}
	if want := 1 + strings.Count(w.name, "h2c") + strings.Count(w.name, "HTTP/2"); resp.ProtoMajor != want {
		t.Errorf("%s goes over %s", w.name, resp.Proto)
	}
	return newListener(t, resp), nil
}

// A socketViewer asks in its first message; what is wrong with that, next tells.
type socketViewer struct {
	t    testing.TB
	conn *websocket.Conn
}

func openSocket(t testing.TB, client *http.Client, url, after string) (viewer, error) {
	conn, resp, err := websocket.Dial(t.Context(), url, &websocket.DialOptions{HTTPClient: client, Subprotocols: []string{"runlog.v1"}})
	if err != nil {
		if resp == nil {
			t.Fatal(err)
		}
		return nil, refused{resp.StatusCode}
	}
	conn.SetReadLimit(4 << 20)
	t.Cleanup(func() { conn.CloseNow() })
	first := map[string]string{}
	if after != "" {
		first["after"] = after
	}
	raw, _ := json.Marshal(first)
	if err := conn.Write(t.Context(), websocket.MessageText, raw); err != nil {
		t.Fatal(err)
	}
	return &socketViewer{t: t, conn: conn}, nil
}

func (v *socketViewer) next() (message, error) {
	for {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		_, raw, err := v.conn.Read(ctx)
		cancel()
		if websocket.CloseStatus(err) == websocket.StatusNormalClosure {
			return message{}, io.EOF
		}
		if code := websocket.CloseStatus(err); code >= 4000 {
			return message{}, refused{int(code) - 4000}
		}
		if err != nil {
			return message{}, err
		}
		m := as[struct {
			ID    string          `json:"id"`
			Event string          `json:"event"`
			Data  json.RawMessage `json:"data"`
		}](v.t, raw)
		if m.Event != "" && m.Event != "heartbeat" {
			return message{m.ID, m.Event, string(m.Data)}, nil
		}
	}
}

func (v *socketViewer) close() { _ = v.conn.CloseNow() }

// all reads to the end.
func all(t testing.TB, v viewer, err error) ([]message, error) {
	t.Helper()
	var list []message
	for err == nil {
		var m message
		if m, err = v.next(); err == nil {
			list = append(list, m)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return list, err
}

// A stage is two edges that a way is tried on, as they are in production.
type stage struct {
	*site
	edges  []*served
	client *http.Client
	roots  *x509.CertPool
}

func (s *site) stage(w way) *stage {
	return s.stageOf(w, edge.Options{Stream: stream.Options{RingEvents: 20, PageBytes: 2000}}, 2)
}

// stageOf starts n edges.
func (s *site) stageOf(w way, opts edge.Options, n int) *stage {
	st := &stage{site: s}
	secure, roots := certified()
	if w.tls {
		opts.TLS = secure
	}
	st.client, st.roots = w.client(roots), roots
	for range n {
		st.edges = append(st.edges, s.serveTLS(opts, st.client))
	}
	return st
}

func TestEveryScenarioOverEveryTransport(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			s := newSite(t).stage(w)
			odd := "a\u2028b\u0085c\r\nd\n\ndata: x\t\"é\\👩‍👩‍👧"
			done := s.scribe("default", "s")
			done.write(started("r"), said("r", odd))
			for i := range 48 {
				done.write(said("r", strconv.Itoa(i)))
			}
			done.write(completed("r"))
			url := func(edge int, path string) string { return s.edges[edge].url + path }
			run, session := "/v1/runs/r/events", "/v1/sessions/s/events"
			s.index("r", "s")
			read := func(path, after string) ([]message, error) {
				v, err := w.open(t, s.client, url(0, path), after)
				return all(t, v, err)
			}

			whole, err := read(run, "")
			if err = errors.Join(err, complete(seqs(t, whole), 1, 51)); err != nil {
				t.Fatal(err)
			}
			if d := as[struct {
				Data event.TextDeltaData `json:"data"`
			}](t, []byte(whole[1].data)); d.Data.Delta != odd {
				t.Errorf("text came as %q", d.Data.Delta)
			}
			for i := range whole { // cut behind each message
				rest, err := read(run, whole[i].id)
				if i < len(whole)-1 && (err != nil || !slices.Equal(rest, whole[i+1:])) {
					t.Errorf("after %s: %v, %d messages", whole[i].id, err, len(rest))
				}
				if i == len(whole)-1 && len(rest) > 0 {
					t.Errorf("after the end: %v", rest)
				}
			}
			for after, status := range map[string]int{"52": 409, "x": 400, "-1": 400} {
				var r refused
				if _, err := read(run, after); !errors.As(err, &r) || r.status != status {
					t.Errorf("after %s: %v, want %d", after, err, status)
				}
			}
			for path, status := range map[string]int{"/v1/runs/none/events": 404, "/v1/sessions/none/events": 404, run + "?dialect=klingon": 400, run + "?catchup=all": 400} {
				var r refused
				if _, err := read(path, ""); !errors.As(err, &r) || r.status != status {
					t.Errorf("%s: %v, want %d", path, err, status)
				}
			}
			history, err := read(session+"?follow=false", "40")
			if err = errors.Join(err, complete(seqs(t, history), 41, 51)); err != nil {
				t.Error(err)
			}
			merged, err := read(run+"?catchup=merged", "")
			if err != nil || len(merged) != 3 || !strings.Contains(merged[1].data, `"first_seq":2`) || merged[1].id != "50" {
				t.Errorf("merged: %v %v", err, merged)
			}
			snapshot, err := read(run+"?snapshot=1", "")
			if err != nil || len(snapshot) != 1 || snapshot[0].event != "snapshot" || snapshot[0].id != "51" && w.accept != "application/x-ndjson" {
				t.Errorf("snapshot: %v %v", err, snapshot)
			}
			s.liveOver(t, w)
		})
	}
}

// liveOver follows a run as it is written, dropping and resuming at the other
// edge, and then is there when the edges drain.
func (s *stage) liveOver(t *testing.T, w way) {
	const n = 60
	next := make(chan struct{})
	go func() {
		live := s.scribe("default", "live")
		live.write(started("l"))
		for i := range n {
			live.write(said("l", strconv.Itoa(i)))
			<-next
		}
	}()
	s.index("l", "live")
	var got []event.Seq
	after := ""
	for try := 0; len(got) < n+1; try++ {
		v, err := w.open(t, s.client, s.edges[try%2].url+"/v1/runs/l/events", after)
		for range 7 {
			if err != nil || len(got) == n+1 {
				break
			}
			var m message
			if m, err = v.next(); err != nil {
				break
			}
			after = m.id
			got = append(got, seqs(t, []message{m})...)
			if len(got) > 1 {
				next <- struct{}{} // only now the next one is written
			}
		}
		if err != nil {
			t.Fatalf("after %s: %v", after, err)
		}
		v.close()
	}
	if err := complete(got, 1, n+1); err != nil {
		t.Error(err)
	}
	v, err := w.open(t, s.client, s.edges[0].url+"/v1/sessions/live/events", "60")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.next(); err != nil {
		t.Fatal(err)
	}
	s.edges[0].stop()
	if m, err := v.next(); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the edge went away, and the stream ended as if it were over: %v %v", m, err)
	} else if w.accept == "" && websocket.CloseStatus(err) != websocket.StatusServiceRestart {
		t.Errorf("closed with %v, want 1012", err)
	}
	select {
	case err := <-s.edges[0].ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("the edge did not stop")
	}
}

// index enters a run that a test writes by itself.
func (s *site) index(runID, session string) {
	s.t.Helper()
	ref, _, err := s.log.Reserve(s.t.Context(), "default", "", eventlog.RunRef{RunID: runID, SessionID: session, TraceID: "trace-" + runID, Agent: "demo"})
	if err == nil {
		err = s.log.Accept(s.t.Context(), ref)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}
