package edge

import (
	"context"
	"time"
)

// A client that has closed its side of the connection may still read: HTTP/1.1 allows
// that (printf … | nc -N), and only a write tells whether it has gone. So a request is
// done and answered whatever its client does meanwhile. Only what would keep the edge
// busy, a stream or a wait, ends when the client closes its side.

type presenceKey struct{}

// detached is a context for a request that its client cannot cancel. It ends when done
// is called. A context that attended makes of it ends with the connection too.
func detached(conn context.Context) (ctx context.Context, done func()) {
	return context.WithCancel(context.WithValue(context.WithoutCancel(conn), presenceKey{}, conn))
}

// attended is a context that ends also when the client closes the connection, or its
// side of it.
func attended(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	conn, ok := ctx.Value(presenceKey{}).(context.Context)
	if !ok {
		return ctx, cancel
	}
	stop := context.AfterFunc(conn, cancel)
	return ctx, func() { stop(); cancel() }
}

// patience is a context for a request that waits for the end of a run, at most for limit.
// If that is over it is no error: the answer says how the run is.
func patience(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, leave := attended(ctx)
	ctx, cancel := context.WithTimeout(ctx, limit)
	return ctx, func() { cancel(); leave() }
}

// left reports whether the client has closed the connection or its side of it.
func left(ctx context.Context) bool {
	conn, ok := ctx.Value(presenceKey{}).(context.Context)
	return ok && conn.Err() != nil || ctx.Err() != nil
}
