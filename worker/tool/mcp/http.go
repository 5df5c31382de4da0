package mcp

import (
	"context"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// newWeb bounds how long a connection may take; how long an answer may, each call
// says itself.
func newWeb() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = (&net.Dialer{Timeout: 10 * time.Second}).DialContext
	t.MaxIdleConnsPerHost = 16
	return t
}

func (s *Server) httpTransport(w *wire) sdk.Transport {
	home, _ := url.Parse(s.opt.URL) // Check has read it
	return &sdk.StreamableClientTransport{
		Endpoint:     s.opt.URL,
		HTTPClient:   &http.Client{Transport: &roundTripper{base: s.web, wire: w, home: home, headers: s.opt.Headers}},
		MaxRetries:   3,
		MaxEventSize: 4 * s.opt.MaxFrame, // wire has the limit, and lets messages grow
	}
}

// A roundTripper adds the configured headers, has the wire look at what comes
// back, and notes whether a call has left.
type roundTripper struct {
	base    http.RoundTripper
	wire    *wire
	home    *url.URL
	headers map[string]string
}

func (t *roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	req = t.withHeaders(req)
	trip, _ := req.Context().Value(deliveryKey{}).(*delivery)
	if req.Method != http.MethodPost {
		trip = nil
	}
	trip.begin()
	resp, err := t.base.RoundTrip(req)
	trip.end(resp, err)
	if err != nil {
		return nil, err
	}
	resp.Body = t.watched(resp)
	return resp, nil
}

// withHeaders keeps the headers from a host that the server redirects to.
func (t *roundTripper) withHeaders(req *http.Request) *http.Request {
	req = req.Clone(req.Context())
	if req.URL.Scheme == t.home.Scheme && req.URL.Host == t.home.Host {
		for key, v := range t.headers {
			req.Header.Set(key, v)
		}
	}
	return req
}

func (t *roundTripper) watched(resp *http.Response) io.ReadCloser {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch kind {
	case "text/event-stream":
		return body{t.wire.lines(resp.Body, t.wire.sse), resp.Body}
	case "application/json":
		return body{t.wire.body(resp.Body), resp.Body}
	}
	return body{io.LimitReader(resp.Body, int64(t.wire.limit)), resp.Body}
}

type body struct {
	io.Reader
	io.Closer
}

// A delivery knows whether the POST of a call has reached the server. It rides
// in the context of the call; a nil one notes nothing.
type delivery struct {
	sent    atomic.Bool  // the server may have got it
	refused atomic.Int32 // the 4xx status that it answered; 404: it does not know the session
}

type deliveryKey struct{}

func withDelivery(ctx context.Context) (context.Context, *delivery) {
	d := &delivery{}
	return context.WithValue(ctx, deliveryKey{}, d), d
}

func (d *delivery) begin() {
	if d != nil {
		d.sent.Store(true)
		d.refused.Store(0)
	}
}

// end takes back what begin assumed if no connection was made, or if the server
// refused the request without acting on it.
func (d *delivery) end(resp *http.Response, err error) {
	if d == nil {
		return
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		d.sent.Store(false)
	}
	if resp != nil && resp.StatusCode >= 400 && resp.StatusCode < 500 {
		d.sent.Store(false)
		d.refused.Store(int32(resp.StatusCode))
	}
}
