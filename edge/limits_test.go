package edge_test

import (
	"fmt"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/runlog-dev/runlog/edge"
)

// A tenant that hammers is told to wait; another one does not notice.
func TestTenantRate(t *testing.T) {
	s := newSite(t)
	a, b := s.key("a"), s.key("b")
	e := s.edge(edge.Options{TenantRate: 5})
	s.scribe("a", "s").write(started("r"))
	refused := 0
	for range 20 {
		resp := e.do("GET", "/v1/agents", "", "Authorization", a)
		if resp.Header.Get("RateLimit-Policy") != `"tenant";q=5;w=60` || !strings.HasPrefix(resp.Header.Get("RateLimit"), `"tenant";r=`) {
			t.Errorf("%v", resp.Header)
		}
		if resp.StatusCode == 429 {
			refused++
			if resp.Header.Get("Retry-After") != "12" || as[problem](t, wantStatus(t, resp, 429)).Code != "rate_limited" {
				t.Errorf("%v", resp.Header)
			}
		}
	}
	if refused < 10 {
		t.Errorf("%d of 20 were refused", refused)
	}
	e.get(429, "/v1/sessions/s/events?follow=0", "Authorization", a)
	c := e.dial("/v1/sessions/s/events", websocket.DialOptions{Subprotocols: []string{"runlog.v1", "bearer." + strings.TrimPrefix(a, "Bearer ")}})
	c.say(`{}`)
	if code := c.closed(); code != websocket.StatusTryAgainLater {
		t.Errorf("a WebSocket: %d", code)
	}
	e.get(200, "/v1/agents", "Authorization", b)
	e.get(200, "/healthz")
}

func TestTenantStreams(t *testing.T) {
	s := newSite(t)
	a, b := s.key("a"), s.key("b")
	e := s.edge(edge.Options{TenantStreams: 2})
	s.scribe("a", "s").write(started("r"))
	s.scribe("b", "s").write(started("r"))
	r := as[run](t, wantStatus(t, e.do("POST", "/v1/runs", `{"input":"x"}`, "Authorization", a), 202))
	first := e.listen("/v1/sessions/s/events", "Authorization", a)
	e.listen("/v1/sessions/s/events", "Authorization", a).must()
	e.get(429, "/v1/sessions/s/events", "Authorization", a)
	wantStatus(t, e.do("POST", "/v1/runs/"+r.RunID+"/cancel", "", "Authorization", a), 202)
	e.listen("/v1/sessions/s/events", "Authorization", b).must()
	first.close()
	waitFor(t, func() bool { // its place is free again
		resp := e.do("GET", "/v1/sessions/s/events?follow=0", "", "Authorization", a)
		resp.Body.Close()
		return resp.StatusCode == 200
	})
}

func (e *served) refusals(limit string) (n float64) {
	e.t.Helper()
	families, err := e.metrics.Gather()
	if err != nil {
		e.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "runlog_edge_refused_total" && m.GetLabel()[0].GetValue() == limit {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// An address is limited as a tenant is, and before it is known who asks: keys cannot
// be tried out at will.
func TestAddressRateAndStreams(t *testing.T) {
	s := newSite(t)
	a := s.key("a")
	e := s.serve(edge.Options{AddressRate: 10, AddressStreams: 1, TenantRate: 100, TrustedProxies: loopback})
	s.scribe("a", "s").write(started("r"))
	tried := map[int]int{}
	for i := range 20 {
		resp := e.do("GET", "/v1/agents", "", "Authorization", fmt.Sprintf("Bearer rl_guess%d", i), "X-Forwarded-For", "192.0.2.1")
		tried[resp.StatusCode]++
		if resp.StatusCode == 429 && (resp.Header.Get("Retry-After") == "" || !strings.HasPrefix(resp.Header.Get("RateLimit"), `"address";r=0;t=`)) {
			t.Errorf("%v", resp.Header)
		}
	}
	if tried[401] < 10 || tried[429] < 5 || tried[401]+tried[429] != 20 {
		t.Errorf("answers: %v", tried)
	}
	wantStatus(t, e.do("GET", "/nothing/here", "", "X-Forwarded-For", "192.0.2.1"), 429)
	wantStatus(t, e.do("PUT", "/v1/agents", "", "X-Forwarded-For", "192.0.2.1"), 429)
	resp := e.do("GET", "/v1/agents", "", "Authorization", a, "X-Forwarded-For", "192.0.2.2")
	wantStatus(t, resp, 200)
	if got := resp.Header["Ratelimit-Policy"]; !slices.Equal(got, []string{`"address";q=10;w=60`, `"tenant";q=100;w=60`}) {
		t.Errorf("%q", got)
	}
	for range 30 {
		wantStatus(t, e.do("GET", "/readyz", "", "X-Forwarded-For", "192.0.2.1"), 200)
	}
	first := e.listen("/v1/sessions/s/events", "Authorization", a, "X-Forwarded-For", "192.0.2.3")
	first.must()
	wantStatus(t, e.do("GET", "/v1/sessions/s/events", "", "Authorization", a, "X-Forwarded-For", "192.0.2.3"), 429)
	e.listen("/v1/sessions/s/events", "Authorization", a, "X-Forwarded-For", "192.0.2.4").must()
	if e.refusals("address_rate") < 5 || e.refusals("address_streams") != 1 || e.refusals("tenant_rate") != 0 {
		t.Error("the metrics do not tell")
	}
	waitFor(t, func() bool {
		return slices.ContainsFunc(e.records.of("/v1/agents"), func(r map[string]any) bool { return r["client"] == "192.0.2.2" })
	})
}

// Nobody chooses the address that he is counted by.
func TestForwardedAddresses(t *testing.T) {
	proxies := []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32"), netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("2001:db8:f::/48")}
	s := newSite(t)
	trusting, strict := s.edge(edge.Options{TrustedProxies: proxies}).srv, s.edge(edge.Options{}).srv
	for _, c := range []struct {
		peer, want string
		forwarded  []string
	}{
		{"192.0.2.1:5", "192.0.2.1", nil},
		{"192.0.2.1:5", "192.0.2.1", []string{"203.0.113.9"}},                                // no proxy of ours
		{"127.0.0.1:5", "203.0.113.9", []string{"203.0.113.9"}},                              //
		{"127.0.0.1:5", "203.0.113.9", []string{"10.0.0.1, 203.0.113.9"}},                    // what a client claims is further left
		{"127.0.0.1:5", "203.0.113.9", []string{"10.0.0.1", "203.0.113.9, 198.51.100.7"}},    // two proxies, two lines
		{"127.0.0.1:5", "198.51.100.7", []string{"198.51.100.7"}},                            // a proxy asks
		{"127.0.0.1:5", "127.0.0.1", []string{"nonsense"}},                                   //
		{"127.0.0.1:5", "198.51.100.7", []string{"203.0.113.9, , 198.51.100.7"}},             // not past what cannot be read
		{"127.0.0.1:5", "203.0.113.9", []string{"203.0.113.9:4711"}},                         // with a port
		{"[::ffff:127.0.0.1]:5", "2001:db8::1", []string{"[2001:db8::1]:80, 2001:db8:f::1"}}, //
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.RemoteAddr, r.Header["X-Forwarded-For"] = c.peer, c.forwarded
		if got := trusting.ClientOf(r); got != c.want {
			t.Errorf("%+v: got %s", c, got)
		}
		if got, peer := strict.ClientOf(r), netip.MustParseAddrPort(c.peer).Addr().Unmap().String(); got != peer {
			t.Errorf("without trust %+v: got %s", c, got)
		}
	}
	if a, b := edge.LimitKey("64:ff9b::192.0.2.1"), edge.LimitKey("64:ff9b::192.0.2.2"); a != "192.0.2.1" || b != "192.0.2.2" {
		t.Errorf("translated addresses are counted by %s and %s", a, b)
	}
	if a, b, c := edge.LimitKey("2001:db8:1:2::1"), edge.LimitKey("2001:db8:1:2:ffff::9"), edge.LimitKey("2001:db8:1:3::1"); a != b || a == c {
		t.Errorf("%s %s %s", a, b, c)
	}
}

// A tenant that submits, streams and reconnects as fast as it can gets what it may
// have and no more, and all that another one asks for meanwhile is done.
func TestATenantThatHammersDoesNotSlowAnother(t *testing.T) {
	const rate, streams, work = 60, 3, 40
	s := newSite(t)
	a, b := s.key("a"), s.key("b")
	e := s.serve(edge.Options{TenantRate: rate, TenantStreams: streams, MaxStreams: streams + 2})
	s.scribe("a", "s").write(started("r"))
	w := s.scribe("b", "s")
	w.write(started("r"))
	l := e.listen("/v1/sessions/s/events", "Authorization", b)
	l.must()
	seen := 1
	sees := func() time.Duration { // how long an event of the other tenant is on its way
		at := time.Now()
		w.write(said("r", strconv.Itoa(seen)))
		seen++
		if m := l.must(); m.id != strconv.Itoa(seen) {
			t.Fatalf("got %+v", m)
		}
		return time.Since(at)
	}
	var quiet, loud []time.Duration
	for range work {
		quiet = append(quiet, sees())
	}
	began := time.Now()
	stop := make(chan struct{})
	var admitted, refused, open, most atomic.Int64
	var hammers sync.WaitGroup
	for i := range 8 {
		hammers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				method, path, body := "GET", "/v1/sessions/s/events", ""
				if i%2 == 0 {
					method, path, body = "POST", "/v1/runs", `{"input":"x"}`
				}
				resp, err := e.try(method, path, body, "Authorization", a)
				if err != nil {
					t.Error(err)
					return
				}
				switch resp.StatusCode {
				case 429:
					refused.Add(1)
				case 200:
					admitted.Add(1)
					most.Store(max(most.Load(), open.Add(1)))
					if refused.Load()%4 != 0 { // some stay
						open.Add(-1)
						resp.Body.Close()
					}
					continue
				case 202:
					admitted.Add(1)
				default:
					t.Errorf("status %d", resp.StatusCode)
				}
				resp.Body.Close()
			}
		})
	}
	waitFor(t, func() bool { return refused.Load() > 100 })
	at := refused.Load()
	for i := range work {
		loud = append(loud, sees())
		if i%2 == 0 { // within its own quota
			wantStatus(t, e.do("GET", "/v1/sessions/s/snapshot", "", "Authorization", b), 200)
		}
	}
	during := refused.Load() - at
	close(stop)
	hammers.Wait()
	allowed := int64(rate + float64(rate)*time.Since(began).Minutes() + 1)
	if admitted.Load() > allowed || most.Load() > streams+8 {
		t.Errorf("%d requests were admitted of %d allowed, up to %d streams at once", admitted.Load(), allowed, most.Load())
	}
	if during == 0 {
		t.Error("nobody hammered while the other one worked")
	}
	before, meanwhile := median(quiet), median(loud)
	t.Logf("%d admitted, %d refused, %d of them while the other tenant worked; its events took %s before, and %s then", admitted.Load(), refused.Load(), during, before, meanwhile)
	if meanwhile > 20*before+100*time.Millisecond { // who hammers takes a processor of this machine, too
		t.Errorf("the other tenant's events took %s, and %s while one hammered", before, meanwhile)
	}
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}
