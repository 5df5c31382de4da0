package edge_test

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/runlog-dev/runlog/edge"
	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/edge/dialect/native"
	"github.com/runlog-dev/runlog/edge/stream"
	"github.com/runlog-dev/runlog/event"
)

// A book is what a client has got and judges it.
type book interface {
	connect(snapshot bool)
	take(message) error
	mayEnd(history bool) error // the stream has ended properly
	complete() bool
	cursor() string
}

// A visitor reads a stream over many connections to any edge, each of which it cuts
// somewhere.
type visitor struct {
	*trial
	random   *rand.Rand
	name     string
	way      way
	path     string
	query    url.Values
	snapshot bool
	late     bool // comes when all is written
	book     book
	parts    []*reading   // of book
	client   *http.Client // whose connection may be used again
	trace    []string     // of its connections
	over     bool         // its run's stream has ended properly
}

// visitor chooses who reads what, and how.
func (tr *trial) visitor(n int) *visitor {
	random := rand.New(rand.NewPCG(tr.random.Uint64(), 2))
	v := &visitor{trial: tr, random: random, query: url.Values{}, snapshot: random.IntN(6) == 0, late: random.IntN(6) == 0}
	c := tr.sessions[random.IntN(len(tr.sessions))]
	r := &reading{c: c, seen: &tr.seen}
	switch runs := tr.runs[c]; random.IntN(8) {
	case 0:
		v.path, v.snapshot = "/v1/stream", v.snapshot && !tr.tight // takes all of them at once
		for _, c := range tr.sessions {
			v.parts = append(v.parts, &reading{c: c, seen: &tr.seen})
		}
		v.book = newBundle(v.parts)
	case 1, 2, 3:
		v.path, v.parts, v.book = "/v1/sessions/"+c.key.Session+"/events", []*reading{r}, r
	default:
		r.run = runs[random.IntN(len(runs))]
		v.path, v.parts, v.book = "/v1/runs/"+r.run+"/events", []*reading{r}, r
	}
	if err := v.turn(); err != nil {
		tr.t.Fatal(err)
	}
	if len(v.parts) == 1 && random.IntN(4) == 0 {
		err := error(nil)
		if n := len(c.lost); n > 0 && random.IntN(2) == 0 {
			err = r.fromLost(c.lost[random.IntN(n)], random.IntN(3))
		} else {
			err = r.from(event.Seq(random.IntN(int(c.committed()) + 1)))
		}
		if err != nil {
			tr.t.Fatal(err)
		}
	}
	v.name = fmt.Sprintf("visitor %d", n)
	return v
}

// turn chooses how a visitor goes on.
func (v *visitor) turn() error {
	r := v.random
	v.way, v.query = ways[r.IntN(5)], url.Values{}
	v.dropClient()
	catchup := []stream.Catchup{"", stream.Events, stream.Merged, stream.ToSnapshot}[r.IntN(4)]
	if catchup != "" {
		v.query.Set("catchup", string(catchup))
	}
	audience := dialect.Client
	if r.IntN(4) == 0 {
		audience = dialect.Auditor
		v.query.Set("include", "internal")
	}
	d := dialect.Dialect(native.Dialect{})
	if all := edge.Dialects(); len(v.parts) == 1 && r.IntN(2) == 0 {
		d = all[r.IntN(len(all))]
		v.query.Set("dialect", d.Name())
		v.way = ways[[]int{0, 2, 3}[r.IntN(3)]] // lines have no position in other dialects
	}
	for _, p := range v.parts {
		if len(v.parts) > 1 {
			v.query.Add("session", p.c.key.Session)
		}
		p.socket = v.way.accept == ""
		if err := p.turn(d, audience, catchup); err != nil {
			return err
		}
	}
	return nil
}

var errEnded = errors.New("the stream has ended")

// visit goes on until it has all, and then finds that there is no more.
func (v *visitor) visit(ctx context.Context) error {
	defer v.dropClient()
	for v.early() || v.late && !v.written() {
		if v.t.Failed() { // maybe who writes
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	for n := 0; !v.over; n++ {
		last := v.written()
		if last && v.finished() {
			break
		}
		if n > 0 && v.random.IntN(8) == 0 && !strings.Contains(v.book.cursor(), ".") {
			if err := v.turn(); err != nil {
				return err
			}
		}
		if err := v.connection(ctx, last); err != nil {
			return fmt.Errorf("connection %d, %s%s?%s after %q: %w", n, v.way.name, v.path, v.query.Encode(), v.book.cursor(), err)
		}
	}
	for {
		switch err := v.read(ctx, false, -1, patience); {
		case errors.Is(err, errEnded):
			return v.book.mayEnd(true)
		case errors.Is(err, context.DeadlineExceeded) || !v.passing(err):
			return fmt.Errorf("history after %q: %w", v.book.cursor(), err)
		}
	}
}

// early: nobody has asked for its run yet.
func (v *visitor) early() bool {
	_, accepted := v.parts[0].c.begin(v.parts[0].run)
	return v.parts[0].run != "" && !accepted
}

// finished: a session has all there will be. A run's stream says so itself.
func (v *visitor) finished() bool {
	return !strings.HasPrefix(v.path, "/v1/runs/") && v.book.complete()
}

// connection reads for a while; the last time until it has all.
func (v *visitor) connection(ctx context.Context, last bool) error {
	budget, soon := v.random.IntN(1+v.random.IntN(60000)), time.Duration(v.random.IntN(1500))*time.Millisecond
	follow := last || v.random.IntN(6) > 0
	switch {
	case last:
		budget, soon = -1, patience
	case v.random.IntN(3) == 0:
		budget = -1
	}
	err := v.read(ctx, follow, budget, soon)
	switch {
	case errors.Is(err, errEnded) && !follow:
		v.seen.histories.Add(1)
		return v.book.mayEnd(true)
	case errors.Is(err, errEnded):
		v.over = true
		v.seen.ends.Add(1)
		return v.book.mayEnd(false)
	case last && errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("nothing came for %v: %w", soon, v.lacks())
	case err == nil || v.passing(err):
		v.seen.cuts.Add(1)
		return nil
	}
	return err
}

// lacks says what the client still waits for.
func (v *visitor) lacks() error {
	if r, ok := v.book.(*reading); ok {
		through := r.c.head()
		if r.run != "" {
			through = r.c.end(r.run)
		}
		return cmp.Or(r.lacks(through), errors.New("it has all, and is not told so"))
	}
	return errors.New("a session lacks something")
}

// A complaint is what the book says against the stream, or what no edge may do.
type complaint struct{ error }

// passing: what cuts do, and edges that go away.
func (v *visitor) passing(err error) bool {
	var r refused
	var c complaint
	switch {
	case errors.As(err, &c):
		return false
	case errors.As(err, &r) && r.status != http.StatusServiceUnavailable:
		return false
	}
	if !errors.Is(err, errCut) {
		time.Sleep(5 * time.Millisecond) // edges are on their way
	}
	return true
}

// read reads one connection: errEnded is its proper end, nil if the client has all.
func (v *visitor) read(ctx context.Context, follow bool, budget int, soon time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	after := v.book.cursor()
	v.book.connect(v.snapshot && after == "")
	v.query.Set("follow", strconv.FormatBool(follow))
	if v.client == nil {
		v.client = v.newClient(budget)
	}
	in, err := v.open(ctx, v.edges[v.random.IntN(len(v.edges))].base(), after, v.client)
	if err == nil {
		defer in.close()
	}
	if v.random.IntN(2) == 0 { // else its connection serves the next request
		defer v.dropClient()
	}
	for err == nil {
		var m message
		if m, err = in.next(); err != nil {
			break
		}
		if err := v.book.take(m); err != nil {
			return complaint{err}
		}
		if follow && v.written() && v.finished() {
			return nil
		}
	}
	v.trace = append(v.trace, fmt.Sprint(after, " to ", v.book.cursor(), ": ", err))
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if r := (refused{}); errors.Is(err, io.EOF) || errors.As(err, &r) && r.status == http.StatusNoContent {
		return errEnded
	}
	return err
}

func (v *visitor) dropClient() {
	if v.client != nil {
		v.client.CloseIdleConnections()
		v.client = nil
	}
}

// newClient is one whose connections give so many bytes, and then break; negative: all.
func (v *visitor) newClient(budget int) *http.Client {
	c := v.way.client(nil)
	tr := c.Transport.(*http.Transport)
	tr.IdleConnTimeout = 50 * time.Millisecond // of what is given back when nobody looks any more
	slow, nap := v.random.IntN(4) == 0, time.Duration(v.random.IntN(500))*time.Millisecond
	tr.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		if slow {
			_ = conn.(*net.TCPConn).SetReadBuffer(64 << 10)
		}
		return &scissors{conn, budget, slow, nap}, nil
	}
	return c
}

type scissors struct {
	net.Conn
	left int
	slow bool
	nap  time.Duration // in which it reads nothing
}

var errCut = errors.New("cut")

func (s *scissors) Read(b []byte) (int, error) {
	if s.left == 0 {
		_ = s.Close()
		return 0, errCut
	}
	if s.slow {
		time.Sleep(time.Millisecond + s.nap)
		s.nap = 0
	}
	if s.left > 0 {
		b = b[:min(len(b), s.left)]
	}
	n, err := s.Conn.Read(b)
	if s.left > 0 {
		s.left -= n
	}
	return n, err
}

// open asks in one of the ways there are to name a position.
func (v *visitor) open(ctx context.Context, base, after string, client *http.Client) (viewer, error) {
	q := url.Values{}
	for name, list := range v.query {
		q[name] = list
	}
	if v.snapshot && after == "" {
		q.Set("snapshot", "1")
	}
	byHeader := v.random.IntN(3) > 0
	if after != "" && !byHeader && v.way.accept != "" {
		q.Set([]string{"after", "lastEventId", "last_event_id"}[v.random.IntN(3)], after)
	}
	target := base + v.path + "?" + q.Encode()
	if v.way.accept == "" {
		return v.openSocket(ctx, target, after, client)
	}
	req, err := http.NewRequestWithContext(ctx, "GET", target, nil)
	if err != nil {
		return nil, complaint{err}
	}
	req.Header.Set("Accept", v.way.accept)
	if after != "" && byHeader {
		req.Header.Set("Last-Event-ID", after)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, unanswered(err)
	}
	in := &httpStream{resp, bufio.NewReader(resp.Body)}
	if resp.StatusCode != http.StatusOK {
		defer in.close()
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
		return nil, fmt.Errorf("%w: %s", refused{resp.StatusCode}, body)
	}
	switch {
	case strings.HasSuffix(v.way.accept, "event-stream"):
		return &sseStream{in}, nil
	case strings.HasPrefix(v.path, "/v1/stream"):
		return &lineStream{in, readObject}, nil
	}
	return &lineStream{in, readNative}, nil
}
