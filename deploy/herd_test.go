package deploy

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	runlog "github.com/runlog-dev/runlog/clients/go"
)

// Edges are restarted one after the other under many clients: they move, nothing is lost or doubled, nobody gives up,
// and they do not come back all at once. Half of them are EventSources, half programs that use clients/go, which come
// back at once. The first edge ends a number of streams a second, the second one, for comparison, all at once.
func TestEdgesRestartUnderLoad(t *testing.T) {
	clients, spread := 120, 2*time.Second
	if os.Getenv("RUNLOG_SOAK") != "" {
		clients, spread = 3000, 3*time.Second
	}
	rate := clients / 2 * int(time.Second) / int(spread)
	f := startFront(t, fmt.Sprintf("RUNLOG_DRAIN_RATE=%d", rate), "RUNLOG_DRAIN_RATE=1000000")
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	s, err := f.scribe(ctx, "herd", "run-herd")
	if err != nil {
		t.Fatal(err)
	}
	following, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	herd := make([]*source, clients)
	for i := range herd {
		herd[i] = &source{wait: retry}
		for j := range f.addrs {
			herd[i].urls = append(herd[i].urls, "http://"+f.addrs[(i/2+j)%2]+"/v1/sessions/herd/events")
		}
		follow := herd[i].run
		if i%2 == 1 {
			follow = f.program(herd[i], i/2)
		}
		running.Go(func() { follow(following) })
	}
	reach := func() {
		for range 3 {
			if err := s.say(ctx, "x"); err != nil {
				t.Fatal(err)
			}
		}
		for i, c := range herd {
			if err := c.reach(ctx, s.seq); err != nil {
				t.Fatalf("client %d: %v", i, err)
			}
		}
	}
	reach()
	for i := range f.edges {
		at := time.Now()
		stopped := make(chan struct{})
		go func() { f.edges[i].Stop(); close(stopped) }()
		for done := false; !done; { // events come while the edge drains
			if err := s.say(ctx, "x"); err != nil {
				t.Fatal(err)
			}
			select {
			case <-stopped:
				done = true
			case <-time.After(20 * time.Millisecond):
			}
		}
		f.restart(i)
		reach()
		took, busiest := herdOf(herd, at)
		t.Logf("edge %d at %s streams a second: %d clients left it over %s and came back with at most %d in 100 ms", i, []string{fmt.Sprint(rate), "1000000"}[i], clients/(2-i), took.Round(time.Millisecond), busiest)
		if i == 0 && took < spread/4 {
			t.Errorf("an edge that drains %d streams a second ended %d within %s", rate, clients/2, took)
		}
		if i == 0 && busiest > clients/3 { // without a rate it is half of all, or more: see the second edge
			t.Errorf("%d of %d clients came back within 100 ms", busiest, clients/2)
		}
	}
	for i, c := range herd {
		if err := c.whole(s.seq); err != nil {
			t.Errorf("client %d: %v", i, err)
		}
	}
}

// retry is what streams tell EventSource to wait.
func retry() time.Duration { return time.Second + rand.N(time.Second) }

// program follows as one that uses clients/go, and notes what it gets in a source.
func (f *front) program(s *source, first int) func(context.Context) {
	return func(ctx context.Context) {
		c := &runlog.Client{BaseURL: "http://" + f.addrs[first%2], Fallbacks: []string{"http://" + f.addrs[1-first%2]}, OnRetry: func(_ error, wait time.Duration) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.breaks = append(s.breaks, time.Now())
			s.tries = append(s.tries, time.Now().Add(wait))
		}}
		for e, err := range c.SessionEvents(ctx, "herd", runlog.EventOptions{}) {
			s.mu.Lock()
			if err != nil && ctx.Err() == nil {
				s.gaveUp = err
			} else if err == nil && e.Seq > 0 {
				s.ids = append(s.ids, e.Seq.String())
			}
			s.mu.Unlock()
		}
	}
}

// herdOf returns over which time clients lost their streams after a moment, and the most that came back within 100 ms.
func herdOf(herd []*source, after time.Time) (spread time.Duration, busiest int) {
	var lost, back []time.Time
	for _, c := range herd {
		c.mu.Lock()
		lost, back = append(lost, since(c.breaks, after)...), append(back, since(c.tries, after)...)
		c.mu.Unlock()
	}
	slices.SortFunc(lost, time.Time.Compare)
	slices.SortFunc(back, time.Time.Compare)
	if len(lost) == 0 {
		return 0, 0
	}
	for i, from := 0, 0; i < len(back); i++ {
		for back[i].Sub(back[from]) > 100*time.Millisecond {
			from++
		}
		busiest = max(busiest, i-from+1)
	}
	return lost[len(lost)-1].Sub(lost[0]), busiest
}

func since(all []time.Time, after time.Time) []time.Time {
	return slices.DeleteFunc(slices.Clone(all), func(at time.Time) bool { return at.Before(after) })
}
