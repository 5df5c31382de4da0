package crashtest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/internal/testservers"
)

// A pulse notices what a busy machine costs: that everything stands still, the test
// itself or the server that all of it goes through, and that processes wait for a
// processor.
type pulse struct {
	ping  func(context.Context) error
	procs []*testservers.Process // which a takeover needs

	mu    sync.Mutex
	beats []time.Time
	waits []wait
}

// A wait is for how long the threads of each process have waited for a processor
// so far.
type wait struct {
	at  time.Time
	pid map[int]time.Duration
}

const (
	beat     = 20 * time.Millisecond
	eachWait = 10 // beats
)

// startPulse beats as long as ping is answered, and the test goes on.
func startPulse(t testing.TB, ping func(context.Context) error, procs ...*testservers.Process) *pulse {
	p := &pulse{ping: ping, procs: procs}
	ctx, stop := context.WithCancel(context.Background())
	var beating sync.WaitGroup
	beating.Go(func() { p.run(ctx) })
	t.Cleanup(func() { stop(); beating.Wait() })
	return p
}

func (p *pulse) run(ctx context.Context) {
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		_ = p.ping(ctx) // it takes as long as it takes
		p.mu.Lock()
		p.beats = append(p.beats, time.Now())
		p.mu.Unlock()
		if n%eachWait == 0 {
			p.look()
		}
	}
}

// look reads how long everybody has waited.
func (p *pulse) look() {
	w := wait{pid: map[int]time.Duration{}}
	for _, proc := range p.procs {
		w.pid[proc.PID()] = waited(proc.PID())
	}
	w.at = time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waits = append(p.waits, w)
}

// waited is for how long the threads of a process were ready to run and had no
// processor, all together; 0 where the kernel does not say so.
func waited(pid int) (sum time.Duration) {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, path := range threads {
		var ran, waited time.Duration
		if text, err := os.ReadFile(path); err == nil {
			if _, err := fmt.Sscan(string(text), &ran, &waited); err == nil {
				sum += waited
			}
		}
	}
	return sum
}

// lost is what the machine may have cost whoever took over in that time: nobody is
// quicker than the processor that he waits for.
func (p *pulse) lost(from, to time.Time) time.Duration {
	p.look()
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(4*p.stood(from), p.starved(from, to))
}

// stood is the longest time without a beat since then, beyond one beat. The caller
// holds mu.
func (p *pulse) stood(since time.Time) time.Duration {
	worst, last := beat, since
	for _, at := range p.beats {
		if at.After(since) {
			worst, last = max(worst, at.Sub(last)), at
		}
	}
	return worst - beat
}

// starved is for how long processes have waited in that time, and up to the next
// look, those that were started in it since their birth. The caller holds mu.
func (p *pulse) starved(from, to time.Time) (sum time.Duration) {
	last := map[int]time.Duration{}
	for i, w := range p.waits {
		for pid, so := range w.pid {
			if i > 0 && w.at.After(from) {
				sum += max(so-last[pid], 0) // threads end
			}
			last[pid] = so
		}
		if w.at.After(to) {
			break
		}
	}
	return sum
}
