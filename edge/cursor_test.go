package edge_test

import (
	"strings"
	"testing"

	"github.com/runlog-dev/runlog/edge"
)

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
