package edge

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/runlog-dev/runlog/edge/stream"
)

// An EventSource gives up for good at any status but 200, and its page is not told
// which one it was. What will pass must not reach it as a status: it is told when to
// come back, or its connection is aborted, after which it comes back by itself.

// fail answers with the problem that an error is, or aborts the answer: one that has
// begun, and one to an EventSource that is to come back.
func (s *Server) fail(w http.ResponseWriter, c *call, err error) {
	c.err = err
	if !s.tell(w, c, toProblem(err)) {
		panic(http.ErrAbortHandler)
	}
}

// tell answers with a problem, and reports whether that is all: else the connection has
// to be aborted now. A 503 is of this edge alone: the connection of an EventSource is
// aborted without a word, so that a proxy asks another edge. A limit or a fault would
// come up there again, and again: it is told to wait.
func (s *Server) tell(w http.ResponseWriter, c *call, p *Problem) (whole bool) {
	switch {
	case c.started:
		return false
	case !c.source || !p.passes():
		writeProblem(w, p)
		return true
	case p.Status != http.StatusServiceUnavailable && s.openings.begin(c):
		writeLater(w, p)
	}
	c.status = p.Status
	return false
}

// faultRetry is when to come back after a fault of ours.
const faultRetry = 10 * time.Second

// writeLater answers an EventSource with nothing but when to come back.
func writeLater(w http.ResponseWriter, p *Problem) {
	seconds := wholeSeconds(cmp.Or(p.retryAfter, faultRetry))
	w.Header().Set("Retry-After", strconv.Itoa(seconds))
	writeStreamHeader(w, stream.SSE{})
	least := 1000 * seconds
	fmt.Fprintf(w, ": %d %s\nretry: %d\n\n", p.Status, strings.Join(strings.Fields(p.Detail), " "), least+rand.N(max(least/2, 1000)))
	_ = http.NewResponseController(w).Flush() // it is aborted whether or not this was read
}

// passes reports whether the same request may be right later.
func (p *Problem) passes() bool {
	switch p.Status {
	case http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable:
		return true
	}
	return false
}

// isEventSource reports whether a request may be that of an EventSource: it comes back
// with its last id, or is not to be answered from a cache, as all of theirs. A program
// that looks at statuses says so: it accepts problems.
func isEventSource(r *http.Request) bool {
	accept := strings.Join(r.Header.Values("Accept"), ",")
	return r.Method == http.MethodGet && strings.HasPrefix(accept, "text/event-stream") && !strings.Contains(accept, problemType) &&
		(reconnected(r) != "" || strings.Contains(r.Header.Get("Cache-Control"), "no-cache"))
}
