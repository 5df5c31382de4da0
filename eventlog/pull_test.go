package eventlog

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/runlog-dev/runlog/internal/testservers"
)

// A process that stops takes no ticket along: what was handed to it in the same
// instant is another one's at once, not after a lease.
func TestWhoStopsAskingTakesNoTicketAlong(t *testing.T) {
	c := testservers.NATS(t, 1)
	opts := Options{Lease: time.Minute}
	l, other := dial(t, c.URL(), opts), dial(t, c.URL(), opts)
	stopping, err := l.Tickets(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	staying, err := other.Tickets(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	both := 0
	for i := range 300 {
		k := Key{"default", fmt.Sprint("s", i)}
		ctx, cancel := context.WithCancel(t.Context())
		placed := make(chan error, 1)
		go func() { // while the ticket is on its way
			placed <- other.Ticket(ctx, k)
			cancel()
		}()
		ticket, err := stopping.Next(ctx)
		if ticket == nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if err := <-placed; err != nil {
			t.Fatal(err)
		}
		if ticket != nil {
			both++
			if err := ticket.Return(); err != nil {
				t.Fatal(err)
			}
		}
		patient, stop := context.WithTimeout(t.Context(), 10*time.Second)
		again, err := staying.Next(patient)
		stop()
		if err != nil {
			t.Fatalf("ticket %d, taken by who stopped: %v: %v", i, ticket != nil, err)
		}
		if again.Key != k {
			t.Fatalf("got the ticket of %s, want %s", again.Key, k)
		}
		if err := again.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		cancel()
	}
	t.Logf("%d of 300 tickets were taken before the stop", both)
}

// A request ends by itself after half a lease, and then asks for nothing more.
func TestARequestIsGoodForHalfALease(t *testing.T) {
	l := open(t, Options{Lease: 800 * time.Millisecond})
	began := time.Now()
	if err := l.pull(t.Context(), jobsStream, consumer, 1, nil); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 350*time.Millisecond || took > 5*time.Second {
		t.Errorf("nothing came for %v, want 400 ms", took)
	}
	k := Key{"default", "s"}
	if err := l.Ticket(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	tickets, err := l.Tickets(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ticket, err := tickets.Next(t.Context())
	if err != nil || ticket.Key != k || ticket.Delivered != 1 {
		t.Errorf("ticket %+v, %v: the old request has swallowed it", ticket, err)
	}
}

// A server that says nothing is noticed before the request would end.
func TestASilentServerIsNoticed(t *testing.T) {
	c := testservers.NATS(t, 1)
	proxy := testservers.StartProxy(t, c.Node(0).Addr())
	l := dial(t, "nats://"+proxy.Addr(), Options{Lease: 8 * time.Second})
	proxy.Blackhole()
	began := time.Now()
	err := l.pull(t.Context(), jobsStream, consumer, 1, nil)
	if took := time.Since(began); !errors.Is(err, errSilent) || took > 7*time.Second {
		t.Errorf("%v after %v", err, took)
	}
}

// A server that has answered is not silent, however long an answer takes to be
// dealt with.
func TestASlowTakerIsNotASilentServer(t *testing.T) {
	for range 20 { // which of two things that are ready is chosen is chance
		msgs := make(chan *nats.Msg, 3)
		for range cap(msgs) {
			msgs <- &nats.Msg{}
		}
		over, err := receive(t.Context(), msgs, cap(msgs), time.Millisecond, func(*nats.Msg) error {
			time.Sleep(2 * time.Millisecond)
			return nil
		})
		if !over || err != nil {
			t.Fatalf("over %v, %v", over, err)
		}
	}
}
