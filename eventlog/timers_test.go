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
			go keepTime(ctx, l)
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

// An alarm is for a session whose ticket is lost: it places one, and where there
// is one it waits.
func TestAnAlarmPlacesTheTicketThatIsMissing(t *testing.T) {
	l := dial(t, testservers.NATS(t, 3).URL(), Options{Replicas: 3, Lease: time.Second})
	lost, stopped := Key{"default", "lost"}, Key{"default", "stopped"}
	q, err := l.Tickets(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Ticket(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	held, err := q.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // moving it is once
		for _, k := range []Key{lost, stopped} {
			if err := l.SetAlarm(t.Context(), k, "worker"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := l.StopAlarm(t.Context(), stopped, "worker"); err != nil {
		t.Fatal(err)
	}
	if timed, err := l.Timed(t.Context(), lost); err != nil || timed {
		t.Errorf("an alarm passes for a timer: %v, %v", timed, err)
	}
	go keepTime(t.Context(), l)
	eventuallyRung(t, l, held)
	if err := held.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	next, err := q.Next(ctx)
	if err != nil || next.Key != lost || next.Delivered != 1 {
		t.Errorf("the next ticket is %+v, %v", next, err)
	}
	if there, err := l.Ticketed(t.Context(), stopped); err != nil || there {
		t.Errorf("an alarm that was stopped has gone off: %v, %v", there, err)
	}
}

// eventuallyRung keeps the ticket, as its holder does, until an alarm has gone off in vain
// and been set again.
func eventuallyRung(t *testing.T, l *Log, held *Ticket) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if err := held.KeepAlive(); err != nil {
			t.Fatal(err)
		}
		_, err := l.leaderGet(t.Context(), timersStream, getRequest{LastBy: timerSubject(held.Key, alarmed+"again")})
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the alarm has not gone off: %v", err)
		}
	}
}

// keepTime delivers timers as a worker does: on a busy machine a server may seem
// silent.
func keepTime(ctx context.Context, l *Log) {
	for ctx.Err() == nil {
		_ = l.Timers(ctx)
	}
}
