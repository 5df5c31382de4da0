package runlog

import (
	"bytes"
	"testing"

	"github.com/runlog-dev/runlog/event"
)

// FuzzStream feeds a follower what a server may send: it never yields an event
// twice or out of order, and its cursor is where it stands.
func FuzzStream(f *testing.F) {
	const ev = `{"v":1,"seq":3,"id":"s-3","type":"run.started","time":"2026-11-30T12:00:00Z","session_id":"s","run_id":"r","data":{}}`
	for _, seed := range []string{
		"id: 3\nevent: run.started\ndata: " + ev + "\n\n", "event: snapshot\nid: 9\ndata: {\"seq\":9}\n\n",
		"event: reset\ndata: {\"seq\":1}\n\n", "event: position\nid: 8\ndata: {}\n\n", "event: heartbeat\ndata:\n\n", "data: " + ev + "\n\n",
		"data: {\"v\":1,\"seq\":7,\"type\":\"no.id\",\"session_id\":\"s\",\"data\":{}}\n\n",
	} {
		f.Add([]byte(seed + seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		c := &Client{MaxMessage: 1 << 16}
		p, _ := c.pursue()
		follower := newFollower(c, EventOptions{After: 2})
		last := event.Seq(2)
		over, err := follower.read(bytes.NewReader(in), p, func(e event.Event, err error) bool {
			if err != nil {
				t.Fatal(err) // errors end the connection, they are not yielded from here
			}
			if e.ID == "" { // of the stream, not of the log
				if e.Type == Snapshot || e.Type == Reset {
					last = e.Seq
				}
				return true
			}
			if e.Seq <= last {
				t.Fatalf("event %d after %d, of %q", e.Seq, last, in)
			}
			last = e.Seq
			return true
		})
		if !over && err == nil {
			t.Fatalf("the stream ended without an outcome, of %q", in)
		}
		if follower.seq != last {
			t.Fatalf("stands at %d after %d, of %q", follower.seq, last, in)
		}
	})
}
