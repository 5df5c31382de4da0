package testservers

import (
	"bytes"
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// A Proxy is a TCP proxy on 127.0.0.1 that does what networks do. Its faults last until Heal and apply to open and
// to new connections alike.
type Proxy struct {
	t     testing.TB
	proxy *toxiproxy.Proxy

	mu     sync.Mutex
	faults []string // names of what Heal has to take away
}

// StartProxy starts a proxy before the server at upstream, a host and port. It ends with the test.
func StartProxy(t testing.TB, upstream string) *Proxy {
	t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := &Proxy{t: t, proxy: toxiproxy.NewProxy(server, upstream, FreeAddr(t), upstream)}
	p.Enable()
	t.Cleanup(p.Disable)
	return p
}

// Addr returns the host and port that clients connect to.
func (p *Proxy) Addr() string { return p.proxy.Listen }

// Disable closes all connections and refuses new ones, as a dead server does.
func (p *Proxy) Disable() { p.proxy.Stop() }

// Enable listens again, on the same address.
func (p *Proxy) Enable() {
	p.t.Helper()
	if err := p.proxy.Start(); err != nil {
		p.t.Errorf("start the proxy before %s: %v", p.proxy.Upstream, err)
	}
}

// Cut closes all connections and accepts new ones at once.
func (p *Proxy) Cut() {
	p.t.Helper()
	p.Disable()
	p.Enable()
}

// Latency delays what flows in each direction by d.
func (p *Proxy) Latency(d time.Duration) {
	p.t.Helper()
	p.both("latency", map[string]any{"latency": d.Milliseconds()})
}

// Bandwidth limits each direction to kib KiB a second.
func (p *Proxy) Bandwidth(kib int) {
	p.t.Helper()
	p.both("bandwidth", map[string]any{"rate": kib})
}

// Blackhole drops what is sent in either direction and keeps connections open, as a partition does. What was
// dropped is lost for good: Heal leaves these connections useless to protocols that count on TCP, so a client has to
// give them up; Cut does so for it.
func (p *Proxy) Blackhole() {
	p.t.Helper()
	p.both("timeout", map[string]any{"timeout": 0})
}

// BlackholeReplies drops only what upstream sends: requests arrive, and nobody learns what became of them.
func (p *Proxy) BlackholeReplies() {
	p.t.Helper()
	p.add("timeout", "downstream", map[string]any{"timeout": 0})
}

// Reset answers the next bytes in either direction with a TCP reset.
func (p *Proxy) Reset() {
	p.t.Helper()
	p.both("reset_peer", map[string]any{"timeout": 0})
}

// CutAfter closes each connection after upstream has sent n bytes on it.
func (p *Proxy) CutAfter(n int) {
	p.t.Helper()
	p.add("limit_data", "downstream", map[string]any{"bytes": n})
}

// Slice delivers what upstream sends in pieces of about n bytes, with a pause between two.
func (p *Proxy) Slice(n int, pause time.Duration) {
	p.t.Helper()
	p.add("slicer", "downstream", map[string]any{"average_size": n, "delay": pause.Microseconds()})
}

// Heal takes all faults away. It does not enable a disabled proxy.
func (p *Proxy) Heal() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range p.faults {
		if err := p.proxy.Toxics.RemoveToxic(context.Background(), name); err != nil {
			p.t.Errorf("take %s from the proxy before %s: %v", name, p.proxy.Upstream, err)
		}
	}
	p.faults = nil
}

func (p *Proxy) both(kind string, attributes map[string]any) {
	p.t.Helper()
	p.add(kind, "upstream", attributes)
	p.add(kind, "downstream", attributes)
}

func (p *Proxy) add(kind, stream string, attributes map[string]any) {
	p.t.Helper()
	name := kind + "_" + stream
	toxic, err := json.Marshal(map[string]any{
		"name": name, "type": kind, "stream": stream, "toxicity": 1.0, "attributes": attributes,
	})
	if err != nil {
		p.t.Error(err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := p.proxy.Toxics.AddToxicJson(bytes.NewReader(toxic)); err != nil {
		p.t.Errorf("add %s to the proxy before %s: %v", name, p.proxy.Upstream, err)
		return
	}
	p.faults = append(p.faults, name)
}
