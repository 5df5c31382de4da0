package eventlog

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/event"
)

// Many commands to a session that somebody holds cost the log a few requests each,
// however many wait already and however large they are.
func TestManyCommandsAskLittle(t *testing.T) {
	l := open(t, Options{})
	k := Key{"t", "s"}
	if err := l.Ticket(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	const n = 100
	before := l.nc.Stats()
	for i := range n {
		cmd := event.Command{CommandID: strconv.Itoa(i), Kind: event.Steer, RunID: "r", Reason: strings.Repeat("x", 10_000)}
		if err := l.Submit(t.Context(), k, cmd); err != nil {
			t.Fatal(err)
		}
		if err := l.Wake(t.Context(), k); err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(30 * time.Second); !idle(&l.wakes); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it is still being woken")
		}
	}
	after := l.nc.Stats()
	if asked := after.OutMsgs - before.OutMsgs; asked > 6*n {
		t.Errorf("%d commands asked %d times", n, asked)
	}
	if read := after.InBytes - before.InBytes; read > 10*n*10_000 {
		t.Errorf("%d commands read %d bytes", n, read)
	}
}

func idle(w *wakes) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.of) == 0
}

// A command that comes while the session is being woken for another one has its own
// tries, and the last one is followed by none.
func TestWakesBeginAnew(t *testing.T) {
	var w wakes
	k := Key{"t", "s"}
	again, first := w.begin(k)
	if _, second := w.begin(k); !first || second {
		t.Errorf("begun by %v, %v", first, second)
	}
	_, _ = w.begin(k)
	if w.end(k) {
		t.Error("it ended before what came meanwhile was tried")
	}
	<-again
	if !w.end(k) {
		t.Error("it does not end")
	}
	if _, first := w.begin(k); !first {
		t.Error("nobody begins again")
	}
}

// A session is woken as soon as its ticket is free, although it was refused first.
func TestARefusedTicketIsPlacedLater(t *testing.T) {
	l := open(t, Options{})
	k := Key{"t", "s"}
	if err := l.Ticket(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	q, err := l.Tickets(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	held, err := q.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := l.Submit(t.Context(), k, event.Command{CommandID: strconv.Itoa(i), Kind: event.Steer, RunID: "r"}); err != nil {
			t.Fatal(err)
		}
		if err := l.Wake(t.Context(), k); err != nil {
			t.Fatal(err)
		}
	}
	if err := held.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	next, err := q.Next(t.Context())
	if err != nil || next.Key != k {
		t.Fatalf("%v %v", next, err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
}
