package runlog

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// DefaultBaseURL is where `runlog dev` listens.
const DefaultBaseURL = "http://127.0.0.1:8080"

// A Client talks to one or more edges of one installation. The zero value talks
// to DefaultBaseURL. It is safe for concurrent use; do not copy it, nor change
// its fields once it is in use.
type Client struct {
	BaseURL   string   // scheme, host and an optional path prefix
	Fallbacks []string // more edges of the same installation, tried in turn
	Key       string   // API key, sent as bearer token; may be empty on a loopback edge

	// HTTP sends the requests; nil: http.DefaultClient. Its Timeout must be 0, a
	// stream lasts as long as its run.
	HTTP *http.Client

	// Idle is how long a connection may stay without a byte, pings included,
	// before it counts as dead. 0: 45 s. Edges ping every 15 s.
	Idle time.Duration
	// Patience is how long to go on without a sign of life from any edge. 0: 2
	// minutes; negative: for ever.
	Patience time.Duration
	// MinDelay and MaxDelay bound the wait between two rounds over all edges,
	// which doubles from one to the next. 0: 250 ms and 10 s. A `retry:` of the
	// server raises MinDelay.
	MinDelay, MaxDelay time.Duration
	// MaxMessage bounds one message of a stream in bytes. 0: 32 MiB.
	MaxMessage int
	// OnRetry, if set, hears of every failure that is followed by another try.
	OnRetry func(cause error, wait time.Duration)

	edge    atomic.Int32 // index of the edge to begin with: the last that served
	reached atomic.Bool  // one has served: its address is right
}

// edges returns the base URLs in a fixed order, without trailing slash.
func (c *Client) edges() ([]string, error) {
	bases := c.Fallbacks
	if c.BaseURL != "" || len(bases) == 0 {
		bases = append([]string{c.BaseURL}, bases...)
	}
	out := make([]string, len(bases))
	for i, base := range bases {
		if base == "" {
			base = DefaultBaseURL
		}
		u, err := url.Parse(base)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return nil, fmt.Errorf("server address %q: expected http://host:port or https://host", base)
		}
		out[i] = strings.TrimRight(base, "/")
	}
	return out, nil
}

// Resolve makes an absolute URL of one that an event carries, such as an
// artifact's. It points at the edge that answered last.
func (c *Client) Resolve(ref string) string {
	edges, err := c.edges()
	if err != nil || !strings.HasPrefix(ref, "/") {
		return ref
	}
	return edges[int(c.edge.Load())%len(edges)] + ref
}

// A request is what to ask of whichever edge is up. All of them may be repeated:
// those that start something carry an idempotency key.
type request struct {
	method, path string // path with query
	accept       string
	body         []byte // JSON, nil for none
	header       http.Header
	idle         time.Duration // 0: Client.Idle
}

func (r request) to(ctx context.Context, edge, key string) (*http.Request, error) {
	var body io.Reader
	if r.body != nil {
		body = bytes.NewReader(r.body)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, edge+r.path, body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", r.method, edge+r.path, err)
	}
	for name, values := range r.header {
		req.Header[name] = values
	}
	req.Header.Set("Accept", r.accept)
	req.Header.Set("Accept-Encoding", "identity") // a compressor on the way would hold events back
	req.Header.Set("User-Agent", "runlog-go")
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	return req, nil
}

// send asks one edge once. Any 2xx or 206 is returned with its body open; any
// other answer is an *Error.
func (c *Client) send(ctx context.Context, edge string, r request) (*http.Response, error) {
	idle := cmp.Or(r.idle, c.Idle, 45*time.Second)
	ctx, watch := newWatch(ctx, idle)
	req, err := r.to(ctx, edge, c.Key)
	if err != nil {
		watch.end()
		return nil, permanent{err}
	}
	hc := c.HTTP
	if hc == nil {
		hc = http.DefaultClient
	}
	watch.start()
	resp, err := hc.Do(req)
	watch.pause()
	if err != nil {
		defer watch.end()
		return nil, watch.explain(err)
	}
	resp.Body = &watchedBody{resp.Body, watch}
	if resp.StatusCode/100 != 2 {
		defer resp.Body.Close()
		return nil, readError(resp)
	}
	return resp, nil
}

// call asks until there is an answer and decodes it into out.
func (c *Client) call(ctx context.Context, r request, out any) error {
	if r.accept == "" {
		r.accept = "application/json"
	}
	p, err := c.pursue()
	if err != nil {
		return err
	}
	for {
		err := c.callOnce(ctx, p.edge(), r, out)
		if err == nil {
			p.heard()
			return nil
		}
		if err := p.again(ctx, err); err != nil {
			return err
		}
	}
}

func (c *Client) callOnce(ctx context.Context, edge string, r request, out any) error {
	resp, err := c.send(ctx, edge, r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil && resp.StatusCode == http.StatusNoContent {
		return nil
	}
	if err := wantType(resp, "application/json"); err != nil {
		return err
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("read answer of %s: %w", edge, err)
	}
	if err := json.Unmarshal(body, out); err != nil {
		return permanent{fmt.Errorf("answer of %s%s: %w", edge, r.path, err)}
	}
	return nil
}
