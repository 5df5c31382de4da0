package edge_test

import (
	"bufio"
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

var errEnded = errors.New("the stream has ended")

// visit goes on until it has all, and then finds that there is no more.
func (v *visitor) visit(ctx context.Context) error {
	defer v.dropClient()
	for v.late && !v.written() {
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
		switch err := v.read(ctx, false, -1, v.soon); {
		case errors.Is(err, errEnded):
			return v.book.mayEnd(true)
		case errors.Is(err, context.DeadlineExceeded) || !v.passing(err):
			return fmt.Errorf("history after %q: %w", v.book.cursor(), err)
		}
	}
}

// finished: a session has all there will be. A run's stream says so itself.
func (v *visitor) finished() bool {
	return !strings.HasPrefix(v.path, "/v1/runs/") && v.book.complete()
}

// connection reads for a while; the last time until it has all.
func (v *visitor) connection(ctx context.Context, last bool) error {
	budget, patience := v.random.IntN(1+v.random.IntN(60000)), time.Duration(v.random.IntN(1500))*time.Millisecond
	follow := last || v.random.IntN(6) > 0
	switch {
	case last:
		budget, patience = -1, v.soon
	case v.random.IntN(3) == 0:
		budget = -1
	}
	err := v.read(ctx, follow, budget, patience)
	switch {
	case errors.Is(err, errEnded) && !follow:
		v.seen.histories.Add(1)
		return v.book.mayEnd(true)
	case errors.Is(err, errEnded):
		v.over = true
		v.seen.ends.Add(1)
		return v.book.mayEnd(false)
	case last && errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("nothing came for %v: %w", patience, v.lacks())
	case err == nil || v.passing(err):
		v.seen.cuts.Add(1)
		return nil
	}
	return err
}

func (v *visitor) lacks() error {
	if r, ok := v.book.(*reading); ok {
		through := r.c.head()
		if r.run != "" {
			through = r.c.end(r.run)
		}
		return r.lacks(through)
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
func (v *visitor) read(ctx context.Context, follow bool, budget int, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
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
