package edge_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/runlog-dev/runlog/edge"
	"github.com/runlog-dev/runlog/event"
)

const goldenSession = "ses_01k9example"

func TestGoldenStreamIsByteExact(t *testing.T) {
	s := newSite(t)
	s.scribe("default", goldenSession).golden()
	e := s.edge(edge.Options{})
	got := e.get(200, "/v1/sessions/"+goldenSession+"/events?follow=false")
	hello, rest, _ := bytes.Cut(got, []byte("\n\n"))
	if !bytes.HasPrefix(hello, []byte("retry: 1")) {
		t.Errorf("the stream begins with %q", hello)
	}
	if want := goldenFile(t, "stream.sse.txt"); !bytes.Equal(bytes.TrimRight(rest, "\n"), bytes.TrimRight(want, "\n")) {
		t.Errorf("got\n%s\nwant\n%s", rest, want)
	}
	lines := e.get(200, "/v1/sessions/"+goldenSession+"/events?follow=false&include=internal", "Accept", "application/x-ndjson")
	if want := goldenFile(t, "events.ndjson"); !bytes.Equal(lines, want) {
		t.Errorf("got\n%s\nwant\n%s", lines, want)
	}
}

// Cut after every event and resumed on another edge, each later event comes
// once, in order, over both transports, live or not.
func TestResumeAnywhereOnAnotherEdge(t *testing.T) {
	s := newSite(t)
	all := s.scribe("default", goldenSession).golden()
	var want []event.Seq
	for _, e := range all {
		if !e.Internal {
			want = append(want, e.Seq)
		}
	}
	edges := []*edgeNode{s.edge(edge.Options{}), s.edge(edge.Options{})}
	for _, accept := range []string{"text/event-stream", "application/x-ndjson"} {
		for cut := range want {
			t.Run(fmt.Sprint(strings.TrimPrefix(accept, "application/"), "/", cut), func(t *testing.T) {
				first := edges[cut%2].listen("/v1/sessions/"+goldenSession+"/events", "Accept", accept)
				var got []message
				for range cut {
					got = append(got, first.must())
				}
				first.close()
				header := []string{"Accept", accept}
				if cut > 0 {
					header = append(header, "Last-Event-ID", got[cut-1].id)
				}
				got = append(got, edges[(cut+1)%2].listen("/v1/sessions/"+goldenSession+"/events?follow=false", header...).rest()...)
				if have := seqs(t, got); !slices.Equal(have, want) {
					t.Errorf("got %v\nwant %v", have, want)
				}
			})
		}
	}
}

func TestRunStreamEndsAfterItsTerminalEventAndThenIs204(t *testing.T) {
	s := newSite(t)
	e, other := s.edge(edge.Options{}), s.edge(edge.Options{})
	r := as[run](t, wantStatus(t, e.do("POST", "/v1/runs", `{"input":"hi","session_id":"s"}`), 202))
	w := s.scribe("default", "s")
	w.write(event.New(event.SessionCreated, event.SessionCreatedData{Agent: "demo"}), started("other"), completed("other"))
	l := e.listen("/v1/runs/" + r.RunID + "/events")
	w.write(started(r.RunID))
	if m := l.must(); m.event != "run.started" || m.id != "4" {
		t.Fatalf("first: %+v", m)
	}
	w.write(said(r.RunID, "x"), hiddenEvent(), completed(r.RunID), hiddenEvent())
	rest := l.rest()
	if got := seqs(t, rest); !slices.Equal(got, []event.Seq{5, 7}) {
		t.Fatalf("got %v", got)
	}
	w.write(started("next"), completed("next"))
	for _, n := range []*edgeNode{e, other} {
		for _, at := range []string{"7", "8", "10"} {
			n.get(204, "/v1/runs/"+r.RunID+"/events", "Last-Event-ID", at)
		}
		got := seqs(t, n.listen("/v1/runs/"+r.RunID+"/events", "Last-Event-ID", "5").rest())
		if !slices.Equal(got, []event.Seq{7}) {
			t.Fatalf("after 5: %v", got)
		}
		if got := seqs(t, n.listen("/v1/runs/"+r.RunID+"/events").rest()); !slices.Equal(got, []event.Seq{4, 5, 7}) {
			t.Fatalf("from the start: %v", got)
		}
	}
}

// Commands that come too late are noted behind the run's end: a client that has it all
// is told so nevertheless, and does not wait for an end that it has seen.
func TestWhatComesTooLateDoesNotKeepARunOpen(t *testing.T) {
	s := newSite(t)
	e, other := s.edge(edge.Options{}), s.edge(edge.Options{})
	late := of("r", event.CommandIgnored, event.CommandIgnoredData{CommandID: "c", Kind: string(event.Steer), Reason: "the run is not going on"})
	late.Internal = true
	w := s.scribe("default", "s")
	s.index("r", "s")
	if _, err := w.w.Append(started("r"), completed("r"), late); err != nil {
		t.Fatal(err)
	}
	for _, more := range []event.Event{late, hiddenEvent(), started("next")} { // what the last frame has
		w.write(more)
		for _, n := range []*edgeNode{e, other} {
			for _, at := range []string{"2", "3"} {
				n.get(204, "/v1/runs/r/events", "Last-Event-ID", at)
			}
			if got := seqs(t, n.listen("/v1/runs/r/events", "Last-Event-ID", "1").rest()); !slices.Equal(got, []event.Seq{2}) {
				t.Errorf("after 1: %v", got)
			}
		}
	}
}

func TestEveryCursorGetsAnHonestAnswer(t *testing.T) {
	s := newSite(t)
	s.scribe("default", "s").write(started("r"), said("r", "a"), said("r", "b"))
	e := s.edge(edge.Options{})
	for _, bad := range []string{"abc", "-1", "+1", "18446744073709551616", "2.x", "0.0", "1.", ".1", "1.99999999", "1e3"} {
		p := as[problem](t, e.get(400, "/v1/sessions/s/events?follow=false", "Last-Event-ID", bad))
		if p.Code != "bad_cursor" {
			t.Errorf("%q: %+v", bad, p)
		}
	}
	for _, ahead := range []string{"4", "1003", "18446744073709551615", "4.0"} {
		p := as[problem](t, e.get(409, "/v1/sessions/s/events", "Last-Event-ID", ahead))
		if p.Code != "cursor_ahead" || p.Head != 3 {
			t.Errorf("%q: %+v", ahead, p)
		}
	}
	for cursor, want := range map[string][]event.Seq{"": {1, 2, 3}, "0": {1, 2, 3}, "1": {2, 3}, "3": nil, "2.0": {2, 3}} {
		for _, how := range []string{"header", "after", "last_event_id"} {
			path, header := "/v1/sessions/s/events?follow=false", []string{}
			if how == "header" {
				header = []string{"Last-Event-ID", cursor}
			} else {
				path += "&" + how + "=" + cursor
			}
			if got := seqs(t, e.listen(path, header...).rest()); !slices.Equal(got, want) {
				t.Errorf("%s %q: got %v, want %v", how, cursor, got, want)
			}
		}
	}
	if got := seqs(t, e.listen("/v1/sessions/s/events?follow=false&after=0", "Last-Event-ID", "2").rest()); !slices.Equal(got, []event.Seq{3}) {
		t.Errorf("the header does not win: %v", got)
	}
	for _, path := range []string{"/v1/sessions/none/events", "/v1/runs/none/events", "/v1/runs/none"} {
		if p := as[problem](t, e.get(404, path)); p.Code != "not_found" {
			t.Errorf("%s: %+v", path, p)
		}
	}
}
