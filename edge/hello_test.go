package edge_test

import (
	"strings"
	"testing"

	"github.com/runlog-dev/runlog/edge"
)

// hello is the cursor with which a stream begins, before anything has happened.
func (e *edgeNode) hello(path string) (id string) {
	e.t.Helper()
	l := e.listen(path, "Accept", "text/event-stream")
	defer l.close()
	for {
		line, err := l.rd.ReadString('\n')
		if err != nil {
			e.t.Fatalf("%s: %v", path, err)
		}
		if value, ok := strings.CutPrefix(line, "id: "); ok {
			id = strings.TrimSpace(value)
		}
		if line == "\n" {
			return id
		}
	}
}

// An EventSource whose stream has said nothing yet comes back as one that resumes, at an edge that drains, too: without a
// cursor it would get a status, here or from a proxy, and give up for good.
func TestAnEventSourceThatHasSeenNothingComesBack(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{})
	r := as[run](t, wantStatus(t, e.do("POST", "/v1/runs", `{"input":"hi","session_id":"s"}`), 202)).RunID
	s.scribe("default", "s").write(started(r), said(r, "x"))
	other := s.edge(edge.Options{})
	other.srv.Drain()
	for path, want := range map[string]string{
		"/v1/sessions/s/events?after=2":                 "2",
		"/v1/sessions/s/events?after=2&dialect=agui":    "2",
		"/v1/sessions/s/events?after=2&catchup=merged":  "2",
		"/v1/runs/r/events?after=2":                     "2",
		"/v1/runs/r/events":                             "0",
		"/v1/runs/r/events?after=2.0&dialect=langgraph": "2.0",
		"/v1/runs/r/events?after=2&dialect=openai":      "2",
	} {
		path = strings.Replace(path, "/r/", "/"+r+"/", 1)
		id := e.hello(path)
		if id != want {
			t.Errorf("%s begins with the id %q, want %q", path, id, want)
		}
		if resp, err := other.try("GET", path, "", "Accept", "text/event-stream", "Last-Event-ID", id); err == nil {
			t.Errorf("%s: an EventSource that comes back gets %s", path, resp.Status)
		}
	}
}

// A cursor that is there twice is none, and one that is beyond the log says of which of many sessions it is.
func TestCursorsThatContradictAreToldSo(t *testing.T) {
	s := newSite(t)
	for _, name := range []string{"s", "u"} {
		s.scribe("default", name).write(started("r"+name), said("r"+name, "x"))
	}
	e := s.edge(edge.Options{})
	for _, path := range []string{"/v1/sessions/s/events?follow=false", "/v1/stream?session=s&follow=false"} {
		if p := as[problem](t, wantStatus(t, e.do("GET", path, "", "Last-Event-ID", "1", "Last-Event-ID", "2"), 400)); p.Code != "bad_cursor" {
			t.Errorf("%s: %+v", path, p)
		}
	}
	p := as[problem](t, wantStatus(t, e.do("GET", "/v1/stream?session=s/2&session=u/3", ""), 409))
	if p.Code != "cursor_ahead" || !strings.HasPrefix(p.Detail, "session u: cursor 3 ") {
		t.Errorf("%+v", p)
	}
}

// So do streams of many sessions. One that begins with a snapshot leaves its id to that: who comes back without it gets
// the snapshot again.
func TestCursorsThatStreamsBeginWith(t *testing.T) {
	s := newSite(t)
	for _, name := range []string{"s", "u"} {
		s.scribe("default", name).write(started("r"+name), said("r"+name, "x"))
	}
	e := s.edge(edge.Options{})
	const many = "/v1/stream?session=s/2&session=u/1"
	id := e.hello(many)
	l := e.listen(strings.NewReplacer("/2", "", "/1", "").Replace(many)+"&follow=false", "Last-Event-ID", id)
	if got := l.rest(); len(got) != 1 || !strings.Contains(got[0].data, `"session_id":"u"`) {
		t.Errorf("after %s: %v", id, got)
	}
	if id := e.hello("/v1/sessions/s/events?snapshot=1"); id != "" {
		t.Errorf("a stream with a snapshot begins with the id %s", id)
	}
}
