// Package mcp offers the tools of an MCP server, which runs as a child process
// (stdio) or elsewhere (streamable HTTP).
//
// A Server connects when it is first needed and again after its connection was
// lost; a call that was running then fails, the next one finds a new
// connection. Every call has a deadline, since a server may never answer.
package mcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/runlog-dev/runlog/worker/tool"
)

// Options describe one server. Name and either Command or URL are needed.
type Options struct {
	// Name stands for the server in errors, logs, and in the names of tools
	// that another server has too.
	Name string

	// Command starts a server that speaks over its standard input and output.
	// Its environment is PATH, HOME and Env, nothing else of the worker's.
	Command []string
	Env     map[string]string
	Dir     string // working directory; the worker's if empty

	// URL is the endpoint of a server that speaks streamable HTTP. Headers go
	// with every request to that host, and to no other.
	URL     string
	Headers map[string]string

	Allow   []string      // names of tools that may be used; nil: all
	Prefix  string        // put before the name of each tool
	OnCrash tool.OnCrash  // instead of what the server's annotations say
	Timeout time.Duration // of a call; 0: tool.DefaultTimeout
	Retries int           // of a call; 0: tool.DefaultRetries

	ConnectTimeout time.Duration // start and handshake; 0: 30 s
	Grace          time.Duration // from SIGTERM to SIGKILL; 0: 2 s
	MaxFrame       int           // bytes of one message of the server; 0: 24 MiB

	Log *slog.Logger // nil: none
}

// Check says what is wrong with the options before anything is started.
func (o Options) Check() error {
	switch {
	case o.Name == "":
		return errors.New("mcp server without a name: give it one, tools and errors are told apart by it")
	case len(o.Command) == 0 && o.URL == "":
		return fmt.Errorf("mcp server %q: give a command to start or a url to connect to", o.Name)
	case len(o.Command) > 0 && o.URL != "":
		return fmt.Errorf("mcp server %q: give a command or a url, not both", o.Name)
	case len(o.Command) > 0 && o.Command[0] == "":
		return fmt.Errorf("mcp server %q: the first word of its command is empty", o.Name)
	case o.OnCrash != "" && o.OnCrash != tool.Retry && o.OnCrash != tool.Ask && o.OnCrash != tool.Fail:
		return fmt.Errorf("mcp server %q: on_crash is %q; give retry, ask or fail", o.Name, o.OnCrash)
	}
	return o.checkURL()
}

func (o Options) checkURL() error {
	if o.URL == "" {
		return nil
	}
	u, err := url.Parse(o.URL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return fmt.Errorf("mcp server %q: its url is not of the form http(s)://host/path", o.Name)
	}
	return nil
}

func (o Options) withDefaults() Options {
	if o.Timeout <= 0 {
		o.Timeout = tool.DefaultTimeout
	}
	if o.ConnectTimeout <= 0 {
		o.ConnectTimeout = 30 * time.Second
	}
	if o.Grace <= 0 {
		o.Grace = 2 * time.Second
	}
	if o.MaxFrame <= 0 {
		o.MaxFrame = 24 << 20
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Log = o.Log.With("mcp", o.Name)
	return o
}

// A Server is a tool.Source. It is safe for concurrent use.
type Server struct {
	opt     Options
	log     *slog.Logger
	reports reports

	web    *http.Transport // for all links over HTTP
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // dials, and watchers of links
	tokens atomic.Int64

	stuckAfter time.Duration // how long a cancelled call may take to end

	mu       sync.Mutex // guards what follows
	closed   bool
	link     *link // the connection in use; nil: none
	dialing  *dial // nil: no attempt under way
	failures int   // lost or refused connections since the last answered call
	lastErr  error // of the last failed attempt
	nextTry  time.Time
}

// Open prepares a server. It starts nothing: the first Tools or Call does.
func Open(opt Options) *Server {
	opt = opt.withDefaults()
	s := &Server{opt: opt, log: opt.Log, web: newWeb(), stuckAfter: 5 * time.Second}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Tools lists what the server offers now, in its order. It connects if need be
// and asks again after the server said that its list has changed.
func (s *Server) Tools(ctx context.Context) ([]tool.Tool, error) {
	l, err := s.acquire(ctx)
	if err != nil {
		return nil, s.missing(ctx, err)
	}
	defer s.release(l)
	bounded, cancel := context.WithTimeout(ctx, s.opt.ConnectTimeout)
	defer cancel()
	tools, err := l.list(bounded)
	if err != nil {
		return nil, s.missing(ctx, fmt.Errorf("list its tools: %w", plain(err)))
	}
	return tools, nil
}

// Close ends the running calls with tool.ErrUnavailable and the connection, and
// a child process with its whole process group. It returns when they are gone.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	l := s.link
	s.link = nil
	s.mu.Unlock()
	s.cancel()
	if l != nil {
		l.close()
	}
	s.wg.Wait()
	s.web.CloseIdleConnections()
	return nil
}

// missing makes an error of the caller's: its own context's, or unavailable.
func (s *Server) missing(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return fmt.Errorf("mcp server %q: %w", s.opt.Name, err)
	}
	return fmt.Errorf("mcp server %q: %w: %w", s.opt.Name, tool.ErrUnavailable, err)
}

// plain takes the address out of an HTTP client's error: it may carry a key.
func plain(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
