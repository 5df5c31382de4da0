package edge

import (
	"context"
	"net"
	"net/http"
	"time"
)

// In HTTP/1.0 the end of the connection is the end of the answer. So while an answer is
// not whole its connection ends with a reset whatever ends it, a kill of the process
// too: nginx as most write it speaks HTTP/1.0 to the edge, and passes what looks whole
// on as whole.

// lengthTold is how large an answer may be, in bytes, of which net/http tells the length
// by itself. A larger one has to have left before its connection may end as usual.
const lengthTold = 2048

type connKey struct{}

// withConn keeps a connection for connOf.
func withConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}

// connOf is the connection of a request; nil if it has none of its own.
func connOf(r *http.Request) net.Conn {
	conn, _ := r.Context().Value(connKey{}).(net.Conn)
	return inClear(conn)
}

// inClear is what carries a connection of TLS, or the connection itself.
func inClear(conn net.Conn) net.Conn {
	if secure, ok := conn.(interface{ NetConn() net.Conn }); ok {
		return secure.NetConn()
	}
	return conn
}

// resets has a connection end with a reset, or as usual.
func resets(conn net.Conn, yes bool) {
	seconds := -1
	if yes {
		seconds = 0
	}
	if c, ok := conn.(interface{ SetLinger(int) error }); ok {
		_ = c.SetLinger(seconds)
	}
}

// breakOff resets the connection of an answer that is not whole.
func breakOff(w http.ResponseWriter) {
	rc := http.NewResponseController(w)
	_ = rc.SetWriteDeadline(time.Unix(1, 0)) // what is not sent yet will not be
	conn, _, err := rc.Hijack()
	if err != nil {
		return
	}
	conn = inClear(conn) // closing the other one would say that it is the end
	resets(conn, true)
	_ = conn.Close()
}
