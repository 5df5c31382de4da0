// Package edge is runlog's HTTP face: it takes requests as durable commands and
// serves sessions' logs from any position, on any node. It holds nothing that a
// client needs: all of its state is cache.
package edge

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/runlog-dev/runlog/artifacts"
	"github.com/runlog-dev/runlog/catalog"
	"github.com/runlog-dev/runlog/edge/auth"
	"github.com/runlog-dev/runlog/edge/stream"
	"github.com/runlog-dev/runlog/eventlog"
)

// Deps are the stores that an edge serves from.
type Deps struct {
	Log       *eventlog.Log
	Live      *eventlog.Live  // run by the caller; nil: the server has one of its own
	Artifacts artifacts.Store // nil: there are none
	Catalog   *catalog.DB     // nil: no keys, no searches
	Metrics   prometheus.Registerer
	Logger    *slog.Logger
}

// Options of a Server; the zero value works.
type Options struct {
	Stream stream.Options
	Auth   auth.Options

	// Loopback says that only this machine can reach Handler; Run finds out by
	// its listener.
	Loopback bool
	// DefaultAgent serves requests that name none. Empty: the only agent there
	// is, or the one called demo.
	DefaultAgent string
	// Origins of web pages that may call; "*" for all. Empty: all where callers
	// need a key, and pages of this machine where they do not.
	Origins []string

	MaxBody       int64 // bytes of a JSON body, default 256 KiB
	MaxUpload     int64 // bytes of an uploaded artifact, default 256 MiB
	MaxStreams    int   // open at once, default 50,000
	MaxConns      int   // connections at once, default 60,000
	TenantRate    int   // requests a minute of one tenant; default 0: no limit
	TenantStreams int   // streams of one tenant open at once; default 0: no limit

	SocketPing  time.Duration // between pings of a WebSocket, default 20 s
	MaxWait     time.Duration // that a request may wait for a run's end, default 5 min
	DrainDelay  time.Duration // between not ready and the end of streams, so that proxies notice; default 0
	DrainPeriod time.Duration // for other requests to finish, default 10 s

	// TLS, if set, has the certificate that Run serves with, HTTP/2 included.
	// Without it HTTP/2 is served to those that know (h2c).
	TLS *tls.Config
}

func (o *Options) setDefaults() {
	o.MaxBody = orDefault(o.MaxBody, 256<<10)
	o.MaxUpload = orDefault(o.MaxUpload, 256<<20)
	o.MaxStreams = orDefault(o.MaxStreams, 50_000)
	o.MaxConns = orDefault(o.MaxConns, 60_000)
	o.SocketPing = orDefault(o.SocketPing, socketPing)
	o.MaxWait = orDefault(o.MaxWait, 5*time.Minute)
	o.DrainPeriod = orDefault(o.DrainPeriod, 10*time.Second)
}

func orDefault[T int | int64 | time.Duration](v, def T) T {
	if v == 0 {
		return def
	}
	return v
}

// A Server is an edge. New starts nothing.
type Server struct {
	Deps
	opts    Options
	ownLive bool
	hub     *stream.Hub
	gate    *auth.Gate
	agents  agentCache
	metrics *metrics
	secret  lazySecret
	places  places
	quotas  quotas
	handler http.Handler
	sockets sync.WaitGroup // WebSockets and their commands, which no http.Server waits for

	draining  atomic.Bool
	streams   atomic.Int64
	drain     context.Context // ended with errDraining when streams must go
	endStream context.CancelCauseFunc
}

// New puts an edge together.
func New(d Deps, o Options) *Server {
	o.setDefaults()
	s := &Server{Deps: d, opts: o}
	if s.Logger == nil {
		s.Logger = slog.New(slog.DiscardHandler)
	}
	if s.Live == nil {
		s.Live, s.ownLive = d.Log.NewLive(), true
	}
	s.metrics = newMetrics(d.Metrics)
	if o.Stream.Logger == nil {
		o.Stream.Logger = s.Logger
	}
	o.Stream.Observe = s.metrics.observer()
	s.hub = stream.New(d.Log, s.Live, o.Stream)
	s.quotas.rate, s.quotas.streams = o.TenantRate, o.TenantStreams
	s.secret.read = s.Log.Secret
	o.Auth.Secret = s.secret.get
	s.gate = auth.NewGate(s.keys(), o.Auth)
	s.gate.SetLoopback(o.Loopback)
	s.drain, s.endStream = context.WithCancelCause(context.Background())
	s.handler = s.routes()
	return s
}

// keys keeps a nil catalog from becoming an interface that is not nil.
func (s *Server) keys() auth.Keys {
	if s.Catalog == nil {
		return nil
	}
	return s.Catalog
}

// Handler serves all routes. It needs Live to run; Run sees to it.
func (s *Server) Handler() http.Handler { return s.handler }

// Run serves until ctx ends and everything has drained. It refuses a listener
// that others can reach as long as there are no keys.
func (s *Server) Run(ctx context.Context, ln net.Listener) error {
	if err := s.gate.Listen(ctx, isLoopback(ln.Addr())); err != nil {
		return errors.Join(fmt.Errorf("serve on %s: %w", ln.Addr(), err), ln.Close())
	}
	srv := s.httpServer()
	group, work := errgroup.WithContext(context.WithoutCancel(ctx))
	live, stopLive := context.WithCancel(work)
	if s.ownLive {
		group.Go(func() error { return ignore(s.Live.Run(live), context.Canceled) })
	}
	group.Go(func() error {
		return ignore(s.accept(srv, &limitListener{Listener: ln, max: int64(s.opts.MaxConns)}), http.ErrServerClosed)
	})
	group.Go(func() error {
		defer stopLive()
		select {
		case <-ctx.Done():
		case <-work.Done(): // Serve failed
		}
		return s.shutDown(srv)
	})
	err := group.Wait()
	stopLive()
	s.hub.Close()
	if err != nil {
		return fmt.Errorf("serve on %s: %w", ln.Addr(), err)
	}
	return nil
}

func (s *Server) httpServer() *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
		Protocols:         protocols,
		ErrorLog:          slog.NewLogLogger(s.Logger.Handler(), slog.LevelDebug),
	}
}

func (s *Server) accept(srv *http.Server, ln net.Listener) error {
	if s.opts.TLS == nil {
		return srv.Serve(ln)
	}
	srv.TLSConfig = s.opts.TLS.Clone()
	return srv.ServeTLS(ln, "", "")
}

// shutDown drains from the inside out: not ready, streams aborted so that their
// clients go on elsewhere, then whatever is under way.
func (s *Server) shutDown(srv *http.Server) error {
	s.draining.Store(true)
	time.Sleep(s.opts.DrainDelay)
	s.endStream(errDraining)
	ctx, cancel := context.WithTimeout(context.Background(), s.opts.DrainPeriod)
	defer cancel()
	if err := srv.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("shut down: %w", err), srv.Close())
	}
	return s.awaitSockets(ctx)
}

// awaitSockets waits for WebSockets, which Shutdown knows nothing of.
func (s *Server) awaitSockets(ctx context.Context) error {
	done := make(chan struct{})
	go func() { s.sockets.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("shut down: WebSockets are still open: %w", ctx.Err())
	}
}

func ignore(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}

// isLoopback reports whether only this machine can connect.
func isLoopback(a net.Addr) bool {
	if a.Network() == "unix" {
		return true
	}
	ap, err := netip.ParseAddrPort(a.String())
	return err == nil && ap.Addr().Unmap().IsLoopback()
}

// A limitListener closes connections that are too many at once, rather than
// letting them wait unseen.
type limitListener struct {
	net.Listener
	max  int64
	open atomic.Int64
}

func (l *limitListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.open.Add(1) <= l.max {
			return &limitedConn{Conn: c, home: l}, nil
		}
		l.open.Add(-1)
		_ = c.Close()
	}
}

type limitedConn struct {
	net.Conn
	home   *limitListener
	closed atomic.Bool
}

func (c *limitedConn) Close() error {
	if !c.closed.Swap(true) {
		c.home.open.Add(-1)
	}
	return c.Conn.Close()
}
