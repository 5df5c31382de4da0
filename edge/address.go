package edge

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// clientOf is the address that a request comes from. What X-Forwarded-For says is
// believed as far as trusted proxies have written it: from the right, to the first
// address that is none of theirs. Whatever a client claims stands further left.
func (s *Server) clientOf(r *http.Request) netip.Addr {
	at := peerOf(r.RemoteAddr)
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, hop := range slices.Backward(hops) {
		if !s.opts.trusts(at) {
			break
		}
		next, ok := parseHop(hop)
		if !ok {
			break
		}
		at = next
	}
	return at
}

// trusts reports whether an address is one of the proxies before this edge.
func (o *Options) trusts(a netip.Addr) bool {
	return slices.ContainsFunc(o.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(a) })
}

// peerOf is the address of a connection; invalid if it has none, as a Unix socket.
func peerOf(remote string) netip.Addr {
	ap, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap().WithZone("")
}

// parseHop reads an address, which some proxies write with its port.
func parseHop(text string) (netip.Addr, bool) {
	text = strings.TrimSpace(text)
	if a, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
		return a.Unmap().WithZone(""), true
	}
	a := peerOf(text)
	return a, a.IsValid()
}

// translated are the IPv4 addresses that a network of IPv6 alone sees (RFC 6052).
var translated = netip.MustParsePrefix("64:ff9b::/96")

// limitKey is what an address is counted by: itself, or for IPv6 its /64, which is
// the least that one client gets. In that of translated addresses is all of IPv4: they
// are counted by themselves, and trusted as nobody, since anybody may have written them.
func limitKey(a netip.Addr) string {
	if translated.Contains(a) {
		all := a.As16()
		a = netip.AddrFrom4([4]byte(all[12:]))
	}
	if !a.IsValid() {
		return ""
	}
	if a.Is4() {
		return a.String()
	}
	p, _ := a.Prefix(64)
	return p.String()
}
