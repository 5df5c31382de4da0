package edge

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"time"
)

// An unsaid answer is a stream to a client that asked for "Connection: close", in
// chunks as any other, whose header does not say that the connection closes. Where it
// is said, undici, which is the fetch of Node.js, takes whatever ends the connection
// for the end of the answer, a reset too, and so an aborted stream for a whole one.
// Where it is not said, all clients miss the last chunk, even if the process was killed.
// net/http says it whenever it was asked for. So the connection is taken over before
// the header has left, and closed when the answer is over.
type unsaid struct {
	header http.Header
	conn   net.Conn
	out    *bufio.Writer
	body   io.WriteCloser // makes chunks
	left   chan struct{}  // closed when nobody looks any more whether the client has left
	over   func()         // called once, when somebody else has the connection or nobody
}

// leavesUnsaid reports whether an answer with such a header would be ended by whatever
// ends the connection, in the eyes of some clients. One that tells its length, as that
// of an artifact of such a type, would not, and must not be in chunks.
func (c *call) leavesUnsaid(status int, h http.Header) bool {
	kind := h.Get("Content-Type")
	return c.closes && !c.old && c.method != http.MethodHead && status == http.StatusOK && h.Get("Content-Length") == "" &&
		(strings.HasPrefix(kind, "text/event-stream") || strings.HasPrefix(kind, "application/x-ndjson"))
}

// takeOver makes the answer an unsaid one; where the connection cannot be had it stays
// as it is.
func (a *answer) takeOver() {
	a.takenOver.Add(1)
	header := a.Header()
	conn, rw, err := http.NewResponseController(a.ResponseWriter).Hijack()
	if err != nil {
		a.takenOver.Done()
		return
	}
	u := &unsaid{header: header, conn: conn, out: rw.Writer, body: httputil.NewChunkedWriter(rw.Writer), left: make(chan struct{}), over: a.takenOver.Done}
	a.ResponseWriter, a.unsaid = u, u
	go u.watch(a.call.gone)
}

// watch calls gone when the client leaves. What it sends is nobody's: it wants no other
// answer on this connection, with which the goroutine ends.
func (u *unsaid) watch(gone func()) {
	defer close(u.left)
	var b [64]byte
	for {
		if _, err := u.conn.Read(b[:]); err != nil {
			gone()
			return
		}
	}
}

func (u *unsaid) Header() http.Header { return u.header }

// WriteHeader is called once, by answer.
func (u *unsaid) WriteHeader(status int) {
	u.header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	u.header.Set("Transfer-Encoding", "chunked")
	fmt.Fprintf(u.out, "HTTP/1.1 %d %s\r\n", status, http.StatusText(status))
	_ = u.header.Write(u.out) // what fails is kept until the flush
	_, _ = io.WriteString(u.out, "\r\n")
}

func (u *unsaid) Write(b []byte) (int, error) { return u.body.Write(b) }

// FlushError, SetWriteDeadline and Hijack are what http.ResponseController calls.
func (u *unsaid) FlushError() error { return u.out.Flush() }

func (u *unsaid) SetWriteDeadline(t time.Time) error { return u.conn.SetWriteDeadline(t) }

// Hijack gives the connection away, behind what was written.
func (u *unsaid) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if err := u.out.Flush(); err != nil {
		return nil, nil, err
	}
	_ = u.conn.SetReadDeadline(time.Unix(1, 0))
	<-u.left
	_ = u.conn.SetDeadline(time.Time{}) // as net/http does
	u.over()
	return u.conn, bufio.NewReadWriter(bufio.NewReader(u.conn), u.out), nil
}

// end closes the connection, after the last chunk if the answer is whole.
func (u *unsaid) end(whole bool, timeout time.Duration) {
	defer u.over()
	defer u.conn.Close()
	if !whole {
		return
	}
	_ = u.conn.SetWriteDeadline(time.Now().Add(timeout))
	_ = u.body.Close() // what fails is kept until the flush
	_, _ = io.WriteString(u.out, "\r\n")
	_ = u.out.Flush() // nobody is left to be told
}
