package edge

import (
	"context"
	"net/http"
	"time"

	"github.com/runlog-dev/runlog/edge/auth"
	"github.com/runlog-dev/runlog/edge/room"
	"github.com/runlog-dev/runlog/event"
)

// admit lets a stream, or the wait of a call, in. Its context ends when the edge drains, or
// the caller's key is revoked. done has the stream leave, unless it was parked.
func (s *Server) admit(ctx context.Context) (_ context.Context, done func(), err error) {
	if s.drain.Err() != nil {
		return nil, nil, errDraining
	}
	c := callOf(ctx)
	a, err := s.enter(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	c.admitted = a
	ctx, cancel := context.WithCancelCause(ctx)
	drained := context.AfterFunc(s.drain, func() { inTurn(time.Duration(s.spread.Load()), func() { cancel(errDraining) }) })
	revoked := context.AfterFunc(a.key.Until(), func() {
		inTurn(s.spreadOf(a.key.Streams()), func() { cancel(auth.ErrRevoked) })
	})
	return ctx, func() {
		drained()
		revoked()
		cancel(nil)
		if c.parked == nil {
			a.leave()
		}
	}, nil
}

// An admission is what a stream has of what this edge bounds, until it leaves.
type admission struct {
	srv      *Server
	key      *auth.Standing // of its caller
	promised room.Promise
	tenant   *quota // nil: not counted
	address  *quota
}

// enter lets a stream of a call in, or says why there is no room for it.
func (s *Server) enter(ctx context.Context, c *call) (*admission, error) {
	a := &admission{srv: s}
	if err := a.take(ctx, c, s.streams.Add(1)); err != nil {
		a.leave()
		return nil, err
	}
	a.key = s.gate.Use(c.who)
	return a, nil
}

// take takes what a stream needs, as far as it is there. all is how many streams are open
// with this one.
func (a *admission) take(ctx context.Context, c *call, all int64) (err error) {
	s := a.srv
	tenant, address := c.countedBy(ctx)
	if s.hub.Busy(tenant) {
		return s.metrics.refuse("reads", overloaded("too many clients are catching up at this edge; try another one"))
	}
	if a.promised, err = s.promise(costOf(c)); err != nil {
		return err
	}
	if all > int64(s.opts.MaxStreams) {
		return s.metrics.refuse("streams", overloaded("this edge has its limit of %d open streams; try another one", s.opts.MaxStreams))
	}
	var ok bool
	if a.tenant, ok = s.tenants.open(tenant); !ok {
		return s.errTooManyStreams(&s.tenants)
	}
	if a.address, ok = s.addresses.open(address); !ok {
		return s.errTooManyStreams(&s.addresses)
	}
	return nil
}

// leave gives back what was taken.
func (a *admission) leave() {
	s := a.srv
	a.key.Close()
	s.addresses.close(a.address)
	s.tenants.close(a.tenant)
	s.streams.Add(-1)
	s.ledger.Return(a.promised)
}

// errTooManyStreams is for whom a quota has no stream left.
func (s *Server) errTooManyStreams(q *quotas) error {
	p := problem(http.StatusTooManyRequests, event.CodeRateLimited, "more than %d streams of one %s are open at this edge; close some, or follow many sessions over one", q.streams, q.of)
	p.retryAfter = time.Second
	return s.metrics.refuse(q.of+"_streams", p)
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

// enterMany counts the sessions of a stream of many in. They are bounded by number,
// like streams, and by their part of the memory. Where streams of a tenant are limited, it
// has no more than half of what all may have: its streams may be few, and follow a hundred each.
func (s *Server) enterMany(c *call, n int) (leave func(), err error) {
	promised, err := s.promise(int64(n) * manyCost)
	if err != nil {
		return nil, err
	}
	all, tenant := s.many.Add(int64(n)), c.admitted.tenant
	give := func() {
		s.many.Add(-int64(n))
		s.ledger.Return(promised)
	}
	switch {
	case all > int64(s.opts.MaxStreams):
		give()
		return nil, s.metrics.refuse("streams", overloaded("this edge follows its limit of %d sessions for streams of many; name fewer, or try another one", s.opts.MaxStreams))
	case s.budget.Many > 0 && all*manyCost > s.budget.Many:
		give()
		return nil, s.metrics.refuse("memory", overloaded("this edge has no memory for %d more sessions of streams of many; name fewer, or try another one", n))
	case !s.tenants.openMany(tenant, n, s.opts.MaxStreams/2):
		give()
		p := problem(http.StatusTooManyRequests, event.CodeRateLimited, "more than %d sessions of one tenant are followed by streams of many at this edge; name fewer, or close some", s.opts.MaxStreams/2)
		p.retryAfter = time.Second
		return nil, s.metrics.refuse("tenant_streams", p)
	}
	return func() {
		s.tenants.closeMany(tenant, n)
		give()
	}, nil
}
