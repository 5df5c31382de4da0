package edge_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/runlog-dev/runlog/artifacts"
	"github.com/runlog-dev/runlog/catalog"
	"github.com/runlog-dev/runlog/edge"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// A site is an installation: one JetStream, one catalog, one artifact store, and
// as many edges as a test starts, each with a connection of its own.
type site struct {
	t         testing.TB
	nats      *eventlog.Embedded
	log       *eventlog.Log // the worker's
	catalog   *catalog.DB
	artifacts artifacts.Store
}

func newSite(t testing.TB) *site {
	t.Helper()
	s := &site{t: t}
	var err error
	if s.nats, err = eventlog.StartEmbedded(t.TempDir(), false); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.nats.Close() })
	s.log = s.open(eventlog.Options{})
	s.announce("demo")
	if s.catalog, err = catalog.Open(t.Context(), "sqlite:"+t.TempDir()+"/catalog.db", catalog.Options{Migrate: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.catalog.Close() })
	if s.artifacts, err = artifacts.Open(t.Context(), "dir:"+t.TempDir(), artifacts.Options{}); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *site) open(opts eventlog.Options) *eventlog.Log {
	s.t.Helper()
	nc, err := s.nats.Connect()
	if err != nil {
		s.t.Fatal(err)
	}
	return openOn(s.t, nc, opts)
}

// openOn opens a log on a connection, which is closed with the test.
func openOn(t testing.TB, nc *nats.Conn, opts eventlog.Options) *eventlog.Log {
	t.Helper()
	t.Cleanup(nc.Close)
	l, err := eventlog.Open(t.Context(), nc, opts)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (s *site) announce(agent string) {
	s.t.Helper()
	if err := s.log.Announce(s.t.Context(), agent, []byte(`{"name":"`+agent+`"}`)); err != nil {
		s.t.Fatal(err)
	}
}

// An edgeNode is one edge with an HTTP server.
type edgeNode struct {
	t   testing.TB
	url string
	srv *edge.Server
	log *eventlog.Log
}

func (s *site) edge(opts edge.Options) *edgeNode {
	s.t.Helper()
	return s.edgeOn(s.open(eventlog.Options{Lease: time.Second}), opts)
}

func (s *site) edgeOn(l *eventlog.Log, opts edge.Options) *edgeNode {
	s.t.Helper()
	logger := slog.New(slog.DiscardHandler)
	if os.Getenv("EDGE_LOG") != "" {
		logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	if opts.DrainPeriod == 0 {
		opts.DrainPeriod = time.Second // a test does not wait for what it left open
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	srv := edge.New(edge.Deps{Log: l, Artifacts: s.artifacts, Catalog: s.catalog, Logger: logger}, opts)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = srv.Run(ctx, ln) }()
	s.t.Cleanup(func() { stop(); <-ended })
	return &edgeNode{s.t, "http://" + ln.Addr().String(), srv, l}
}

// patience is how long a test waits for anything.
const patience = 30 * time.Second

// do sends a request; header pairs follow the body.
func (e *edgeNode) do(method, path, body string, header ...string) *http.Response {
	e.t.Helper()
	resp, err := e.try(method, path, body, header...)
	if err != nil {
		e.t.Fatal(err)
	}
	return resp
}

func (e *edgeNode) try(method, path, body string, header ...string) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	e.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, method, e.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err == nil {
		e.t.Cleanup(func() { resp.Body.Close() })
	}
	return resp, err
}

// connect opens a connection, for what http.Client would not do with one. Reads and writes
// take no longer than patience.
func (e *edgeNode) connect() *net.TCPConn {
	e.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(e.url, "http://"))
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	return conn.(*net.TCPConn)
}

// doHost calls the edge by another name.
func (e *edgeNode) doHost(host string) *http.Response {
	e.t.Helper()
	req, err := http.NewRequestWithContext(e.t.(*testing.T).Context(), "GET", e.url+"/v1/agents", nil)
	if err != nil {
		e.t.Fatal(err)
	}
	req.Host = host
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// get reads an answer whole and wants its status.
func (e *edgeNode) get(status int, path string, header ...string) []byte {
	e.t.Helper()
	return wantStatus(e.t, e.do("GET", path, "", header...), status)
}

func wantStatus(t testing.TB, resp *http.Response, status int) []byte {
	t.Helper()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != status {
		t.Fatalf("%s %s: status %d, want %d; %v\n%s", resp.Request.Method, resp.Request.URL, resp.StatusCode, status, err, body)
	}
	return body
}

type run struct {
	RunID     string       `json:"run_id"`
	SessionID string       `json:"session_id"`
	TraceID   string       `json:"trace_id"`
	Status    event.Status `json:"status"`
	Seq       event.Seq    `json:"seq"`
}

func as[T any](t testing.TB, body []byte) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(body, &v); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return v
}

type problem struct {
	Status int       `json:"status"`
	Code   string    `json:"code"`
	Detail string    `json:"detail"`
	Param  string    `json:"param"`
	Head   event.Seq `json:"head"`
	Known  []string  `json:"known"`
}

// A scribe appends to a session as a worker does.
type scribe struct {
	t testing.TB
	w *eventlog.Writer
	k eventlog.Key
}

func (s *site) scribe(tenant, session string) *scribe {
	s.t.Helper()
	k := eventlog.Key{Tenant: tenant, Session: session}
	head, err := s.log.Head(s.t.Context(), k)
	if err != nil {
		s.t.Fatal(err)
	}
	w := s.log.Writer(k, head)
	s.t.Cleanup(w.Close)
	return &scribe{s.t, w, k}
}

// write appends each event in a frame of its own.
func (w *scribe) write(events ...event.Event) {
	w.t.Helper()
	for _, e := range events {
		if _, err := w.w.Append(e); err != nil {
			w.t.Fatal(err)
		}
		if err := w.w.Sync(context.Background()); err != nil {
			w.t.Fatal(err)
		}
	}
}

// of makes an event of a run.
func of(runID string, t event.Type, data any) event.Event {
	e := event.New(t, data)
	e.RunID, e.TraceID = runID, "trace-"+runID
	return e
}

func started(runID string) event.Event {
	return of(runID, event.RunStarted, event.RunStartedData{Agent: "demo", Attempt: 1})
}

func said(runID, text string) event.Event {
	return of(runID, event.TextDelta, event.TextDeltaData{MessageID: "m" + runID, Delta: text})
}

func completed(runID string) event.Event {
	return of(runID, event.RunCompleted, event.RunCompletedData{FinishReason: event.FinishStop})
}

func hiddenEvent() event.Event {
	e := event.New(event.Raw, event.RawData{Source: "test", Event: json.RawMessage(`{}`)})
	e.Internal = true
	return e
}

// golden appends the golden run, byte for byte as it is in the file.
func (w *scribe) golden() []event.Event {
	w.t.Helper()
	var all []event.Event
	for line := range bytes.Lines(goldenFile(w.t, "events.ndjson")) {
		e, err := event.Decode(line)
		if err != nil {
			w.t.Fatal(err)
		}
		all = append(all, e)
		w.write(e)
	}
	return all
}

func goldenFile(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("../event/testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A message is what a client reads of a stream.
type message struct {
	id, event, data string
}

// A listener reads messages of one stream as they come.
type listener struct {
	t    testing.TB
	resp *http.Response
	rd   *bufio.Reader
	json bool
}

func (e *edgeNode) listen(path string, header ...string) *listener {
	e.t.Helper()
	resp := e.do("GET", path, "", header...)
	return newListener(e.t, resp)
}

func newListener(t testing.TB, resp *http.Response) *listener {
	t.Helper()
	if resp.StatusCode != 200 {
		body, _ := io.ReadAll(resp.Body)
		t.Fatalf("stream: status %d: %s", resp.StatusCode, body)
	}
	return &listener{t, resp, bufio.NewReader(resp.Body), strings.Contains(resp.Header.Get("Content-Type"), "ndjson")}
}

// next returns the next message that is none of the stream's own signs of life.
func (l *listener) next() (message, error) {
	for {
		m, err := l.any()
		if err != nil || m.event != "heartbeat" && m.event != "" {
			return m, err
		}
	}
}

func (l *listener) any() (m message, err error) {
	if l.json {
		return l.line()
	}
	for {
		line, err := l.rd.ReadString('\n')
		if err != nil {
			return m, err
		}
		line = strings.TrimSuffix(line, "\n")
		name, value, _ := strings.Cut(line, ": ")
		switch {
		case line == "" && m != (message{}):
			return m, nil
		case name == "id":
			m.id = value
		case name == "event":
			m.event = value
		case name == "data":
			m.data += value
		}
	}
}

func (l *listener) line() (message, error) {
	line, err := l.rd.ReadBytes('\n')
	if err != nil {
		if len(line) > 0 {
			err = io.ErrUnexpectedEOF
		}
		return message{}, err
	}
	head := as[struct {
		Type string     `json:"type"`
		Seq  *event.Seq `json:"seq"`
	}](l.t, line)
	m := message{event: head.Type, data: strings.TrimSuffix(string(line), "\n")}
	if head.Seq != nil {
		m.id = head.Seq.String()
	}
	return m, nil
}

// must returns the next message.
func (l *listener) must() message {
	l.t.Helper()
	m, err := l.next()
	if err != nil {
		l.t.Fatalf("stream ended: %v", err)
	}
	return m
}

// rest reads to the end, which must be a proper one.
func (l *listener) rest() []message {
	l.t.Helper()
	var all []message
	for {
		m, err := l.next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			l.t.Fatalf("stream broke off after %d messages: %v", len(all), err)
		}
		all = append(all, m)
	}
}

func (l *listener) close() { l.resp.Body.Close() }

// seqs are the numbers of the log's events among messages.
func seqs(t testing.TB, list []message) []event.Seq {
	t.Helper()
	var all []event.Seq
	for _, m := range list {
		if strings.Contains(m.event, ".") {
			all = append(all, as[event.Event](t, []byte(m.data)).Seq)
		}
	}
	return all
}

// together runs fn n times at once.
func together(n int, fn func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { fn(i) })
	}
	wg.Wait()
}
