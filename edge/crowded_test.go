package edge_test

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/edge"
	"github.com/runlog-dev/runlog/edge/room"
	"github.com/runlog-dev/runlog/edge/stream"
	"github.com/runlog-dev/runlog/event"
)

// Clients that are told a large conversation and do not read it take the room of others, who are told so after a
// while, in a way in which each of them comes back. Who needs none of it is served: small conversations, what only looks
// at a large one, and what can be told otherwise.
func TestRoomForConversations(t *testing.T) {
	s := newSite(t)
	e := s.serve(edge.Options{Stream: stream.Options{Budget: room.Budget{Told: 12 << 20}, LoadWait: 100 * time.Millisecond}})
	const body = `{"input":"x","session_id":"long","run_id":"r"}`
	wantStatus(t, e.do("POST", "/v1/runs", body), 202)
	w := s.scribe("default", "long")
	w.write(started("r"))
	for range 300 { // more than is replayed without a look at the fold, and than kernels keep for a client
		w.write(said("r", strings.Repeat("x", 32<<10)))
	}
	w.write(completed("r"))
	s.scribe("default", "short").write(started("s"))
	const snapshot = "/v1/sessions/long/snapshot"
	e.get(200, snapshot)
	held := dialSmall(t, strings.TrimPrefix(e.url, "http://"))
	_, _ = io.WriteString(held, http1Request(snapshot, "held"))
	if _, err := io.ReadFull(held, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}

	resp := e.do("GET", snapshot, "")
	p := as[problem](t, wantStatus(t, resp, 503))
	if p.Code != "overloaded" || resp.Header.Get("Retry-After") != "2" || !strings.Contains(p.Detail, "conversations") {
		t.Errorf("%+v %v", p, resp.Header)
	}
	for _, path := range []string{"/v1/sessions/long/messages", "/v1/sessions/long/events?snapshot=1", "/v1/stream?session=long&snapshot=1",
		"/langgraph/threads/long", "/langgraph/threads/long/state", "/v1/responses/r"} {
		wantStatus(t, e.do("GET", path, ""), 503)
	}
	for path, body := range map[string]string{"/langgraph/threads/long/history": "{}", "/langgraph/threads/search": `{"ids":["short","long"]}`} {
		wantStatus(t, e.do("POST", path, body), 503)
	}
	if resp, err := e.try("GET", "/v1/sessions/long/events?snapshot=1", "", "Accept", "text/event-stream", "Last-Event-ID", "1"); err == nil && resp.StatusCode != 200 {
		t.Errorf("EventSource got %s", resp.Status)
	}
	if got := as[struct{ Status string }](t, wantStatus(t, e.do("POST", "/v1/runs?wait=5s", body), 202)); got.Status != "completed" {
		t.Errorf("who waits for a run is told that it is %s", got.Status)
	}
	e.get(200, "/v1/sessions/short/snapshot")
	e.get(200, "/v1/sessions/long")
	wantStatus(t, e.do("POST", "/v1/runs/r/cancel", ""), 200)
	if m := e.listen("/v1/sessions/long/events?catchup=snapshot&follow=false", "Last-Event-ID", "1").must(); m.event != "text.delta" {
		t.Errorf("what could be a snapshot begins with %s", m.event)
	}
	if n := e.refusals("conversations"); n < 10 {
		t.Errorf("the metrics tell of %v", n)
	}

	held.Close()
	waitFor(t, func() bool {
		resp := e.do("GET", snapshot, "")
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode == 200
	})
	wantStatus(t, e.do("POST", "/v1/runs?wait=5s", body), 200)
}

// What LangGraph's clients are told at once of several states or threads ends when it is large.
func TestListsOfConversationsEnd(t *testing.T) {
	s := newSite(t)
	e := s.edge(edge.Options{})
	for _, thread := range []string{"long", "other"} {
		w := s.scribe("default", thread)
		for _, run := range []string{"a", "b"} {
			w.write(started(run + thread))
			for i := range 40 { // more than 4 MiB
				w.write(of(run+thread, event.MessageCompleted, event.MessageCompletedData{MessageID: fmt.Sprint(run, i), Role: event.RoleAssistant,
					Parts: []event.Part{{Type: event.PartText, Text: strings.Repeat("x", 128<<10)}}}))
			}
			w.write(completed(run + thread))
		}
	}
	type state struct {
		Values     *struct{}
		Checkpoint struct {
			ID string `json:"checkpoint_id"`
		}
	}
	ask := func(path, body string) []state {
		return as[[]state](t, wantStatus(t, e.do("POST", path, body), 200))
	}
	last := ask("/langgraph/threads/long/history", "{}")
	if len(last) != 1 {
		t.Fatalf("%d states of a conversation of more than 4 MiB", len(last))
	}
	if before := ask("/langgraph/threads/long/history", `{"before":"`+last[0].Checkpoint.ID+`"}`); len(before) != 1 || before[0].Checkpoint.ID >= last[0].Checkpoint.ID {
		t.Errorf("before %v comes %v", last, before)
	}
	if both := ask("/langgraph/threads/search", `{"ids":["long","other"]}`); len(both) != 2 || both[0].Values == nil || both[1].Values != nil {
		t.Errorf("two threads of more than 4 MiB: %+v", both)
	}
}

// longSession writes the i-th session of manyURL: 400 KiB, of which few fit at a time.
func (s *site) longSession(i int) *scribe {
	w := s.scribe("default", fmt.Sprint("s", i))
	w.write(started("r"))
	for range 12 {
		w.write(said("r", strings.Repeat("x", 32<<10)))
	}
	return w
}

// One stream tells more conversations than there is room for at a time, a tenant's 1 MiB: one after the other.
func TestSnapshotsOfManySessionsHaveRoomInTurn(t *testing.T) {
	s := newSite(t)
	e := s.serve(edge.Options{Stream: stream.Options{Budget: room.Budget{Told: 2 << 20}, LoadWait: 100 * time.Millisecond}})
	const sessions = 6
	for i := range sessions {
		s.longSession(i)
	}
	whole := string(e.get(200, manyURL(sessions, "&snapshot=1&follow=0")))
	if n := strings.Count(whole, "event: snapshot"); n != sessions {
		t.Errorf("%d snapshots of %d", n, sessions)
	}
	if n := e.refusals("conversations"); n != 0 {
		t.Errorf("the metrics tell of %v refusals", n)
	}
}

// Those that would only be shorter than what was missed do not wait for each other: the
// events are told where there is no room.
func TestShorterSnapshotsOfManySessionsDoNotWaitForEachOther(t *testing.T) {
	s := newSite(t)
	e := s.serve(edge.Options{Stream: stream.Options{Budget: room.Budget{Told: 2 << 20, Folds: 1}, LoadWait: 100 * time.Millisecond}})
	const sessions = 6
	for i := range sessions {
		w := s.longSession(i)
		list := make([]event.Event, 300)
		for i := range list {
			list[i] = of("r", event.Custom, event.CustomData{Name: "n", Value: json.RawMessage(`"` + strings.Repeat("x", 1<<10) + `"`)})
		}
		w.write(list...)
	}
	whole := string(e.get(200, manyURL(sessions, "&catchup=snapshot&follow=0")))
	snapshots, told := strings.Count(whole, "event: snapshot"), strings.Count(whole, "event: run.started")
	if snapshots == 0 || snapshots+told != sessions {
		t.Errorf("%d snapshots and %d whole sessions of %d", snapshots, told, sessions)
	}
}
