// Package wire is the HTTP side that the model providers share, and in part whoever
// else asks a server that may fail: it watches for
// streams that stall, turns every failure into a model.Error that tells people
// what to check and the loop whether to try again, and writes answers as chunks.
package wire

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/runlog-dev/runlog/worker/model"
)

// maxErrorBody bounds what is read of an answer that is not a stream.
const maxErrorBody = 64 << 10

// finishGrace is how long a stream that has said why it ended may take to close.
const finishGrace = 5 * time.Second

var errStalled = errors.New("the stream stalled")

// A Conn makes the calls of one endpoint. It is safe for concurrent use.
type Conn struct {
	endpoint model.Endpoint
	client   *http.Client
}

// New returns a Conn for a checked endpoint.
func New(e model.Endpoint) *Conn {
	return &Conn{endpoint: e, client: &http.Client{Transport: transport{http.DefaultTransport.(*http.Transport).Clone()}}}
}

// Client is what the provider's SDK is to use; it answers what is not a stream
// with an error of this package.
func (c *Conn) Client() *http.Client { return c.client }

// A Call is one request with its stream.
type Call struct {
	conn    *Conn
	parent  context.Context
	ctx     context.Context
	cancel  context.CancelCauseFunc
	timer   *time.Timer
	started atomic.Bool // the response's headers have arrived
	grace   atomic.Bool // the answer is whole, only the end of the stream is missing
}

type callKey struct{}

// Begin starts the watch over a call. Its context is for the SDK; Close ends it
// and closes the socket of a stream that was not read to its end.
func (c *Conn) Begin(ctx context.Context) *Call {
	call := &Call{conn: c, parent: ctx}
	call.ctx, call.cancel = context.WithCancelCause(ctx)
	call.ctx = context.WithValue(call.ctx, callKey{}, call)
	call.timer = time.AfterFunc(c.endpoint.StartTimeout, func() { call.cancel(errStalled) })
	return call
}

// Context carries the call to the transport.
func (c *Call) Context() context.Context { return c.ctx }

// Close frees the call.
func (c *Call) Close() {
	c.timer.Stop()
	c.cancel(nil)
}

// Finished says that the answer is whole, so that a stream that stays open now
// only costs a moment.
func (c *Call) Finished() { c.grace.Store(true) }

func (c *Call) patience() time.Duration {
	if c.grace.Load() {
		return min(c.conn.endpoint.IdleTimeout, finishGrace)
	}
	return c.conn.endpoint.IdleTimeout
}

// transport hands streams through and makes errors of all other answers.
type transport struct{ base http.RoundTripper }

func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := t.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	call, _ := req.Context().Value(callKey{}).(*Call)
	if call == nil {
		return res, nil
	}
	call.started.Store(true)
	call.timer.Stop()
	if res.StatusCode >= 300 && res.StatusCode < 400 && res.Header.Get("Location") != "" {
		return res, nil // for the client to follow
	}
	if res.StatusCode != http.StatusOK || !streams(res.Header) {
		return nil, readStatus(res)
	}
	res.Body = &body{res.Body, call}
	return res, nil
}

// streams takes any content type that is not surely something else: not every
// server names its stream.
func streams(h http.Header) bool {
	media, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	return !strings.HasSuffix(media, "json") && media != "text/html"
}

func readStatus(res *http.Response) error {
	defer func() { _ = res.Body.Close() }()
	text, _ := io.ReadAll(io.LimitReader(res.Body, maxErrorBody))
	return &status{code: res.StatusCode, header: res.Header, body: text}
}

type body struct {
	io.ReadCloser
	call *Call
}

// Read runs the clock only while it waits for the server: what the caller does
// between two reads is not the server's silence.
func (b *body) Read(p []byte) (int, error) {
	b.call.timer.Reset(b.call.patience())
	defer b.call.timer.Stop()
	return b.ReadCloser.Read(p)
}
