package eventlog

import (
	"context"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/internal/testservers"
)

func TestATimerSubmitsItsCommandOnce(t *testing.T) {
	onClusters(t, func(t *testing.T, c *testservers.Cluster, opts Options) {
		l := dial(t, c.URL(), opts)
		k := Key{"default", "s"}
		at := time.Now().Add(1200 * time.Millisecond)
		for _, id := range []string{"x", "gone"} {
			for range 2 { // setting it twice is once
				if err := l.SetTimer(t.Context(), k, event.Command{CommandID: id, Kind: event.Expire, RunID: "r"}, at); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := l.StopTimer(t.Context(), k, "gone"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for range 2 {
			go func() { _ = l.Timers(ctx) }()
		}
		q, err := l.Tickets(ctx)
		if err != nil {
			t.Fatal(err)
		}
		ticket, err := q.Next(ctx) // the session is woken
		if err != nil {
			t.Fatal(err)
		}
		if early := time.Until(at); early > 0 {
			t.Errorf("it came %s early", early)
		}
		waiting, err := l.Inbox(ctx, k)
		if err != nil || ticket.Key != k || len(waiting) != 1 || waiting[0].CommandID != "x" {
			t.Errorf("ticket for %v, inbox %+v, %v", ticket.Key, waiting, err)
		}
	})
}
