package runlog

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"time"
)

// A pursuit decides what follows a failed attempt: another edge at once, a wait,
// or the end. One pursuit serves one call or one stream.
type pursuit struct {
	c        *Client
	edges    []string
	at       int           // edge in use
	fails    int           // failures in a row, over all edges
	alive    time.Time     // last sign of life, at first the beginning
	answered bool          // an edge has answered at least once
	reached  bool          // an edge was there at least once, whatever came of it
	retry    time.Duration // reconnection time the stream asked for
}

func (c *Client) pursue() (*pursuit, error) {
	edges, err := c.edges()
	if err != nil {
		return nil, err
	}
	return &pursuit{c: c, edges: edges, at: int(c.edge.Load()) % len(edges), alive: time.Now(), reached: c.reached.Load()}, nil
}

func (p *pursuit) edge() string { return p.edges[p.at] }

// heard notes that the edge lives.
func (p *pursuit) heard() {
	p.alive, p.answered = time.Now(), true
	p.c.reached.Store(true)
	p.c.edge.Store(int32(p.at))
}

// progressed notes that the edge brought what was asked for.
func (p *pursuit) progressed() {
	p.heard()
	p.fails = 0
}

// again waits until the next attempt is due and moves to its edge. It returns
// the reason if there is to be none.
func (p *pursuit) again(ctx context.Context, cause error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	p.fails++
	p.reached = p.reached || !unreachable(cause)
	if !p.worth(cause) {
		return cause
	}
	wait := p.wait(cause)
	if silent := time.Since(p.alive) + wait; p.patience() >= 0 && silent > p.patience() {
		return fmt.Errorf("gave up after %v: %w", time.Since(p.alive).Round(time.Second), cause)
	}
	if p.c.OnRetry != nil {
		p.c.OnRetry(cause, wait)
	}
	p.at = (p.at + 1) % len(p.edges)
	return sleep(ctx, wait)
}

func (p *pursuit) patience() time.Duration { return cmp.Or(p.c.Patience, 2*time.Minute) }

// worth reports whether another try can end differently. An edge that was never
// reached is an address to correct, so a first round of refusals is enough.
func (p *pursuit) worth(cause error) bool {
	var refusal *Error
	switch {
	case errors.As(cause, new(permanent)):
		return false
	case errors.As(cause, &refusal):
		return refusal.temporary() || refusal.Status == http.StatusInternalServerError && p.answered
	case unreachable(cause):
		return p.reached || p.answered || p.fails < len(p.edges)
	}
	return true
}

// unreachable reports that no request can have arrived.
func unreachable(err error) bool {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return true
	}
	return errors.As(err, new(*tls.CertificateVerificationError)) || errors.As(err, new(tls.RecordHeaderError)) ||
		errors.Is(err, http.ErrSchemeMismatch)
}

// wait is the time to the next attempt. Within a round over the edges it is
// short; each round doubles it. Retry-After is kept to where it would be asked
// again, and for a rate limit everywhere.
func (p *pursuit) wait(cause error) time.Duration {
	least := max(p.retry, cmp.Or(p.c.MinDelay, 250*time.Millisecond))
	most := max(least, cmp.Or(p.c.MaxDelay, 10*time.Second))
	round := min((p.fails-1)/len(p.edges), 16)
	wait := min(least<<round, most)
	endOfRound := p.fails%len(p.edges) == 0
	if !endOfRound {
		wait = min(wait, 20*time.Millisecond)
	}
	var refusal *Error
	if errors.As(cause, &refusal) && (endOfRound || refusal.Status == http.StatusTooManyRequests) {
		wait = max(wait, refusal.RetryAfter)
	}
	return wait + rand.N(wait/2+1)
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
