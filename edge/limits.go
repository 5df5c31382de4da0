package edge

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/runlog-dev/runlog/event"
)

// quotas bounds what one tenant, or one address, may ask of this edge, so that it cannot
// slow the others down: requests by a bucket of tokens, streams by number. It holds a few
// bytes for each tenant or address that was seen in the last minutes. Safe for concurrent
// use.
type quotas struct {
	of      string // what is bounded: "tenant" or "address"
	rate    int    // requests a minute; 0: no limit
	streams int    // open at once; 0: no limit

	mu    sync.Mutex
	all   map[string]*quota
	swept time.Time
}

type quota struct {
	tokens  float64
	at      time.Time // when tokens was right
	streams int
}

// take spends a request, if there is one. left is how many remain, reset how long it takes
// until all are there again, again until there is one more.
func (q *quotas) take(who string, now time.Time) (ok bool, left int, reset, again time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.find(who, now)
	if ok = t.tokens >= 1; ok {
		t.tokens--
	}
	each := float64(time.Minute) / float64(q.rate)
	return ok, int(t.tokens), time.Duration((float64(q.rate) - t.tokens) * each), time.Duration((1 - t.tokens) * each)
}

// find returns somebody's quota as it is now. The caller holds mu.
func (q *quotas) find(who string, now time.Time) *quota {
	q.sweep(now)
	t := q.all[who]
	if t == nil {
		if q.all == nil {
			q.all = map[string]*quota{}
		}
		t = &quota{tokens: float64(q.rate), at: now}
		q.all[who] = t
	}
	t.tokens = min(float64(q.rate), t.tokens+now.Sub(t.at).Minutes()*float64(q.rate))
	t.at = now
	return t
}

// sweep forgets, once a minute, those whose quota is whole again. The caller holds mu.
func (q *quotas) sweep(now time.Time) {
	if now.Sub(q.swept) < time.Minute {
		return
	}
	q.swept = now
	for name, t := range q.all {
		if t.streams == 0 && now.Sub(t.at) >= time.Minute {
			delete(q.all, name)
		}
	}
}

// open counts a stream in; done counts it out.
func (q *quotas) open(who string) (done func(), ok bool) {
	if q.streams <= 0 || who == "" {
		return func() {}, true
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.find(who, time.Now())
	if t.streams >= q.streams {
		return nil, false
	}
	t.streams++
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		t.streams--
	}, true
}

// uncounted is the context of a request that may wait although its tenant has all
// of its streams open: nobody must be kept from ending a run.
func uncounted(ctx context.Context) context.Context {
	return context.WithValue(ctx, uncountedKey{}, true)
}

type uncountedKey struct{}

// countedBy is the tenant and the address that a stream of a call is counted by; empty if
// it is uncounted.
func (c *call) countedBy(ctx context.Context) (tenant, address string) {
	if ctx.Value(uncountedKey{}) != nil {
		return "", ""
	}
	return c.who.Tenant, limitKey(c.client)
}

// limitAddress and limitRate refuse requests that come too often, and say how many are
// left in the RateLimit fields of draft-ietf-httpapi-ratelimit-headers-11. A load balancer
// may ask for health as often as it likes.
func (s *Server) limitAddress(w http.ResponseWriter, c *call) error {
	if c.route == "GET /healthz" || c.route == "GET /readyz" {
		return nil
	}
	return s.limit(w, &s.addresses, limitKey(c.client))
}

func (s *Server) limitRate(w http.ResponseWriter, c *call) error {
	return s.limit(w, &s.tenants, c.who.Tenant)
}

func (s *Server) limit(w http.ResponseWriter, q *quotas, who string) error {
	if q.rate <= 0 || who == "" {
		return nil
	}
	ok, left, reset, again := q.take(who, time.Now())
	h := w.Header()
	h.Add("RateLimit-Policy", fmt.Sprintf(`"%s";q=%d;w=60`, q.of, q.rate))
	h.Add("RateLimit", fmt.Sprintf(`"%s";r=%d;t=%d`, q.of, left, wholeSeconds(reset)))
	if ok {
		return nil
	}
	p := problem(http.StatusTooManyRequests, event.CodeRateLimited, "more than %d requests a minute of one %s at this edge; try again a little later", q.rate, q.of)
	p.retryAfter = again
	return s.metrics.refuse(q.of+"_rate", p)
}

// enter counts a stream of a call in, or says why there is no room for it; leave counts
// it out.
func (s *Server) enter(ctx context.Context, c *call) (leave func(), err error) {
	tenant, address := c.countedBy(ctx)
	if s.hub.Busy(tenant) {
		return nil, s.metrics.refuse("reads", overloaded("too many clients are catching up at this edge; try another one"))
	}
	promised, err := s.promise(costOf(c))
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.ledger.Return(promised)
		}
	}()
	if n := s.streams.Add(1); n > int64(s.opts.MaxStreams) {
		s.streams.Add(-1)
		return nil, s.metrics.refuse("streams", overloaded("this edge has its limit of %d open streams; try another one", s.opts.MaxStreams))
	}
	leaveTenant, ok := s.tenants.open(tenant)
	if !ok {
		s.streams.Add(-1)
		return nil, s.errTooManyStreams(&s.tenants)
	}
	leaveAddress, ok := s.addresses.open(address)
	if !ok {
		s.streams.Add(-1)
		leaveTenant()
		return nil, s.errTooManyStreams(&s.addresses)
	}
	return func() {
		leaveAddress()
		leaveTenant()
		s.streams.Add(-1)
		s.ledger.Return(promised)
	}, nil
}

// enterMany counts the sessions of a stream of many in. They are bounded by number,
// like streams, and by their part of the memory.
func (s *Server) enterMany(n int) (leave func(), err error) {
	promised, err := s.promise(int64(n) * manyCost)
	if err != nil {
		return nil, err
	}
	all := s.many.Add(int64(n))
	leave = func() {
		s.many.Add(-int64(n))
		s.ledger.Return(promised)
	}
	switch {
	case all > int64(s.opts.MaxStreams):
		leave()
		return nil, s.metrics.refuse("streams", overloaded("this edge follows its limit of %d sessions for streams of many; name fewer, or try another one", s.opts.MaxStreams))
	case s.budget.Many > 0 && all*manyCost > s.budget.Many:
		leave()
		return nil, s.metrics.refuse("memory", overloaded("this edge has no memory for %d more sessions of streams of many; name fewer, or try another one", n))
	}
	return leave, nil
}

func (s *Server) errTooManyStreams(q *quotas) error {
	p := problem(http.StatusTooManyRequests, event.CodeRateLimited, "more than %d streams of one %s are open at this edge; close some, or follow many sessions over one", q.streams, q.of)
	p.retryAfter = time.Second
	return s.metrics.refuse(q.of+"_streams", p)
}

// wholeSeconds rounds up, so that a client that waits so long does not come too early.
func wholeSeconds(d time.Duration) int { return int(math.Ceil(d.Seconds())) }
