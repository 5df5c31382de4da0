package edge_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/runlog-dev/runlog/edge"
	"github.com/runlog-dev/runlog/edge/stream"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// counted is an edge whose requests to the log are counted.
func (s *site) counted() (*edgeNode, func() uint64) {
	s.t.Helper()
	nc, err := s.nats.Connect()
	if err != nil {
		s.t.Fatal(err)
	}
	return s.edgeOn(openOn(s.t, nc, eventlog.Options{}), edge.Options{Stream: stream.Options{CheckHead: time.Hour}}), since(nc)
}

// since counts the messages that were sent since it was called last.
func since(nc *nats.Conn) func() uint64 {
	last := nc.Stats().OutMsgs
	return func() uint64 {
		now := nc.Stats().OutMsgs
		n := now - last
		last = now
		return n
	}
}

// Thousands come back at once when an edge or a network has failed: what each of
// them asks of the log is what the log has to bear.
func TestComingBackAsksTheLogLittle(t *testing.T) {
	s := newSite(t)
	r := as[run](t, wantStatus(t, s.edge(edge.Options{}).do("POST", "/v1/runs", `{"input":"x","session_id":"s"}`), 202))
	w := s.scribe("default", "s")
	w.write(started(r.RunID), said(r.RunID, "a"), said(r.RunID, "b"), said(r.RunID, "c"))
	for _, c := range []struct {
		path        string
		after       event.Seq
		cold, known uint64 // requests of an edge that has not, and that has seen the session
		what        string
	}{
		{"/v1/sessions/s/events", 4, 1, 0, "the head"},
		{"/v1/sessions/s/events", 3, 1, 0, "the head, which is the frame that was missed"},
		{"/v1/sessions/s/events", 2, 2, 0, "the head and the frame before it"},
		{"/v1/runs/" + r.RunID + "/events", 3, 2, 0, "the run's place and the head"},
		{"/v1/stream?session=s", 0, 4, 0, "the head and the three frames before it"},
	} {
		e, sent := s.counted()
		for _, want := range []uint64{c.cold, c.known} {
			sent()
			var header []string
			if c.after > 0 {
				header = []string{"Last-Event-ID", c.after.String()}
			}
			l := e.listen(c.path, header...)
			for range 4 - c.after {
				l.must()
			}
			if n := sent(); n != want {
				t.Errorf("%s after %d: asked the log %d times, want %d: %s", c.path, c.after, n, want, c.what)
			}
			l.close()
		}
	}
}
