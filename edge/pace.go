package edge

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/runlog-dev/runlog/edge/stream"
	"github.com/runlog-dev/runlog/event"
)

// minPace is how many bytes a second a body has to bring, once BodyTimeout has passed.
const minPace = 1024

var errSlowBody = problem(http.StatusRequestTimeout, event.CodeBadRequest, "the body came too slowly: it may pause for no longer than the edge's body timeout, and has to come with %d bytes a second", minPace)

// A paced body cuts clients off that hold a request open by sending next to nothing. A
// body may be silent for timeout, and altogether it may take timeout longer than at
// minPace. Its time runs from the request's header on, whether or not a handler reads.
type paced struct {
	io.ReadCloser
	conn    *http.ResponseController
	timeout time.Duration
	began   time.Time
	read    int64
	whole   bool // all of it was read
}

func (s *Server) pace(w http.ResponseWriter, body io.ReadCloser) *paced {
	p := &paced{ReadCloser: body, conn: http.NewResponseController(w), timeout: s.opts.BodyTimeout, began: time.Now()}
	p.allow()
	return p
}

func (p *paced) Read(b []byte) (int, error) {
	p.allow()
	n, err := p.ReadCloser.Read(b)
	p.read += int64(n)
	if errors.Is(err, io.EOF) {
		p.whole = true
		_ = p.conn.SetReadDeadline(time.Time{}) // later it would look as if the client had gone
	}
	return n, err
}

// dropBody throws away what comes as the body of a request of which nobody reads one.
// HTTP/2 would keep up to a megabyte of it for each connection, as long as the answer
// takes; what HTTP/1.1 does not read stays with the client.
func dropBody(r *http.Request) {
	if r.ProtoMajor == 2 && r.Method != http.MethodPost && r.Body != http.NoBody {
		_ = r.Body.Close()
		r.Body = http.NoBody
	}
}

// An answerPace cuts clients off that do not read their answer. Each piece of it (see
// stream.InPieces) has to be taken within timeout; the whole may take as long as it does.
type answerPace struct {
	timeout  time.Duration // 0: somebody else sees to deadlines
	deadline time.Time     // that the answer has
	ends     bool          // see answer.DeadlineEnds
}

func (p *answerPace) write(w http.ResponseWriter, b []byte) (int, error) {
	if p.timeout == 0 {
		return w.Write(b)
	}
	n, err := stream.InPieces(w, b, func() { p.extend(w) })
	if p.ends && err == nil { // the handler may have to wait for what it writes next
		p.deadline = time.Time{}
		_ = http.NewResponseController(w).SetWriteDeadline(p.deadline)
	}
	return n, err
}

func (p *answerPace) extend(w http.ResponseWriter) {
	if now := time.Now(); p.deadline.Sub(now) < p.timeout*3/4 {
		p.deadline = now.Add(p.timeout)
		_ = http.NewResponseController(w).SetWriteDeadline(p.deadline)
	}
}

// last gives time for what ends the answer when its handler has returned.
func (p *answerPace) last(w http.ResponseWriter) {
	if p.ends && p.timeout > 0 {
		p.extend(w)
	}
}

// allow moves the connection's deadline; a recorder in a test has none.
func (p *paced) allow() {
	now := time.Now()
	pace := p.began.Add(p.timeout + time.Duration(p.read)*time.Second/minPace)
	deadline := now.Add(p.timeout)
	if pace.Before(deadline) {
		deadline = pace
	}
	_ = p.conn.SetReadDeadline(deadline)
}
