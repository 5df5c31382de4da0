package main

import (
	"flag"
	"fmt"
	"math"
	"net/netip"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/runlog-dev/runlog/edge/room"
)

// Limits of an edge.
type limits struct {
	maxBody, maxUpload, maxHeader             int64
	headerTimeout, bodyTimeout, writeTimeout  time.Duration
	maxStreams, maxConns                      int
	memory                                    int64
	maxWait                                   time.Duration
	tenantRate, tenantStreams                 int
	addressRate, addressStreams, addressConns int
	trustedProxies                            string
	drainRate                                 int
	drainPeriod                               time.Duration
}

func (l *limits) settings(f *flag.FlagSet) {
	size(f, &l.maxBody, "max-body", "MAX_BODY", 256<<10, "size of a JSON body; the whole conversations of other protocols may have 32 times as much")
	size(f, &l.maxUpload, "max-upload", "MAX_UPLOAD", 256<<20, "size of an uploaded artifact")
	size(f, &l.maxHeader, "max-header", "MAX_HEADER", 32<<10, "size of a request's header")
	span(f, &l.headerTimeout, "header-timeout", "HEADER_TIMEOUT", 10*time.Second, "for a request's header to come")
	span(f, &l.bodyTimeout, "body-timeout", "BODY_TIMEOUT", 30*time.Second, "of silence in a request's body; after it a body needs 1 KiB/s")
	span(f, &l.writeTimeout, "write-timeout", "WRITE_TIMEOUT", 30*time.Second, "for a client to take the next 64 KiB of what it is sent")
	number(f, &l.maxStreams, "max-streams", "MAX_STREAMS", 50_000, "streams open at once")
	number(f, &l.maxConns, "max-connections", "MAX_CONNECTIONS", 60_000, "connections at once")
	size(f, &l.memory, "memory", "MEMORY", 0, "memory of the process; near it no streams are taken; GOMEMLIMIT wins; 0: no limit")
	span(f, &l.maxWait, "max-wait", "MAX_WAIT", 5*time.Minute, "longest ?wait= of a request")
	number(f, &l.tenantRate, "tenant-rate", "TENANT_RATE", 0, "requests a minute of one tenant at one edge; 0: no limit")
	number(f, &l.tenantStreams, "tenant-streams", "TENANT_STREAMS", 0, "streams of one tenant open at one edge; 0: no limit")
	number(f, &l.addressRate, "address-rate", "ADDRESS_RATE", 0, "requests a minute of one client's address at one edge; 0: no limit")
	number(f, &l.addressStreams, "address-streams", "ADDRESS_STREAMS", 0, "streams of one client's address open at one edge; 0: no limit")
	number(f, &l.addressConns, "address-connections", "ADDRESS_CONNECTIONS", 0, "connections of one address, proxies excepted; 0: no limit")
	text(f, &l.trustedProxies, "trusted-proxies", "TRUSTED_PROXIES", "", "addresses or prefixes of proxies whose X-Forwarded-For is believed, separated by commas; empty: nobody's")
	number(f, &l.drainRate, "drain-rate", "DRAIN_RATE", 1000, "streams ended a second when the edge stops, so that their clients do not come back all at once")
	span(f, &l.drainPeriod, "drain-period", "DRAIN_PERIOD", 10*time.Second, "for that at most, and then for other requests to finish")
}

// size is a number of bytes, such as 256KiB, 1.5GiB or 1000.
func size(f *flag.FlagSet, p *int64, name, variable string, def int64, help string) {
	f.Func(name, fmt.Sprintf("%s (RUNLOG_%s) (default %s)", help, variable, bytesText(def)), func(v string) (err error) {
		*p, err = parseSize(v)
		return err
	})
	*p = def
	if v, ok := env(variable); ok {
		if n, err := parseSize(v); err == nil {
			*p = n
		} else {
			fmt.Fprintf(os.Stderr, "runlog: RUNLOG_%s=%q is no size, using %s\n", variable, v, bytesText(def))
		}
	}
}

var units = []struct {
	name  string
	bytes float64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"B", 1}, {"", 1}}

func parseSize(text string) (int64, error) {
	for _, u := range units {
		number, ok := strings.CutSuffix(text, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || !(n >= 0) || n*u.bytes > math.MaxInt64/2 {
			break
		}
		return int64(n * u.bytes), nil
	}
	return 0, fmt.Errorf("%q is no size: write 256KiB, 512MiB, 2GiB or a number of bytes", text)
}

func bytesText(n int64) string {
	for _, u := range units[:3] {
		if n >= int64(u.bytes) && n%int64(u.bytes) == 0 {
			return strconv.FormatInt(n/int64(u.bytes), 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// limitMemory tells the garbage collector of a limit, unless GOMEMLIMIT has, and
// returns the one that holds for the process; 0 if there is none.
func limitMemory(bytes int64) int64 {
	if bytes > 0 && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(room.Collect(bytes))
		return bytes
	}
	if now := debug.SetMemoryLimit(-1); now != math.MaxInt64 {
		return now
	}
	return 0
}

// spareFiles are for all that is no client: a connection to NATS that is lost has to be
// made anew, and artifacts are read.
const spareFiles = 256

// limitConns is how many connections of clients there may be at once where only so many
// files may be open (0: nobody knows): beyond it nobody would be told anything, proxies'
// checks neither.
func limitConns(conns int, files uint64) int {
	if files == 0 {
		return conns
	}
	return int(min(uint64(conns), files-min(spareFiles, files/2)))
}

// prefixes reads addresses and prefixes that are separated by commas.
func prefixes(text string) (all []netip.Prefix, err error) {
	for _, v := range list(text) {
		p, err := netip.ParsePrefix(v)
		if err != nil {
			var a netip.Addr
			if a, err = netip.ParseAddr(v); err == nil {
				p, err = a.Prefix(a.BitLen())
			}
		}
		if err != nil {
			return nil, fmt.Errorf("--trusted-proxies: %q is neither an address nor a prefix such as 192.0.2.0/24", v)
		}
		all = append(all, p.Masked())
	}
	return all, nil
}
