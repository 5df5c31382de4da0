package edge_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/runlog-dev/runlog/edge"
	"github.com/runlog-dev/runlog/eventlog"
)

// A served edge runs as in production: Run, with its own listener and Live.
type served struct {
	*edgeNode
	metrics *prometheus.Registry
	records *records
	stop    context.CancelFunc
	ended   chan error
}

func (s *site) serve(opts edge.Options) *served { return s.serveTLS(opts, http.DefaultClient) }

// serveTLS waits with the client's own means until the edge is up.
func (s *site) serveTLS(opts edge.Options, client *http.Client) *served {
	s.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	e := &served{metrics: prometheus.NewRegistry(), records: &records{}, ended: make(chan error, 1)}
	srv := edge.New(edge.Deps{Log: s.open(eventlog.Options{}), Catalog: s.catalog, Artifacts: s.artifacts, Metrics: e.metrics,
		Logger: slog.New(slog.NewJSONHandler(e.records, &slog.HandlerOptions{Level: slog.LevelDebug}))}, opts)
	ctx, stop := context.WithCancel(context.Background())
	go func() { e.ended <- srv.Run(ctx, ln) }()
	s.t.Cleanup(stop)
	scheme := "http://"
	if opts.TLS != nil {
		scheme = "https://"
	}
	e.stop, e.edgeNode = stop, &edgeNode{t: s.t, url: scheme + ln.Addr().String(), srv: srv}
	waitFor(s.t, func() bool {
		resp, err := client.Get(e.url + "/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == 200
	})
	return e
}

// certified is what an edge needs for TLS, and whom its clients have to trust.
func certified() (*tls.Config, *x509.CertPool) {
	srv := httptest.NewTLSServer(nil)
	srv.Close()
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	return &tls.Config{Certificates: srv.TLS.Certificates}, roots
}

// serveBoth serves an edge in clear text and one with TLS.
func (s *site) serveBoth(opts edge.Options) (plain, secure *served, roots *x509.CertPool) {
	s.t.Helper()
	plain = s.serve(opts)
	opts.TLS, roots = certified()
	return plain, s.serveTLS(opts, http1(roots)), roots
}

// records collects log lines.
type records struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (r *records) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.buf.Write(b)
}

func (r *records) of(route string) (all []map[string]any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for line := range bytes.Lines(r.buf.Bytes()) {
		var m map[string]any
		if json.Unmarshal(line, &m) == nil && m["path"] == route {
			all = append(all, m)
		}
	}
	return all
}

func (e *served) sample(name string) (count uint64, value float64) {
	e.t.Helper()
	families, err := e.metrics.Gather()
	if err != nil {
		e.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "runlog_edge_"+name {
			continue
		}
		for _, m := range f.GetMetric() {
			count += m.GetHistogram().GetSampleCount()
			value += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return count, value
}

func TestMetricsAndRecordOfAStream(t *testing.T) {
	s := newSite(t)
	e := s.serve(edge.Options{})
	s.work()
	newListener(t, e.do("POST", "/v1/runs", `{"input":"hello","session_id":"s"}`, "Accept", "text/event-stream")).rest()
	waitFor(t, func() bool { return len(e.records.of("/v1/runs")) == 1 })
	for name, want := range map[string]uint64{"submit_to_start_seconds": 1, "time_to_first_token_seconds": 1, "replay_events": 1} {
		if got, _ := e.sample(name); got != want {
			t.Errorf("%s has %d samples, want %d", name, got, want)
		}
	}
	for name, want := range map[string]float64{"streams_ended_total": 1, "open_streams": 0, "events_sent_total": 7} {
		if _, got := e.sample(name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if n, _ := e.sample("event_to_client_seconds"); n == 0 {
		t.Error("no lag was observed")
	}
	r := e.records.of("/v1/runs")[0]
	if r["status"] != 200.0 || r["tenant"] != "default" || r["session"] != "s" || r["ended"] != "run_over" || r["agent"] != "demo" || r["run"] == nil || r["trace"] == nil {
		t.Errorf("the record is %v", r)
	}
	e.get(404, "/v1/runs/none")
	waitFor(t, func() bool { return len(e.records.of("/v1/runs/none")) == 1 })
	if r := e.records.of("/v1/runs/none")[0]; r["status"] != 404.0 || r["run"] != "none" || r["err"] == nil {
		t.Errorf("the record is %v", r)
	}
	families, _ := e.metrics.Gather()
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if strings.Contains(l.GetValue(), "none") && l.GetValue() != "none" || strings.Contains(l.GetValue(), "run_") && l.GetName() != "reason" {
					t.Errorf("%s has a label of one request: %s", f.GetName(), l)
				}
			}
		}
	}
}

func TestTooManyStreamsAreToldSo(t *testing.T) {
	s := newSite(t)
	s.scribe("default", "s").write(started("r"))
	e := s.serve(edge.Options{MaxStreams: 2})
	first, second := e.listen("/v1/sessions/s/events"), e.listen("/v1/sessions/s/events")
	first.must()
	second.must()
	resp := e.do("GET", "/v1/sessions/s/events", "")
	p := as[problem](t, wantStatus(t, resp, 503))
	if p.Code != "overloaded" || resp.Header.Get("Retry-After") == "" {
		t.Errorf("%+v", p)
	}
	first.close()
	waitFor(t, func() bool {
		resp, err := e.try("GET", "/v1/sessions/s/events?follow=false", "")
		return err == nil && resp.StatusCode == 200
	})
}

func TestLargeHeadersAreRefused(t *testing.T) {
	e := newSite(t).serve(edge.Options{})
	resp, err := e.try("GET", "/healthz", "", "X-Large", strings.Repeat("x", 64<<10))
	if err == nil && resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge { // or the connection was gone before that was read
		t.Errorf("status %d", resp.StatusCode)
	}
}

// Over HTTP/2 the same holds: events as they come, and an abort that no client
// takes for the end.
func TestStreamsOverHTTP2(t *testing.T) {
	s := newSite(t)
	w := s.scribe("default", "s")
	w.write(started("r"))
	e := s.serve(edge.Options{})
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: &http.Transport{Protocols: protocols}}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	get := func(path string) *listener {
		req, _ := http.NewRequestWithContext(ctx, "GET", e.url+path, nil)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		if resp.ProtoMajor != 2 {
			t.Fatalf("the protocol is %s", resp.Proto)
		}
		return newListener(t, resp)
	}
	l := get("/v1/sessions/s/events")
	l.must()
	w.write(said("r", "x"))
	if m := l.must(); m.id != "2" {
		t.Errorf("%+v", m)
	}
	if got := seqs(t, get("/v1/sessions/s/events?follow=false").rest()); !slices.Equal(got, count(1, 2)) {
		t.Errorf("history: %v", got)
	}
	e.stop()
	if _, err := l.next(); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the stream ended as if it were over: %v", err)
	}
	if err := <-e.ended; err != nil {
		t.Error(err)
	}
}
