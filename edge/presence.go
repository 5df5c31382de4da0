package edge

import (
	"context"
	"time"
)

// A client that has closed its side of the connection may still read: HTTP/1.1
// allows it to (printf … | nc -N), and nothing but a write tells it from one that
// has gone. So what was asked for is done and answered whatever the client does
// meanwhile. Only who would keep the edge busy, by a stream or a wait, has to be
// there for it.

type presenceKey struct{}

// detached is the context of a request that its client cannot cancel. It ends when
// the handler calls done; what it leads to, see attended, with the connection too.
func detached(conn context.Context) (ctx context.Context, done func()) {
	return context.WithCancel(context.WithValue(context.WithoutCancel(conn), presenceKey{}, conn))
}

// attended is a context that ends, too, when the client of the request closes the
// connection or its side of it.
func attended(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	conn, ok := ctx.Value(presenceKey{}).(context.Context)
	if !ok {
		return ctx, cancel
	}
	stop := context.AfterFunc(conn, cancel)
	return ctx, func() { stop(); cancel() }
}

// patience is how long a request waits for the end of a run: at most limit. That it
// is over is no error, the answer says what there is.
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
