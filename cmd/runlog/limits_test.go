package main

import (
	"flag"
	"fmt"
	"math"
	"net/netip"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/runlog-dev/runlog/edge/room"
)

func TestSizes(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "1000": 1000, "1B": 1, "256KiB": 256 << 10, "1.5GiB": 3 << 29, "10 MB": 10_000_000, "2kB": 2000} {
		if got, err := parseSize(text); err != nil || got != want {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "x", "-1", "KiB", "1TB", "1e30GiB", "NaN"} {
		if got, err := parseSize(text); err == nil {
			t.Errorf("%q: %d", text, got)
		}
	}
	if got := sizeText(256<<10) + " " + sizeText(1000) + " " + sizeText(0); got != "256KiB 1000 0" {
		t.Error(got)
	}
}

func TestTrustedProxies(t *testing.T) {
	got, err := prefixes(" 192.0.2.1, 198.51.100.7/24,2001:db8::/48,")
	want := []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("2001:db8::/48")}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	got, err = prefixes("::ffff:192.0.2.1,::ffff:198.51.100.7/120")
	if want := "[192.0.2.1/32 198.51.100.0/24]"; err != nil || fmt.Sprint(got) != want {
		t.Errorf("IPv4 as sockets of IPv6 write it: %v %v, want %s", got, err, want)
	}
	for _, text := range []string{"proxy.example", "192.0.2.0/33"} {
		if got, err := prefixes(text); err == nil {
			t.Errorf("%s: %v", text, got)
		}
	}
}

func TestMemoryLimit(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	t.Setenv("GOMEMLIMIT", "")
	debug.SetMemoryLimit(math.MaxInt64)
	if got := limitMemory(0); got != 0 {
		t.Errorf("no limit is %d", got)
	}
	if got := limitMemory(1 << 30); got != 1<<30 || debug.SetMemoryLimit(-1) != room.Collect(1<<30) {
		t.Errorf("1 GiB is %d", got)
	}
	t.Setenv("GOMEMLIMIT", "2GiB") // the runtime has read it at the start
	debug.SetMemoryLimit(2 << 30)
	if got := limitMemory(1 << 30); got != 2<<30 {
		t.Errorf("GOMEMLIMIT does not win: %d", got)
	}
}

// Each setting of a server process is in the manual, with its flag and its variable.
func TestSettingsAreDocumented(t *testing.T) {
	manual, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	variable := regexp.MustCompile(`\((RUNLOG_\w+)\)`)
	f, s := flag.NewFlagSet("all", flag.ContinueOnError), &settings{}
	for _, group := range []group{edgeSettings, workerSettings, logSettings} {
		group(f, s)
	}
	f.VisitAll(func(f *flag.Flag) {
		name := variable.FindStringSubmatch(f.Usage)
		if name == nil {
			t.Errorf("--%s does not say its variable", f.Name)
			return
		}
		for _, text := range []string{"`--" + f.Name + "`", "`" + name[1] + "`"} {
			if !strings.Contains(string(manual), text) {
				t.Errorf("docs/operations.md lacks %s", text)
			}
		}
	})
}

func TestConnectionsLeaveFilesForTheRest(t *testing.T) {
	for _, c := range []struct {
		conns int
		files uint64
		want  int
	}{{60_000, 0, 60_000}, {60_000, 1 << 20, 60_000}, {60_000, 1024, 768}, {60_000, 64, 32}, {10, 1024, 10}, {60_000, 1 << 63, 60_000}} {
		if got := limitConns(c.conns, c.files); got != c.want {
			t.Errorf("%d connections with %d files: %d, want %d", c.conns, c.files, got, c.want)
		}
	}
}
