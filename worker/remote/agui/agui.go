// Package agui asks agents that speak AG-UI over HTTP: those of LangGraph, CrewAI,
// Mastra, ADK and so on, or another runlog. Each leg of a run is one POST of a
// RunAgentInput, built from the log; the events of the answer are told as they
// come. An answer is whole with RUN_FINISHED, not with the end of the stream.
package agui

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/internal/wire"
	"github.com/runlog-dev/runlog/worker/model"
	"github.com/runlog-dev/runlog/worker/remote"
)

// Protocol is the version that requests name.
const Protocol = "1.0"

// Options of a server. URL is needed.
type Options struct {
	URL     string            // one agent's; nothing is appended, redirects are not followed
	Headers map[string]string // sent with every request
	// Protocol is what requests name as protocolVersion; empty: Protocol, "none":
	// they name none, for servers that refuse members they do not know.
	Protocol  string
	Forwarded []byte        // JSON, forwardedProps
	Context   []Context     // what the agent is told besides
	Start     time.Duration // to the beginning of the answer; 0: 5 min
	Idle      time.Duration // between two reads of it; 0: 2 min
}

// A Context is something that an agent is told besides the conversation.
type Context struct {
	Description string `json:"description"`
	Value       string `json:"value"`
}

// Check says what is wrong with the options.
func (o Options) Check() error {
	u, err := url.Parse(o.URL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return errors.New("agui.url is not of the form http(s)://host/path")
	}
	return nil
}

// An Agent is asked over HTTP. It is safe for concurrent use.
type Agent struct {
	opt    Options
	client *http.Client
}

// New returns the agent of checked options.
func New(o Options) *Agent {
	if o.Start <= 0 {
		o.Start = 5 * time.Minute
	}
	if o.Idle <= 0 {
		o.Idle = 2 * time.Minute
	}
	o.Protocol = cmp.Or(o.Protocol, Protocol)
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DisableCompression = true // what is compressed comes late
	return &Agent{o, &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// Close lets go of idle connections.
func (a *Agent) Close() error {
	a.client.CloseIdleConnections()
	return nil
}

var errSilent = errors.New("silent")

// Run asks the server and tells what it answers. When ctx ends its socket is
// closed.
func (a *Agent) Run(ctx context.Context, task remote.Task, say func(remote.Saying) error) error {
	parent := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := time.AfterFunc(a.opt.Start, func() { cancel(errSilent) })
	defer watch.Stop()

	res, err := a.ask(ctx, task)
	if err != nil {
		return a.broken(parent, ctx, err, false)
	}
	defer res.Body.Close()
	if err := a.refused(res); err != nil {
		return err
	}
	watch.Reset(a.opt.Idle)
	n := newNarrator(task, func(s remote.Saying) error {
		watch.Stop() // while the log takes its time
		defer watch.Reset(a.opt.Idle)
		return say(s)
	})
	body := watched{res.Body, func() { watch.Reset(a.opt.Idle) }}
	for data, err := range eventsOf(body) {
		if err != nil {
			return a.broken(parent, ctx, err, true)
		}
		if err := n.take(data); err != nil || n.finished {
			return err
		}
	}
	return a.broken(parent, ctx, io.ErrUnexpectedEOF, true)
}

// watched tells of every read that brought something.
type watched struct {
	io.Reader
	alive func()
}

func (w watched) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if n > 0 {
		w.alive()
	}
	return n, err
}

func (a *Agent) ask(ctx context.Context, task remote.Task) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.opt.URL, bytes.NewReader(a.input(task)))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Idempotency-Key", task.Key)
	for k, v := range a.opt.Headers {
		req.Header.Set(k, v)
	}
	return a.client.Do(req)
}

// broken is the failure of a stream, begun or not, that did not come to its end.
func (a *Agent) broken(parent, ctx context.Context, err error, begun bool) error {
	err = wire.Plain(err)
	var known *model.Error
	switch {
	case parent.Err() != nil:
		return context.Cause(parent)
	case errors.As(err, &known):
		return known
	case errors.Is(context.Cause(ctx), errSilent) && begun:
		return &model.Error{Code: event.CodeModelTimeout, Retryable: true, Message: fmt.Sprintf("the agent's server sent nothing for %s in the middle of its answer", a.opt.Idle)}
	case errors.Is(context.Cause(ctx), errSilent):
		return &model.Error{Code: event.CodeModelTimeout, Retryable: true, Message: fmt.Sprintf("the agent's server did not begin to answer within %s", a.opt.Start)}
	case !begun:
		return &model.Error{Code: event.CodeUnavailable, Retryable: true, Err: err, Message: "no connection to the agent's server at " + a.host() + ": check agui.url, and that it runs"}
	}
	return &model.Error{Code: event.CodeModelTruncated, Retryable: true, Err: err, Message: "the agent's server ended its answer without RUN_FINISHED: it is not whole"}
}

func (a *Agent) host() string {
	u, _ := url.Parse(a.opt.URL)
	return u.Host
}

// refused makes an error of an answer that is not a stream of events.
func (a *Agent) refused(res *http.Response) error {
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if res.StatusCode == http.StatusOK && kind == "text/event-stream" {
		return nil
	}
	said, _ := io.ReadAll(io.LimitReader(res.Body, 4<<10))
	e := &model.Error{Code: event.CodeModelError, Message: fmt.Sprintf("the agent's server answered %d", res.StatusCode)}
	switch s := res.StatusCode; {
	case s == http.StatusOK:
		e.Message += fmt.Sprintf(" with %q, not with text/event-stream: check agui.url", kind)
	case s >= 300 && s < 400:
		e.Message += ": redirects are not followed, set agui.url to where it leads"
	case wire.Passes(s):
		e.Code, e.Retryable, e.RetryAfter = event.CodeUnavailable, true, wire.RetryAfter(res.Header, time.Now())
	case s == http.StatusUnauthorized, s == http.StatusForbidden:
		e.Message += ": it does not accept the credentials, check agui.headers"
	case s == http.StatusNotFound:
		e.Message += ": check agui.url"
	}
	if text := wire.Clip(string(said)); text != "" && !strings.HasPrefix(text, "<") {
		e.Message += "; it says: " + text
	}
	return e
}
