package edge

import (
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
	many    int // sessions that streams of many follow
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

// open counts a stream in, if there may be one more. Nothing is counted, nor to be
// closed, where the quota is nil.
func (q *quotas) open(who string) (t *quota, ok bool) {
	if q.streams <= 0 || who == "" {
		return nil, true
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	t = q.find(who, time.Now())
	if t.streams >= q.streams {
		return nil, false
	}
	t.streams++
	return t, true
}

// openMany counts sessions of a stream of many in, if there are no more than most then.
func (q *quotas) openMany(t *quota, sessions, most int) (ok bool) {
	if t == nil {
		return true
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if ok = t.many+sessions <= most; ok {
		t.many += sessions
	}
	return ok
}

// closeMany counts them out.
func (q *quotas) closeMany(t *quota, sessions int) {
	if t == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	t.many -= sessions
}

// close counts a stream out.
func (q *quotas) close(t *quota) {
	if t == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	t.streams--
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

// wholeSeconds rounds up, so that a client that waits so long does not come too early.
func wholeSeconds(d time.Duration) int { return int(math.Ceil(d.Seconds())) }
