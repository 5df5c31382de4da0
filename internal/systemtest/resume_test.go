package systemtest

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/runlog-dev/runlog/event"
)

// A way is one of those in which a client can read a run.
type way struct{ form, query string }

var ways = []way{
	{sse, ""}, {ndjson, ""}, {sse, "include=internal"}, {sse, "dialect=plain"},
}

func (w way) String() string { return w.form + " " + w.query }

func (w way) path(runID, more string) string {
	return "/v1/runs/" + runID + "/events?" + strings.Trim(w.query+"&"+more, "&")
}

// resume reconnects after a cursor, as clients of that form do: by header, or by parameter.
func (w way) resume(t testing.TB, e edge, runID, cursor string) *stream {
	t.Helper()
	if w.form == ndjson {
		return e.listen(t, w.path(runID, "after="+cursor), w.form)
	}
	return e.listen(t, w.path(runID, ""), w.form, "Last-Event-ID", cursor)
}

// uncut reads a run in one go.
func (w way) uncut(t testing.TB, e edge, runID string) []message {
	t.Helper()
	s := e.listen(t, w.path(runID, ""), w.form)
	defer s.close()
	return s.rest()
}

// A finished run, cut after every single event: the rest comes from the other edge, byte for byte.
func resumeFinished(t *testing.T, p *production) {
	r := p.at[0].finish(t, request{Agent: "demo", Input: "hello"})
	for _, w := range ways {
		want := w.uncut(t, p.at[0], r.RunID)
		if len(want) < 8 {
			t.Fatalf("%s: only %d messages", w, len(want))
		}
		for cut := 1; cut < len(want); cut++ {
			s := w.resume(t, p.at[1], r.RunID, want[cut-1].id)
			got := append(want[:cut:cut], s.rest()...)
			s.close()
			if d := differ(got, want); d != "" {
				t.Fatalf("%s: cut after %d: %s", w, cut, d)
			}
		}
		over := p.at[1].do(t, http.StatusNoContent, http.MethodGet, w.path(r.RunID, ""), "", "Accept", w.form, "Last-Event-ID", want[len(want)-1].id)
		if len(over.body) > 0 {
			t.Errorf("%s: after the end: %q", w, over.body)
		}
	}
	checkLog(t, p.at[0], r.SessionID)
	offByOneIsNoticed(t, p, r.RunID)
}

// offByOneIsNoticed shows that the comparison can fail: a client that reconnects one event too early or too late
// does not read the same.
func offByOneIsNoticed(t *testing.T, p *production, runID string) {
	t.Helper()
	w := ways[0]
	want := w.uncut(t, p.at[0], runID)
	const cut = 5
	for _, wrong := range []int{cut - 1, cut + 1} {
		s := w.resume(t, p.at[1], runID, want[wrong-1].id)
		if differ(append(want[:cut:cut], s.rest()...), want) == "" {
			t.Errorf("cut after %d, resumed after %d: nobody notices", cut, wrong)
		}
		s.close()
	}
}

// A live run, read by many clients each of which is cut after another event and goes on at the other edge.
func resumeLive(t *testing.T, p *production) {
	r := p.at[0].submit(t, request{Input: "tell"})
	const readers = 40
	stories := make([][]message, readers)
	var all sync.WaitGroup
	for i := range readers {
		w := ways[i%2] // SSE and NDJSON, native
		all.Go(func() { stories[i] = w.cutOften(t, p.at, r.RunID, 1+i) })
	}
	all.Wait()
	if t.Failed() {
		return
	}
	for i, got := range stories {
		if d := differ(got, ways[i%2].uncut(t, p.at[i%2], r.RunID)); d != "" {
			t.Errorf("%s, cut every %d events: %s", ways[i%2], 1+i, d)
		}
	}
	checkLog(t, p.at[1], r.SessionID)
}

// cutOften reads a run to its end, but hangs up after every so many events and goes on at the other edge.
func (w way) cutOften(t *testing.T, at [2]edge, runID string, every int) []message {
	var got []message
	cursor := "0"
	for turn := 0; ; turn++ {
		s, err := w.tryResume(t, at[turn%2], runID, cursor)
		if err != nil {
			t.Errorf("%s after %s: %v", w, cursor, err)
			return nil
		}
		part, over := s.some(every)
		s.close()
		got = append(got, part...)
		if over {
			return got
		}
		cursor = got[len(got)-1].id
	}
}

func (w way) tryResume(t *testing.T, e edge, runID, cursor string) (*stream, error) {
	if w.form == ndjson {
		return e.tryStart(t, http.MethodGet, w.path(runID, "after="+cursor), "", w.form)
	}
	return e.tryStart(t, http.MethodGet, w.path(runID, ""), "", w.form, "Last-Event-ID", cursor)
}

// some reads up to n events of the log; over if the run's end is among them or the stream breaks.
func (s *stream) some(n int) (list []message, over bool) {
	for len(list) < n {
		m, err := s.next()
		if err != nil {
			s.t.Errorf("after %d events: %v", len(list), err)
			return list, true
		}
		if !m.ofLog() {
			continue
		}
		list = append(list, m)
		if event.Type(m.kind).Terminal() {
			return list, true
		}
	}
	return list, false
}

// ?snapshot=1 gives the fold at some point and what follows; together they are the whole.
func resumeFromSnapshot(t *testing.T, p *production) {
	r := p.at[0].submit(t, request{Input: "tell"})
	first := p.at[0].listen(t, "/v1/runs/"+r.RunID+"/events", sse)
	defer first.close()
	first.until(event.TextDelta)
	var streams [2]*stream
	for i, form := range []string{sse, ndjson} {
		streams[i] = p.at[i].listen(t, "/v1/sessions/"+r.SessionID+"/events?snapshot=1", form)
		defer streams[i].close()
	}
	for i, s := range streams {
		folded := s.begins("snapshot")
		if folded.Seq < 4 || folded.Run(r.RunID).Status != event.Running {
			t.Errorf("%s: the snapshot is at %d, the run is %+v", s.form, folded.Seq, folded.Run(r.RunID))
		}
		goOnFolding(t, folded, events(t, s.until(event.RunCompleted)))
		sameConversation(t, s.form+": snapshot and tail", folded.EncodePublic(), p.at[i].get(t, "/v1/sessions/"+r.SessionID+"/snapshot").body)
	}
	checkLog(t, p.at[0], r.SessionID)
}

// begins reads the message with which a stream has to begin: a snapshot or a reset.
func (s *stream) begins(kind string) *event.Session {
	s.t.Helper()
	m, err := s.next()
	for err == nil && m.kind == "" { // the retry hint
		m, err = s.next()
	}
	if err != nil || m.kind != kind {
		s.t.Fatalf("%s begins with %q, %v", s.form, m.raw, err)
	}
	return snapshotOf(s.t, m)
}

// snapshotOf makes a fold of a snapshot message, as a client has it: without a worker's books.
func snapshotOf(t testing.TB, m message) *event.Session {
	t.Helper()
	data := fmt.Sprintf(`{"book":{"fold":%d},%s`, event.FoldVersion, strings.TrimPrefix(m.data, "{"))
	s, err := event.DecodeSession([]byte(data))
	if err != nil {
		t.Fatalf("%v: %.300s", err, m.data)
	}
	if seq, _, _ := strings.Cut(m.id, "~"); seq != s.Seq.String() {
		t.Errorf("the snapshot at %d has the id %q", s.Seq, m.id)
	}
	return s
}

// Cursors that are odd in every way, on runs and sessions, by header and by parameter.
func cursors(t *testing.T, p *production) {
	e := p.at[1]
	r := p.at[0].finish(t, request{Input: "hello"})
	for _, path := range []string{"/v1/runs/" + r.RunID + "/events", "/v1/sessions/" + r.SessionID + "/events"} {
		follow := "?follow=false"
		whole := e.listen(t, path+follow, sse)
		want := whole.rest()
		whole.close()
		for _, start := range []string{"", "0"} {
			s := e.listen(t, path+follow, sse, "Last-Event-ID", start)
			if d := differ(s.rest(), want); d != "" {
				t.Errorf("%s from %q: %s", path, start, d)
			}
			s.close()
		}
		for _, bad := range []string{"-1", "abc", "18446744073709551616", "1.5.2", "1e3", "0x10", " 5 5", "5;6", "٣"} {
			e.refused(t, http.StatusBadRequest, event.CodeBadCursor, http.MethodGet, path, "", "Accept", sse, "Last-Event-ID", bad)
		}
		e.refused(t, http.StatusBadRequest, event.CodeBadCursor, http.MethodGet, path+"?after=abc", "", "Accept", ndjson)
		head := e.state(t, r.RunID).Seq
		for _, ahead := range []string{fmt.Sprint(head + 1000), "18446744073709551615"} {
			pr := e.refused(t, http.StatusConflict, event.CodeCursorAhead, http.MethodGet, path, "", "Accept", sse, "Last-Event-ID", ahead)
			if pr.Head == nil || *pr.Head < head {
				t.Errorf("%s after %s: head %v, want %d", path, ahead, pr.Head, head)
			}
		}
	}
	e.refused(t, http.StatusNotFound, event.CodeNotFound, http.MethodGet, "/v1/runs/run_nobody/events", "", "Accept", sse)
	e.refused(t, http.StatusNotFound, event.CodeNotFound, http.MethodGet, "/v1/sessions/ses_nobody/events", "", "Accept", sse, "Last-Event-ID", "7")
	pr := e.refused(t, http.StatusBadRequest, event.CodeUnknownDialect, http.MethodGet, "/v1/runs/"+r.RunID+"/events?dialect=klingon", "", "Accept", sse)
	if len(pr.Known) == 0 {
		t.Errorf("unknown dialect: %+v", pr)
	}
}

// A cursor that is older than what the log still holds gets the fold, as a reset, and what follows. The other edge
// has nothing of the session in its memory.
func cursorTooOld(t *testing.T, p *production) {
	one, other := p.at[0].with(p.rival), p.at[1].with(p.rival) // of a tenant whose catalog is not compared
	r := one.finish(t, request{Agent: "demo", Input: "hello"})
	before := into[event.Session](t, one.get(t, "/v1/sessions/"+r.SessionID+"/snapshot"))
	p.forget(t, "log.0.rival."+r.SessionID, 30)
	next := one.submit(t, request{SessionID: r.SessionID, Input: "tell"})
	reach(t, one, next, event.TextDelta)
	for _, w := range ways[:2] {
		for _, cursor := range []string{"3", "0"} {
			s := other.listen(t, "/v1/sessions/"+r.SessionID+"/events?after="+cursor, w.form)
			folded := s.begins("reset")
			if !folded.Run(next.RunID).Status.Terminal() {
				goOnFolding(t, folded, events(t, s.until(event.RunCompleted)))
			}
			s.close()
			if len(folded.Messages) != len(before.Messages)+2 {
				t.Errorf("%s after %s: %d messages follow %d", w, cursor, len(folded.Messages), len(before.Messages))
			}
			sameConversation(t, w.form+": reset and tail", folded.EncodePublic(), other.get(t, "/v1/sessions/"+r.SessionID+"/snapshot").body)
		}
	}
}

// forget purges a session's frames before the one that holds an event.
func (p *production) forget(t *testing.T, subject string, before event.Seq) {
	t.Helper()
	s := p.stream(t, "LOG_0")
	for pos := uint64(1); ; {
		m, err := s.GetMsg(t.Context(), pos, jetstream.WithGetMsgSubject(subject))
		if err != nil {
			t.Fatal(err)
		}
		var first, last event.Seq
		fmt.Sscanf(m.Header.Get("Runlog-Seq"), "%d-%d", &first, &last)
		if last >= before {
			err = s.Purge(t.Context(), jetstream.WithPurgeSubject(subject), jetstream.WithPurgeSequence(m.Sequence))
			if err != nil {
				t.Fatal(err)
			}
			return
		}
		pos = m.Sequence + 1
	}
}
