// Command figures measures what runlog promises of itself: from a request to its
// run's first event, from an append to a viewer, a resume, and what it costs to
// be idle. Each figure is taken beside its floor, in the same run. It starts all
// processes itself, on loopback, in a temporary directory. See docs/benchmarks.md.
package main

import (
	"embed"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"
)

//go:embed agents
var agentFiles embed.FS

// A figure is measured by run, which returns a row for each promise.
type figure struct {
	name string
	run  func(*bench) ([]row, error)
}

// A row of the result: what was promised and what came out.
type row struct {
	what, target, got string
	met               bool
}

func figures() []figure {
	return []figure{{"submit", submit}, {"tail", tail}, {"resume", resume}, {"idle", idle}, {"takeover", takeover}, {"cancel", cancel},
		{"steps", steps}, {"long", long}, {"growth", growth}, {"running", running}, {"parked", parked}}
}

func names() string {
	var names []string
	for _, f := range figures() {
		names = append(names, f.name)
	}
	return strings.Join(names, ",")
}

func main() {
	b := &bench{}
	flag.StringVar(&b.runlog, "runlog", "../bin/runlog", "runlog's binary")
	flag.StringVar(&b.nats, "nats", "../bin/nats-server", "nats-server's binary")
	flag.IntVar(&b.rounds, "rounds", 3, "repetitions; medians are shown")
	only := flag.String("only", "", "some of "+names())
	flag.StringVar(&b.leases, "leases", "1.5s,5s", "of takeovers")
	flag.Parse()
	debug.SetGCPercent(400) // the generator shares the processors with what it measures
	if err := run(b, *only); err != nil {
		fmt.Fprintln(os.Stderr, "figures:", err)
		os.Exit(1)
	}
}

func run(b *bench, only string) (err error) {
	if err := goFirst(); err != nil {
		return err
	}
	if err := b.prepare(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	fmt.Printf("%s, %s, %d processors, load %s\n\n", time.Now().UTC().Format("2006-01-02 15:04 MST"), runtime.Version(), runtime.NumCPU(), loadAverage())
	fmt.Print("| figure | target | got | |\n|---|---|---|---|\n")
	for _, f := range figures() {
		if only != "" && !strings.Contains(","+only+",", ","+f.name+",") {
			continue
		}
		rows, err := f.run(b)
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		for _, r := range rows {
			fmt.Printf("| %s | %s | %s | %s |\n", r.what, r.target, r.got, r.verdict())
		}
	}
	fmt.Printf("\nload at the end %s\n", loadAverage())
	return nil
}

func (r row) verdict() string {
	switch {
	case r.target == "":
		return ""
	case r.met:
		return "met"
	}
	return "**missed**"
}

// loadAverage tells how busy the machine was with other things.
func loadAverage() string {
	data, err := os.ReadFile("/proc/loadavg")
	if f := strings.Fields(string(data)); err == nil && len(f) > 0 {
		return f[0]
	}
	return "unknown"
}

// goFirst puts this process and those it starts before other work on the machine,
// where BENCH_PRIO asks for it (-19 is most): a session is one scheduling group.
func goFirst() error {
	prio := os.Getenv("BENCH_PRIO")
	if prio == "" {
		return nil
	}
	if _, err := syscall.Setsid(); err != nil && !errors.Is(err, syscall.EPERM) { // already a leader
		return fmt.Errorf("BENCH_PRIO: new session: %w", err)
	}
	if err := os.WriteFile("/proc/self/autogroup", []byte(prio), 0); err != nil {
		return fmt.Errorf("BENCH_PRIO: %w", err)
	}
	return nil
}

// prepare makes the directory that everything is in.
func (b *bench) prepare() (err error) {
	for _, p := range []*string{&b.runlog, &b.nats} {
		if *p, err = filepath.Abs(*p); err != nil {
			return err
		}
		if _, err := os.Stat(*p); err != nil {
			return fmt.Errorf("%w: `make bench` in the repository's root builds it", err)
		}
	}
	if b.dir, err = os.MkdirTemp("", "runlog-figures-"); err != nil {
		return err
	}
	files, err := fs.Sub(agentFiles, "agents")
	if err != nil {
		return err
	}
	return os.CopyFS(filepath.Join(b.dir, "agents"), files)
}
