package edge

import (
	"io"
	"net/http"
	"sync"

	"github.com/runlog-dev/runlog/event"
)

// freeBody is how much of each body is not counted: commands and short messages are
// taken however full it is.
const freeBody = 4 << 10

// A bodyRoom bounds what the bodies that are being read take together, so that no
// number of them uses up the memory of the process, and what those of one tenant take
// of it: half. One that is alone is taken whatever its size. Safe for concurrent use.
type bodyRoom struct {
	most    int64
	refused func(why string, p *Problem) error

	mu   sync.Mutex
	used int64
	of   map[string]int64 // by tenant
}

// A bodyShare is what a request's body takes of the room.
type bodyShare struct {
	room   *bodyRoom
	tenant string
	read   int64
	counts int64
}

// grow counts n more bytes, or says why there is no room for them.
func (p *bodyShare) grow(n int64) error {
	p.read += n
	n = min(n, p.read-freeBody)
	if p.room == nil || n <= 0 {
		return nil
	}
	r := p.room
	r.mu.Lock()
	defer r.mu.Unlock()
	others, kin := r.used-p.counts, r.of[p.tenant]-p.counts
	if others > 0 && r.used+n > r.most || kin > 0 && r.of[p.tenant]+n > r.most/2 {
		return r.refused("bodies", overloaded("too many large requests are being read at this edge; try again, or another one"))
	}
	p.counts += n
	r.add(p.tenant, n)
	return nil
}

// giveUp gives it back. It may be called again.
func (p *bodyShare) giveUp() {
	if p.counts == 0 {
		return
	}
	p.room.mu.Lock()
	defer p.room.mu.Unlock()
	p.room.add(p.tenant, -p.counts)
	p.counts = 0
}

// add is called with mu held.
func (r *bodyRoom) add(tenant string, n int64) {
	if r.of == nil {
		r.of = map[string]int64{}
	}
	r.used += n
	if r.of[tenant] += n; r.of[tenant] == 0 {
		delete(r.of, tenant)
	}
}

// counted counts what is read of a request's body, until its answer begins or its
// handler returns.
func counted(r *http.Request, body io.Reader) io.Reader {
	c := callOf(r)
	if c == nil {
		return body
	}
	c.share.tenant = c.who.Tenant
	return countedBody{body, &c.share}
}

// What a value of JSON costs when it is decoded besides its text, and how many a body
// may have: three bytes of it can be one.
const (
	valueWeight = 64
	maxValues   = 250_000
)

// weigh counts what a body will become.
func weigh(r *http.Request, body []byte) error {
	n := valuesIn(body)
	if n > maxValues {
		return problem(http.StatusRequestEntityTooLarge, event.CodeTooLarge, "the JSON has more than %d values; send it in fewer, or as a file to /v1/artifacts", maxValues)
	}
	if c := callOf(r); c != nil {
		return c.share.grow(int64(n) * valueWeight)
	}
	return nil
}

// valuesIn is how many values JSON has, if it is JSON, give or take those that are
// empty or the whole.
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
