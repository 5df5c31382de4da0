package stream

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/edge/room"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// Clients come and go in every way there is, under load: what they were given goes
// with them. `make soak` does so for longer.
func TestChurn(t *testing.T) {
	s := parking(t, Options{Linger: 20 * time.Millisecond, Budget: room.Budget{Shared: 4 << 20}}, nil)
	var until time.Time
	if d, err := time.ParseDuration(os.Getenv("RUNLOG_SOAK")); err == nil {
		until = time.Now().Add(d)
	}
	var first, last usage
	for round := 0; round < 4 || time.Now().Before(until); round++ {
		if !t.Run(fmt.Sprint(round), func(t *testing.T) { s.churn(t, round) }) {
			return
		}
		last = s.settled(t)
		if round == 1 { // what grows once is there
			first = last
		}
	}
	t.Logf("after two rounds %d goroutines, %d KB; at the end %d, %d KB", first.goroutines, first.heap>>10, last.goroutines, last.heap>>10)
	if last.goroutines > first.goroutines+10 {
		t.Errorf("goroutines grow from %d to %d", first.goroutines, last.goroutines)
	}
	if last.heap > first.heap+24<<20 { // the server in this process has blocks of 8 MB at hand
		t.Errorf("the heap grows from %d to %d MB", first.heap>>20, last.heap>>20)
	}
}

type usage struct {
	goroutines int
	heap       uint64 // bytes in use after a collection
}

// churn has clients follow sessions that grow and end, and waits for them.
func (s *lotServer) churn(t *testing.T, round int) {
	const sessions, each = 20, 15
	var wg sync.WaitGroup
	for i := range sessions {
		name := fmt.Sprintf("churn-%d-%d", round, i)
		w := s.log.Writer(eventlog.Key{Tenant: "default", Session: name}, eventlog.Head{})
		write(t, w, event.RunStarted)
		for range each {
			c := s.dial(t, "/"+name+"?run=r").answer(t)
			wg.Go(func() { c.behave(t) })
		}
		wg.Go(func() {
			defer w.Close()
			for range 15 {
				write(t, w, event.TextDelta)
			}
			write(t, w, event.RunCompleted)
		})
	}
	wg.Wait()
}

// behave reads to the end, or leaves in one way or another.
func (c *client) behave(t *testing.T) {
	defer c.conn.Close()
	switch rand.IntN(4) {
	case 0:
		_ = c.conn.SetLinger(0)
	case 1:
		_, _ = c.body.ReadString('\n')
		_ = c.conn.CloseWrite()
		_, _ = c.rest(t) // aborted, or over just before
	default:
		lines, err := c.rest(t)
		if err != nil || len(lines) != 17 {
			t.Errorf("%d lines, %v", len(lines), err)
		}
	}
}

// settled waits until everybody has left, and looks what that leaves.
func (s *lotServer) settled(t *testing.T) usage {
	t.Helper()
	await(t, "everybody to leave", func() bool { return s.hub.Parked() == 0 && viewersOf(s.hub) == 0 && s.hub.Topics() == 0 })
	for len(s.ended) > 0 {
		<-s.ended
	}
	s.hub.waiting.mu.Lock()
	if n := len(s.hub.waiting.rows) - s.hub.waiting.next; n > 1 {
		t.Errorf("%d rows wait for nobody", n)
	}
	s.hub.waiting.mu.Unlock()
	for range 3 { // pools go with the second one
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{runtime.NumGoroutine(), m.HeapAlloc}
}
