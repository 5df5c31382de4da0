package edge_test

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/runlog-dev/runlog/edge"
	"github.com/runlog-dev/runlog/edge/stream"
	"github.com/runlog-dev/runlog/event"
)

// purgeWhole removes all that the log holds of a session.
func (s *site) purgeWhole(session string) {
	s.t.Helper()
	if err := s.logStream().Purge(s.t.Context(), jetstream.WithPurgeSubject("log.0.default."+session)); err != nil {
		s.t.Fatal(err)
	}
}

// A session that somebody purges whole under its viewers breaks their streams off, and
// whoever comes back is told that his position is beyond the log, or that there is no
// such session: nobody waits for what will not come.
func TestStreamsOfAPurgedSessionAreBrokenOff(t *testing.T) {
	for _, way := range slices.Concat(ways[:4], ways[len(ways)-2:]) {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.scribe("default", "s").write(started("r"), said("r", "hello"), said("r", "world"))
			s.index("r", "s")
			st := s.stageOf(way, edge.Options{Stream: stream.Options{CheckHead: 200 * time.Millisecond, Heartbeat: 50 * time.Millisecond, Ping: time.Hour}}, 1)
			back := map[string]int{"/v1/sessions/s/events": 404, "/v1/runs/r/events": 409, "/v1/runs/r/events?catchup=merged": 409, "/v1/stream?session=s": 404}
			if way.accept != "text/event-stream" {
				delete(back, "/v1/stream?session=s")
			}
			open, last := map[string]viewer{}, map[string]string{}
			for path := range back {
				v, err := way.open(t, st.client, st.edges[0].url+path, "")
				if err != nil {
					t.Fatal(err)
				}
				for m := (message{}); !strings.Contains(m.data, "world"); last[path] = m.id {
					if m, err = v.next(); err != nil {
						t.Fatal(err)
					}
				}
				open[path] = v
			}
			s.purgeWhole("s")
			for path, v := range open {
				if m, err := v.next(); err == nil || errors.Is(err, io.EOF) {
					t.Errorf("%s goes on, or ends as if it were over: %v %v", path, m, err)
				}
				wantRefused(t, way, st, path, last[path], back[path])
			}
			wantRefused(t, way, st, "/v1/sessions/s/events", "0", 404)
		})
	}
}

// wantRefused asks for a stream and wants a status in its place.
func wantRefused(t *testing.T, w way, st *stage, path, after string, status int) {
	t.Helper()
	v, err := w.open(t, st.client, st.edges[0].url+path, after)
	if err == nil {
		_, err = v.next() // over a WebSocket it is the close code
	}
	if got := (refused{}); !errors.As(err, &got) || got.status != status {
		t.Errorf("%s after %s: %v, want %d", path, after, err, status)
	}
}

// So is a stream that was reading the log when it was purged.
func TestAReaderOfAPurgedSessionIsBrokenOff(t *testing.T) {
	s := newSite(t)
	w := s.scribe("default", "s")
	w.write(started("r"))
	for range 300 {
		w.write(said("r", strings.Repeat("x", 64<<10)))
	}
	e := s.serve(edge.Options{Stream: stream.Options{RingEvents: 10, RingBytes: 1 << 20, CheckHead: 200 * time.Millisecond, Heartbeat: 50 * time.Millisecond}})
	l := e.listen("/v1/sessions/s/events")
	got := []message{l.must()}
	s.purgeWhole("s")
	m, err := l.next()
	for ; err == nil; m, err = l.next() {
		got = append(got, m)
	}
	if errors.Is(err, io.EOF) || len(got) > 300 {
		t.Errorf("%d messages, then %v", len(got), err)
	}
	if err := complete(seqs(t, got), 1, event.Seq(len(got))); err != nil {
		t.Error(err)
	}
}

// A client that would take a snapshot gets the events that it has missed where there is none:
// the log was purged of what only a lost one had.
func TestEventsWhereThereIsNoSnapshot(t *testing.T) {
	s := newSite(t)
	w := s.scribe("default", "s")
	w.write(started("r"))
	for range 400 {
		w.write(said("r", "x"))
	}
	if err := s.logStream().Purge(t.Context(), jetstream.WithPurgeSubject("log.0.default.s"), jetstream.WithPurgeSequence(50)); err != nil {
		t.Fatal(err)
	}
	e := s.serve(edge.Options{})
	got := e.listen("/v1/sessions/s/events?follow=false&catchup=snapshot&after=100").rest()
	if len(got) != 1 || got[0].id != "401" || strings.Count(got[0].data, "x") < 301 {
		t.Errorf("got %v", got)
	}
}
