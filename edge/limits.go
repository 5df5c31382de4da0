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

// quotas bounds what one tenant may ask of this edge, so that it cannot slow down
// another: requests by a bucket of tokens, streams by number. It holds a few bytes
// for each tenant that was seen in the last minutes. Safe for concurrent use.
type quotas struct {
	rate    int // requests a minute; 0: no limit
	streams int // open at once; 0: no limit

	mu      sync.Mutex
	tenants map[string]*quota
	swept   time.Time
}

type quota struct {
	tokens  float64
	at      time.Time // when tokens was right
	streams int
}

// take spends a request of a tenant. left is what remains now, reset when all is
// there again.
func (q *quotas) take(tenant string, now time.Time) (ok bool, left int, reset time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.of(tenant, now)
	if ok = t.tokens >= 1; ok {
		t.tokens--
	}
	missing := float64(q.rate) - t.tokens
	return ok, int(t.tokens), time.Duration(missing / float64(q.rate) * float64(time.Minute))
}

// of finds the tenant's quota as it is now. The caller holds mu.
func (q *quotas) of(tenant string, now time.Time) *quota {
	q.sweep(now)
	t := q.tenants[tenant]
	if t == nil {
		if q.tenants == nil {
			q.tenants = map[string]*quota{}
		}
		t = &quota{tokens: float64(q.rate), at: now}
		q.tenants[tenant] = t
	}
	t.tokens = min(float64(q.rate), t.tokens+now.Sub(t.at).Minutes()*float64(q.rate))
	t.at = now
	return t
}

// sweep forgets, once a minute, those whose quota is whole again.
func (q *quotas) sweep(now time.Time) {
	if now.Sub(q.swept) < time.Minute {
		return
	}
	q.swept = now
	for name, t := range q.tenants {
		if t.streams == 0 && now.Sub(t.at) >= time.Minute {
			delete(q.tenants, name)
		}
	}
}

// open counts a stream of a tenant in; done counts it out.
func (q *quotas) open(tenant string) (done func(), ok bool) {
	if q.streams <= 0 || tenant == "" {
		return func() {}, true
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	t := q.of(tenant, time.Now())
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
	return context.WithValue(ctx, callKey{}, nil)
}

// tenantOf is whose request a context is of.
func tenantOf(ctx context.Context) string {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return c.who.Tenant
	}
	return ""
}

// limitRate refuses a tenant that asks too often, and says to each how it stands.
func (s *Server) limitRate(w http.ResponseWriter, c *call) error {
	if s.quotas.rate <= 0 || c.who.Tenant == "" {
		return nil
	}
	ok, left, reset := s.quotas.take(c.who.Tenant, time.Now())
	h := w.Header()
	h.Set("RateLimit-Policy", fmt.Sprintf(`"tenant";q=%d;w=60`, s.quotas.rate))
	h.Set("RateLimit", fmt.Sprintf(`"tenant";r=%d;t=%d`, left, int(math.Ceil(reset.Seconds()))))
	if ok {
		return nil
	}
	p := problem(http.StatusTooManyRequests, event.CodeRateLimited, "more than %d requests a minute at this edge; try again a little later", s.quotas.rate)
	p.retryAfter = max(time.Second, time.Minute/time.Duration(s.quotas.rate))
	return p
}

func (s *Server) errTooManyStreams() error {
	p := problem(http.StatusTooManyRequests, event.CodeRateLimited, "more than %d streams are open at this edge; close some, or follow many sessions over one", s.quotas.streams)
	p.retryAfter = time.Second
	return p
}
