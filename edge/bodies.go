package edge

import (
	"io"
	"net/http"

	"github.com/runlog-dev/runlog/edge/room"
	"github.com/runlog-dev/runlog/event"
)

// freeBody is how many bytes of each body are not counted, so that commands and short
// messages are taken however full the room is.
const freeBody = 4 << 10

// A bodyShare is what a request's body takes of the room for bodies, so that no number of
// them uses up the memory of the process.
type bodyShare struct {
	room.Share
	read    int64
	metrics *metrics
}

func (s *Server) bodyShare() bodyShare {
	return bodyShare{Share: room.Share{Room: &s.bodies}, metrics: s.metrics}
}

// grow counts n more bytes, or says why there is no room for them.
func (b *bodyShare) grow(n int64) error {
	b.read += n
	if n = min(n, b.read-freeBody); n <= 0 || b.Grow(n) {
		return nil
	}
	return b.metrics.refuse("bodies", overloaded("too many large requests are being read at this edge; try again, or another one"))
}

// counted counts what is read of a request's body, until its answer begins or its
// handler returns.
func counted(r *http.Request, body io.Reader) io.Reader {
	c := callOf(r.Context())
	if c == nil {
		return body
	}
	c.share.Tenant = c.who.Tenant
	return countedBody{body, &c.share}
}

// What a value of JSON costs when it is decoded besides its text, and how many a body
// may have: three bytes of it can be one.
const (
	valueWeight = 64
	maxValues   = 250_000
)

// weigh counts what a body of JSON will take when it is decoded.
func weigh(r *http.Request, body []byte) error {
	n := valuesIn(body)
	if n > maxValues {
		return problem(http.StatusRequestEntityTooLarge, event.CodeTooLarge, "the JSON has more than %d values; send it in fewer, or as a file to /v1/artifacts", maxValues)
	}
	if c := callOf(r.Context()); c != nil {
		return c.share.grow(int64(n) * valueWeight)
	}
	return nil
}

// valuesIn is about how many values a text has, if it is JSON.
func valuesIn(body []byte) (n int) {
	text := false
	for i := 0; i < len(body); i++ {
		switch b := body[i]; {
		case b == '"':
			text = !text
		case text && b == '\\':
			i++
		case !text && (b == ',' || b == '{' || b == '['):
			n++
		}
	}
	return n
}

// A countedBody is a body that is kept in memory.
type countedBody struct {
	io.Reader
	share *bodyShare
}

func (b countedBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if full := b.share.grow(int64(n)); full != nil {
		return n, full
	}
	return n, err
}
