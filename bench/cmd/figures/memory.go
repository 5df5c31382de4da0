package main

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// footprint is a worker's memory in bytes: what is reachable after a collection,
// its stacks, and all that the system holds for it.
type footprint struct{ heap, stacks, rss, goroutines int }

func (f footprint) minus(g footprint) footprint {
	return footprint{f.heap - g.heap, f.stacks - g.stacks, f.rss - g.rss, f.goroutines - g.goroutines}
}

// per divides by a number of runs, for people.
func (f footprint) per(n int) string {
	kb := func(bytes int) float64 { return float64(bytes) / float64(n) / 1024 }
	return fmt.Sprintf("heap %.2f KB, stacks %.2f KB, RSS %.2f KB; %.2f goroutines", kb(f.heap), kb(f.stacks), kb(f.rss), float64(f.goroutines)/float64(n))
}

// footprintOf asks a worker's admin listener, which collects garbage first.
func footprintOf(w *proc) (f footprint, err error) {
	rss, err := memoryOf(w.pid())
	if err != nil {
		return f, err
	}
	f.rss = rss.rss << 10
	if f.goroutines, err = profiled(w, "goroutine", "goroutine profile: total "); err != nil {
		return f, err
	}
	if f.heap, err = profiled(w, "heap", "# HeapAlloc = "); err != nil {
		return f, err
	}
	f.stacks, err = profiled(w, "heap", "# Stack = ")
	return f, err
}

// profiled finds a number in a profile's text.
func profiled(w *proc, profile, before string) (int, error) {
	resp, err := http.Get(w.url() + "/debug/pprof/" + profile + "?gc=1&debug=1")
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), before); ok {
			number, _, _ := strings.Cut(rest, " ")
			return strconv.Atoi(number)
		}
	}
	return 0, fmt.Errorf("no %q in the worker's %s profile: %w", before, profile, lines.Err())
}

// cpuOf is the processor time that a process has used.
func cpuOf(pid int) (time.Duration, error) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	f := strings.Fields(rest)
	if len(f) < 13 {
		return 0, fmt.Errorf("stat of process %d: %q", pid, data)
	}
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return time.Duration(user+system) * 10 * time.Millisecond, nil
}

const runningRuns = 200

// running measures what runs cost a worker while their models talk: the scripted
// one, and one behind a connection.
func running(b *bench) ([]row, error) {
	scripted, err := b.runningCost("slow", func(int) string { return prose(512) })
	if err != nil {
		return nil, err
	}
	remote, err := b.runningCost("live", func(i int) string { return fmt.Sprintf("hold %d %s", i, prose(512)) })
	if err != nil {
		return nil, err
	}
	most := max(scripted.heap+scripted.stacks, scripted.rss) / runningRuns
	return []row{
		{fmt.Sprintf("worker's memory by running run, %d of them, scripted, 1 KB of conversation", runningRuns), "≤ 150 KB",
			fmt.Sprintf("%d KB (%s)", most>>10, scripted.per(runningRuns)), most <= 150<<10},
		{what: "the same with a model over HTTP", got: remote.per(runningRuns)},
	}, nil
}

// runningCost is what a worker gains by runs that go on.
func (b *bench) runningCost(agent string, input func(i int) string) (footprint, error) {
	s, w, err := b.staffedSite(runningRuns + 8)
	if err != nil {
		return footprint{}, err
	}
	defer s.close()
	if err := s.cancelled("warm", 8); err != nil {
		return footprint{}, err
	}
	before, err := footprintOf(w)
	if err != nil {
		return footprint{}, err
	}
	for i := range runningRuns {
		if _, err := s.submit(agent, "", input(i)); err != nil {
			return footprint{}, err
		}
	}
	time.Sleep(settled)
	after, err := footprintOf(w)
	return after.minus(before), err
}

// cancelled lets some runs begin and end.
func (s *site) cancelled(key string, n int) error {
	for i := range n {
		if _, err := s.cancelOne(fmt.Sprintf("%s%d", key, i)); err != nil {
			return err
		}
	}
	return nil
}
