package deploy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/internal/testservers"
)

// An edge that streams have filled is asked for whole conversations, sent large bodies and left alone by those who read a
// history, all at once: it stays within its memory, small requests are answered, and the streams lose nothing.
func TestAFullEdgeStaysWithinMemory(t *testing.T) {
	if os.Getenv("RUNLOG_SOAK") == "" {
		t.Skip("RUNLOG_SOAK is not set")
	}
	const memory = 96 << 20
	f := startFrontOf(t, testservers.PlainRunlogBinary(t), fmt.Sprintf("RUNLOG_LOG=error\nRUNLOG_PING=15s\nRUNLOG_MEMORY=%d", memory), "RUNLOG_MEMORY=0")
	s := f.fullSession(t)
	f.longConversation(t, 5<<20)
	f.history(t, "large", 20, 512<<10, 512<<10)
	f.history(t, "small", 20, 512<<10, 512)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	stop := watchResident(t, f.edges[0].PID())
	socket := knockers[slices.IndexFunc(knockers, func(k knocker) bool { return k.name == "WebSocket" })]
	var open []io.ReadCloser
	for refused := 0; refused < 3; { // those who were refused come back
		r, err := socket.open(ctx, f.addrs[0])
		if err != nil {
			refused++
			time.Sleep(2 * time.Second)
			continue
		}
		open = append(open, r)
	}
	full := resident(t, f.edges[0].PID())
	for range 40 {
		hold(t, f.addrs[0], 8<<20)
	}
	paths := slices.Concat(slices.Repeat(waysToReadAll, 5), slices.Repeat([]string{"/v1/sessions/small/events", "/v1/sessions/large/events?catchup=merged", "/v1/sessions/small/events?catchup=snapshot&after=1"}, 30))
	var slow []slowAnswer
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		for _, path := range paths {
			if a, err := askOneSlowly(f.addrs[0], path); err == nil {
				slow = append(slow, a)
			}
		}
	}()
	answered := 0
	for waiting := true; waiting; {
		if resp, _, err := send(ctx, http.MethodGet, "http://"+f.addrs[0]+"/v1/sessions/full", nil); err == nil && resp.StatusCode == http.StatusOK {
			answered++
		}
		select {
		case <-asked:
			waiting = false
		case <-time.After(100 * time.Millisecond):
		}
	}
	taken := len(slices.DeleteFunc(slices.Clone(slow), func(a slowAnswer) bool { return a.StatusCode != http.StatusOK }))
	if err := s.say(ctx, "still here"); err != nil {
		t.Fatal(err)
	}
	for i, r := range open {
		if err := reads(r, "still here"); err != nil {
			t.Fatalf("stream %d of %d: %v", i, len(open), err)
		}
	}
	peak := stop()
	t.Logf("%d WebSockets in %d MiB; %d of %d others were taken, %d small requests answered; %d MiB at most", len(open), full>>20, taken, len(paths), answered, peak>>20)
	if peak > memory+memory/8 || answered == 0 {
		t.Errorf("the edge takes %d MiB of %d", peak>>20, memory>>20)
	}
}
