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

	"github.com/runlog-dev/runlog/edge"
	"github.com/runlog-dev/runlog/edge/room"
)

// limitSettings are those that an edge sets its clients.
func limitSettings(f *flag.FlagSet, s *settings) {
	d, o := edge.Defaults(), &s.edge
	size(f, &o.MaxBody, "max-body", "MAX_BODY", d.MaxBody, "size of a JSON body; the whole conversations of other protocols may have 32 times as much")
	size(f, &o.MaxUpload, "max-upload", "MAX_UPLOAD", d.MaxUpload, "size of an uploaded artifact")
	size(f, &o.MaxHeader, "max-header", "MAX_HEADER", d.MaxHeader, "size of a request's header")
	span(f, &o.HeaderTimeout, "header-timeout", "HEADER_TIMEOUT", d.HeaderTimeout, "for a request's header to come")
	span(f, &o.BodyTimeout, "body-timeout", "BODY_TIMEOUT", d.BodyTimeout, "of silence in a request's body; after it a body needs 1 KiB/s")
	span(f, &o.Stream.WriteTimeout, "write-timeout", "WRITE_TIMEOUT", d.Stream.WriteTimeout, "for a client to take the next 64 KiB of what it is sent")
	number(f, &o.MaxStreams, "max-streams", "MAX_STREAMS", d.MaxStreams, "streams open at once")
	number(f, &o.MaxConns, "max-connections", "MAX_CONNECTIONS", d.MaxConns, "connections at once")
	size(f, &o.Memory, "memory", "MEMORY", d.Memory, "memory of the process; near it no streams are taken; GOMEMLIMIT wins; 0: no limit")
	span(f, &o.MaxWait, "max-wait", "MAX_WAIT", d.MaxWait, "longest ?wait= of a request")
	number(f, &o.TenantRate, "tenant-rate", "TENANT_RATE", d.TenantRate, "requests a minute of one tenant at one edge; 0: no limit")
	number(f, &o.TenantStreams, "tenant-streams", "TENANT_STREAMS", d.TenantStreams, "streams of one tenant open at one edge; 0: no limit")
	number(f, &o.AddressRate, "address-rate", "ADDRESS_RATE", d.AddressRate, "requests a minute of one client's address at one edge; 0: no limit")
	number(f, &o.AddressStreams, "address-streams", "ADDRESS_STREAMS", d.AddressStreams, "streams of one client's address open at one edge; 0: no limit")
	number(f, &o.AddressConns, "address-connections", "ADDRESS_CONNECTIONS", d.AddressConns, "connections of one address, proxies excepted; 0: no limit")
	text(f, &s.proxies, "trusted-proxies", "TRUSTED_PROXIES", "", "addresses or prefixes of proxies whose X-Forwarded-For is believed, separated by commas; empty: nobody's")
	number(f, &o.DrainRate, "drain-rate", "DRAIN_RATE", d.DrainRate, "streams ended a second when the edge stops, so that their clients do not come back all at once")
	span(f, &o.DrainPeriod, "drain-period", "DRAIN_PERIOD", d.DrainPeriod, "for that at most, and then for other requests to finish")
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

// sizeText is how parseSize reads it, in the largest unit of which it is a whole number.
func sizeText(n int64) string {
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
		if p.Addr().Is4In6() && p.Bits() >= 96 { // the edge compares IPv4 addresses as such
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		all = append(all, p.Masked())
	}
	return all, nil
}
