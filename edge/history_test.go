package edge_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/runlog-dev/runlog/edge"
	"github.com/runlog-dev/runlog/edge/stream"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

func TestFiltersHideAndNeverRenumber(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{Stream: stream.Options{Heartbeat: 20 * time.Millisecond}})
	w := s.scribe("default", "s")
	w.write(started("r"))
	for range 200 {
		w.write(hiddenEvent())
	}
	w.write(said("r", "x"), hiddenEvent())
	l := e.listen("/v1/sessions/s/events")
	var ids []string
	for range 6 {
		m := l.must()
		ids = append(ids, m.event+" "+m.id)
	}
	// Three times because of the number, the last time at a heartbeat.
	want := []string{"run.started 1", "position 65", "position 129", "position 193", "text.delta 202", "position 203"}
	if !slices.Equal(ids, want) {
		t.Errorf("got %q, want %q", ids, want)
	}
	var inner event.Seq
	for _, m := range e.listen("/v1/sessions/s/events?follow=false&include=internal", "Last-Event-ID", "193").rest() {
		inner = as[event.Event](t, []byte(m.data)).Seq
	}
	if inner != 203 {
		t.Errorf("the auditor's last event is %d", inner)
	}
	if got := seqs(t, e.listen("/v1/sessions/s/events?follow=false", "Last-Event-ID", "129").rest()); !slices.Equal(got, []event.Seq{202}) {
		t.Errorf("back without internal: %v", got)
	}
}

func TestInternalPartsAreNotShown(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{})
	parts := []event.Part{event.TextPart("open"), {Type: event.PartText, Text: "hush", Internal: true}}
	s.scribe("default", "s").write(of("r", event.MessageCompleted, event.MessageCompletedData{MessageID: "m", Role: event.RoleAssistant, Parts: parts, SHA256: event.TextHash(parts)}))
	for _, path := range []string{"events?follow=false", "events?follow=false&snapshot=1", "snapshot", "messages", "messages?format=openai", "messages?format=anthropic"} {
		body := string(e.get(200, "/v1/sessions/s/"+path))
		if strings.Contains(body, "hush") || !strings.Contains(body, "open") {
			t.Errorf("%s: %s", path, body)
		}
		sep := "?"
		if strings.Contains(path, "?") {
			sep = "&"
		}
		if body := string(e.get(200, "/v1/sessions/s/"+path+sep+"include=internal")); !strings.Contains(body, "hush") {
			t.Errorf("auditor's %s: %s", path, body)
		}
	}
}

func TestSnapshotAndItsTail(t *testing.T) {
	s := newSite(t)
	w := s.scribe("default", goldenSession)
	w.golden()
	e := s.edge(edge.Options{})
	l := e.listen("/v1/sessions/" + goldenSession + "/events?snapshot=1")
	m := l.must()
	if m.event != "snapshot" || m.id != "42" {
		t.Fatalf("first: %+v", m)
	}
	snap := as[event.Session](t, []byte(m.data))
	if snap.Seq != 42 || len(snap.Messages) != 3 || snap.Book != nil {
		t.Errorf("%+v", snap)
	}
	w.write(started("next"))
	if m := l.must(); m.event != "run.started" || m.id != "43" {
		t.Errorf("tail: %+v", m)
	}
	// The same URL after a drop: what was missed, no second snapshot.
	if m := e.listen("/v1/sessions/"+goldenSession+"/events?snapshot=1", "Last-Event-ID", "42").must(); m.id != "43" {
		t.Errorf("resumed: %+v", m)
	}
	lines := e.listen("/v1/sessions/"+goldenSession+"/events?snapshot=1&follow=false", "Accept", "application/x-ndjson").rest()
	if len(lines) != 1 || lines[0].event != "snapshot" || lines[0].id != "43" {
		t.Errorf("%+v", lines)
	}
}

// logStream is where the log is stored.
func (s *site) logStream() jetstream.Stream {
	s.t.Helper()
	nc, err := s.nats.Connect()
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		s.t.Fatal(err)
	}
	str, err := js.Stream(s.t.Context(), "LOG_0")
	if err != nil {
		s.t.Fatal(err)
	}
	return str
}

// purge removes what the log holds of a session before a seq.
func (s *site) purge(session string, before event.Seq) {
	s.t.Helper()
	str := s.logStream()
	k := eventlog.Key{Tenant: "default", Session: session}
	head, err := s.log.Head(s.t.Context(), k)
	if err != nil {
		s.t.Fatal(err)
	}
	for f, err := range s.log.Read(s.t.Context(), k, before-1, head) {
		if err == nil {
			err = str.Purge(s.t.Context(), jetstream.WithPurgeSubject("log.0.default."+session), jetstream.WithPurgeSequence(f.Pos))
		}
		if err != nil {
			s.t.Fatal(err)
		}
		return
	}
}

// A position that is no longer kept is answered with a reset that carries the
// fold, and the tail goes on from there.
func TestLostPositionIsAReset(t *testing.T) {
	s := newSite(t)
	w := s.scribe("default", "s")
	r := as[run](t, wantStatus(t, s.edge(edge.Options{}).do("POST", "/v1/runs", `{"input":"x","session_id":"s"}`), 202))
	w.write(started(r.RunID))
	for i := range 50 {
		w.write(said(r.RunID, strconv.Itoa(i)))
	}
	k := eventlog.Key{Tenant: "default", Session: "s"}
	fold, head, err := s.log.Load(t.Context(), k)
	if err == nil {
		err = s.log.SaveSnapshot(t.Context(), k, fold.Encode(), head.Seq)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.write(said(r.RunID, "after the snapshot"))
	s.purge("s", 40)
	e := s.edge(edge.Options{})
	for _, path := range []string{"/v1/sessions/s/events", "/v1/runs/" + r.RunID + "/events"} {
		for _, at := range []string{"", "5", "38"} {
			l := e.listen(path, "Last-Event-ID", at)
			m := l.must()
			if m.event != "reset" || m.id != "52" {
				t.Fatalf("%s after %q: %+v", path, at, m)
			}
			if snap := as[event.Session](t, []byte(m.data)); snap.Seq != 52 || len(snap.Messages) != 1 {
				t.Errorf("reset with %+v", snap)
			}
			l.close()
		}
		l := e.listen(path, "Last-Event-ID", "39")
		if m := l.must(); m.id != "40" {
			t.Errorf("a position that is kept: %+v", m)
		}
		l.close()
	}
	l := e.listen("/v1/runs/"+r.RunID+"/events", "Last-Event-ID", "1")
	l.must()
	w.write(completed(r.RunID))
	if got := seqs(t, l.rest()); !slices.Equal(got, []event.Seq{53}) {
		t.Errorf("the tail after a reset: %v", got)
	}
}

// Awkward text comes through byte for byte.
func TestFramingIsByteExact(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{})
	w := s.scribe("default", "s")
	texts := []string{"a\u2028b\u2029c\u0085d", "\r", "\r\n", "\n\ndata: x\n\nid: 99\n\n", ": ping", "北京 🌤 é", "\x00\x1f\ufeff", `{"a":"\u0000"}`, "</script>&amp;"}
	for _, text := range texts {
		w.write(said("r", text))
	}
	w.write(of("r", event.Custom, event.CustomData{Name: "n", Value: []byte(`{"z":9007199254740993,"a":1.0}`)}))
	for _, accept := range []string{"text/event-stream", "application/x-ndjson"} {
		all := e.listen("/v1/sessions/s/events?follow=false", "Accept", accept).rest()
		if len(all) != len(texts)+1 {
			t.Fatalf("%s: %d messages", accept, len(all))
		}
		for i, want := range texts {
			var d event.TextDeltaData
			if err := as[event.Event](t, []byte(all[i].data)).Into(&d); err != nil || d.Delta != want {
				t.Errorf("%s: got %q, want %q", accept, d.Delta, want)
			}
		}
		if !strings.Contains(all[len(texts)].data, `{"z":9007199254740993,"a":1.0}`) {
			t.Errorf("%s: numbers were touched: %s", accept, all[len(texts)].data)
		}
	}
}

// A client that has read through some event in one view goes on in any other one
// behind the same event.
func TestACursorIsTheSamePositionInEveryView(t *testing.T) {
	s := newSite(t)
	all := s.scribe("default", "s").golden()
	e := s.edge(edge.Options{})
	for _, view := range []string{"", "&include=internal", "&dialect=plain", "&dialect=v1", "&dialect=agui", "&dialect=parts", "&dialect=agents", "&dialect=anthropic"} {
		path := "/v1/sessions/s/events?follow=false" + view
		whole := identified(t, e.listen(path).bare())
		if len(whole) == 0 {
			t.Fatalf("%q says nothing", view)
		}
		for n := range event.Seq(len(all)) {
			got := identified(t, e.listen(path, "Last-Event-ID", n.String()).bare())
			want := slices.DeleteFunc(slices.Clone(whole), func(at stream.Position) bool { return at.Seq < n || at.Seq == n && at.Sub == 0 })
			got = slices.DeleteFunc(got, func(at stream.Position) bool { return !slices.Contains(whole, at) }) // where the cursor is moved to
			if !slices.Equal(got, want) {
				t.Fatalf("%q after %d: got %v, want %v", view, n, got, want)
			}
		}
	}
}

// identified is the positions of messages that have one.
func identified(t *testing.T, all []message) (list []stream.Position) {
	t.Helper()
	for _, m := range all {
		if m.id == "" || m.event == "position" {
			continue
		}
		at, err := stream.ParsePosition(m.id)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, at)
	}
	return list
}
