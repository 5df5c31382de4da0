package edge_test

import (
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/edge"
	"github.com/runlog-dev/runlog/edge/room"
	"github.com/runlog-dev/runlog/edge/stream"
)

// Near its ceiling of memory an edge takes no new streams, says so, and goes on with
// those it has. EventSource, which would give up at a 503, is cut off and comes back.
func TestMemoryCeiling(t *testing.T) {
	s := newSite(t)
	w := s.scribe("default", "s")
	w.write(started("r"))
	runtime.GC()
	e := s.serve(edge.Options{Memory: 4 << 30, Stream: stream.Options{Budget: room.Budget{Streams: room.InUse() + 64<<20}}})
	l := e.listen("/v1/sessions/s/events")
	l.must()
	ballast := make([]byte, 160<<20)
	for i := 0; i < len(ballast); i += 4096 {
		ballast[i] = 1
	}
	runtime.GC()
	waitFor(t, func() bool { // the last look may be a moment old
		resp := e.do("GET", "/v1/sessions/s/events", "")
		defer resp.Body.Close()
		return resp.StatusCode == 503
	})
	resp := e.do("GET", "/v1/sessions/s/events", "")
	p := as[problem](t, wantStatus(t, resp, 503))
	if p.Code != "overloaded" || resp.Header.Get("Retry-After") != "2" || !strings.Contains(p.Detail, "memory") {
		t.Errorf("%+v %v", p, resp.Header)
	}
	if resp, err := e.try("GET", "/v1/sessions/s/events", "", "Accept", "text/event-stream", "Last-Event-ID", "1"); err == nil {
		t.Errorf("EventSource got %s", resp.Status)
	}
	wantStatus(t, e.do("GET", "/v1/sessions/s/events", "", "Accept", "application/x-ndjson", "Last-Event-ID", "1"), 503)
	wantStatus(t, e.do("GET", "/v1/sessions/s/events", "", "Upgrade", "websocket", "Connection", "Upgrade", "Sec-WebSocket-Version", "13",
		"Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="), 503) // no handshake
	e.get(200, "/v1/sessions/s")
	w.write(said("r", "x"))
	if m := l.must(); m.id != "2" {
		t.Errorf("%+v", m)
	}
	if e.refusals("memory") < 3 {
		t.Error("the metrics do not tell")
	}
	runtime.KeepAlive(ballast)
	runtime.GC()
	waitFor(t, func() bool {
		resp, err := e.try("GET", "/v1/sessions/s/events?follow=false", "")
		return err == nil && resp.StatusCode == 200
	})
}

// While proxies have not noticed that an edge drains, it takes streams as ever; after
// that EventSource never sees a 503.
func TestDrainingEdgesTakeStreamsUntilTheyEnd(t *testing.T) {
	s := newSite(t)
	s.scribe("default", "s").write(started("r"))
	e := s.edge(edge.Options{})
	e.srv.Drain()
	for _, accept := range []string{"text/event-stream", "application/x-ndjson"} {
		resp := e.do("GET", "/v1/sessions/s/events", "", "Accept", accept)
		if p := as[problem](t, wantStatus(t, resp, 503)); p.Code != "unavailable" || resp.Header.Get("Retry-After") == "" {
			t.Errorf("%+v", p)
		}
	}
	if resp, err := e.try("GET", "/v1/sessions/s/events", "", "Accept", "text/event-stream", "Last-Event-ID", "1"); err == nil {
		t.Errorf("EventSource got %s", resp.Status)
	}
	if resp, err := e.try("GET", "/v1/sessions/s/events?after=1", "", "Accept", "text/event-stream", "Cache-Control", "no-cache"); err == nil {
		t.Errorf("EventSource without an id yet got %s", resp.Status)
	}
	if resp, err := e.try("GET", "/v1/sessions/s/events?lastEventId=1", "", "Accept", "text/event-stream"); err == nil {
		t.Errorf("a polyfill got %s", resp.Status)
	}

	late := s.serve(edge.Options{DrainDelay: 2 * time.Second})
	late.stop()
	waitFor(t, func() bool {
		resp, err := late.try("GET", "/readyz", "")
		return err == nil && resp.StatusCode == 503
	})
	l := late.listen("/v1/sessions/s/events", "Accept", "text/event-stream", "Last-Event-ID", "0")
	l.must()
	if m, err := l.next(); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("it ended as if it were over: %v %v", m, err)
	}
}
