// Package edge is runlog's HTTP face: it takes requests as durable commands and
// serves sessions' logs from any position, on any node. It holds nothing that a
// client needs: all of its state is cache.
package edge

import (
	"cmp"
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
	"github.com/runlog-dev/runlog/edge/room"
	"github.com/runlog-dev/runlog/edge/stream"
	"github.com/runlog-dev/runlog/eventlog"
)

// Deps are the stores that an edge serves from.
type Deps struct {
	Log       *eventlog.Log
	Artifacts artifacts.Store // nil: there are none
	Catalog   *catalog.DB     // nil: no keys, no searches
	Metrics   prometheus.Registerer
	Logger    *slog.Logger
}

// Options of a Server; the zero value works.
type Options struct {
	Stream stream.Options
	Auth   auth.Options

	// DefaultAgent serves requests that name none. Empty: the only agent there
	// is, or the one called demo.
	DefaultAgent string
	// Origins of web pages that may call; "*" for all. Empty: all where callers
	// need a key, and pages of this machine where they do not.
	Origins []string

	MaxBody       int64         // bytes of a JSON body, default 256 KiB
	MaxUpload     int64         // bytes of an uploaded artifact, default 256 MiB
	MaxHeader     int64         // bytes of a request's header, default 32 KiB
	HeaderTimeout time.Duration // for a request's header to come, default 10 s
	BodyTimeout   time.Duration // of silence in a body, and how far it may fall behind minPace (see paced), default 30 s

	MaxStreams     int            // open at once, default 50,000
	MaxConns       int            // connections at once, default 60,000
	Memory         int64          // bytes that the process may use: near them no streams are taken; default 0: no limit
	TenantRate     int            // requests a minute of one tenant; default 0: no limit
	TenantStreams  int            // streams of one tenant open at once; default 0: no limit
	AddressRate    int            // requests a minute of one address, or of one /64 of IPv6; default 0: no limit
	AddressStreams int            // streams of one address open at once; default 0: no limit
	AddressConns   int            // connections of one address at once; default 0: no limit
	TrustedProxies []netip.Prefix // whose X-Forwarded-For is believed, and whose connections AddressConns does not count

	SocketPing  time.Duration // between pings of a WebSocket, and of a silent connection of HTTP/2; default 20 s
	MaxWait     time.Duration // that a request may wait for a run's end, default 5 min
	DrainDelay  time.Duration // between not ready and the end of streams, so that proxies notice; default 0
	DrainRate   int           // streams ended a second, so that their clients do not come back all at once; default 1000
	DrainPeriod time.Duration // for the end of streams at most, and then for other requests to finish; default 10 s

	// TLS, if set, has the certificate that Run serves with, HTTP/2 included.
	// Without it HTTP/2 is served to those that know (h2c).
	TLS *tls.Config
}

// Defaults are the options that hold where none are given, for those who show them.
func Defaults() Options {
	o := Options{Stream: stream.Options{Ping: stream.DefaultPing, WriteTimeout: stream.DefaultWriteTimeout}}
	o.setDefaults()
	return o
}

func (o *Options) setDefaults() {
	o.MaxBody = cmp.Or(o.MaxBody, 256<<10)
	o.MaxUpload = cmp.Or(o.MaxUpload, 256<<20)
	o.MaxHeader = cmp.Or(o.MaxHeader, 32<<10)
	o.HeaderTimeout = cmp.Or(o.HeaderTimeout, 10*time.Second)
	o.BodyTimeout = cmp.Or(o.BodyTimeout, 30*time.Second)
	o.MaxStreams = cmp.Or(o.MaxStreams, 50_000)
	o.MaxConns = cmp.Or(o.MaxConns, 60_000)
	o.SocketPing = cmp.Or(o.SocketPing, socketPing)
	o.MaxWait = cmp.Or(o.MaxWait, 5*time.Minute)
	o.DrainRate = cmp.Or(o.DrainRate, 1000)
	o.DrainPeriod = cmp.Or(o.DrainPeriod, 10*time.Second)
}

// A Server is an edge. New starts nothing.
type Server struct {
	Deps
	opts      Options
	live      *eventlog.Live
	hub       *stream.Hub
	gate      *auth.Gate
	agents    agentCache
	metrics   *metrics
	secret    lazySecret
	places    places
	budget    room.Budget
	ledger    *room.Ledger // of the process, also the hub's
	bodies    room.Room
	handler   http.Handler
	comeback  *comeback      // set by Run
	takenOver sync.WaitGroup // connections, which no http.Server waits for: WebSockets with their commands, unsaid answers

	tenants   quotas
	addresses quotas

	openings  openings
	draining  atomic.Bool
	streams   atomic.Int64
	many      atomic.Int64            // sessions that streams of many follow
	drain     context.Context         // ends with errDraining when streams have to end
	endStream context.CancelCauseFunc // ends drain
	spread    atomic.Int64            // nanoseconds over which streams end; set before drain ends
}

// New puts an edge together. Deps.Log is required.
func New(d Deps, o Options) *Server {
	o.setDefaults()
	o.Stream.Budget.Ceiling = o.Memory
	o.Stream.Budget = o.Stream.Budget.Divide()
	if o.Memory > 0 {
		o.Stream.Ledger = room.NewLedger()
	}
	s := &Server{Deps: d, opts: o, live: d.Log.NewLive(), budget: o.Stream.Budget, ledger: o.Stream.Ledger}
	if s.Logger == nil {
		s.Logger = slog.New(slog.DiscardHandler)
	}
	s.metrics = newMetrics(d.Metrics)
	if o.Stream.Logger == nil {
		o.Stream.Logger = s.Logger
	}
	o.Stream.Observe = s.metrics.observer()
	s.hub = stream.New(d.Log, s.live, o.Stream)
	s.metrics.watch(d.Metrics, s.hub)
	s.bodies = room.Room{Most: s.budget.Bodies, Ledger: s.ledger, UpTo: s.budget.Requests}
	s.tenants = quotas{of: "tenant", rate: o.TenantRate, streams: o.TenantStreams}
	s.addresses = quotas{of: "address", rate: o.AddressRate, streams: o.AddressStreams}
	s.secret.read = s.Log.Secret
	o.Auth.Secret, o.Auth.Revoked, o.Auth.Logger = s.secret.get, s.endRevoked, s.Logger
	s.gate = auth.NewGate(s.keys(), o.Auth)
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

// Run serves until ctx ends and everything has drained, and closes the listener. It
// refuses a listener that other machines can reach as long as there are no keys.
func (s *Server) Run(ctx context.Context, ln net.Listener) error {
	if err := s.gate.Listen(ctx, isLoopback(ln.Addr())); err != nil {
		return errors.Join(fmt.Errorf("serve on %s: %w", ln.Addr(), err), ln.Close())
	}
	srv := s.httpServer()
	group, work := errgroup.WithContext(context.WithoutCancel(ctx))
	live, stopLive := context.WithCancel(work)
	for _, run := range []func(context.Context) error{s.live.Run, s.hub.Run, s.gate.Run} {
		group.Go(func() error { return ignore(run(live), context.Canceled) })
	}
	s.comeback = newComeback(ln.Addr())
	group.Go(func() error { return ignore(srv.Serve(s.comeback), http.ErrServerClosed) })
	group.Go(func() error {
		return ignore(s.accept(srv, s.limits(ln)), http.ErrServerClosed)
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
	srv := &http.Server{
		Handler:           s.handler,
		ConnContext:       withConn,
		ReadHeaderTimeout: s.opts.HeaderTimeout,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    int(s.opts.MaxHeader),
		Protocols:         protocols,
		// Whoever reads nothing of a whole connection, or has gone without a word, is found
		// out by no stream's deadline.
		HTTP2:    &http.HTTP2Config{WriteByteTimeout: s.hub.WriteTimeout(), SendPingTimeout: s.opts.SocketPing, PingTimeout: 2 * s.hub.WriteTimeout()},
		ErrorLog: slog.NewLogLogger(s.Logger.Handler(), slog.LevelDebug),
	}
	if s.opts.TLS != nil {
		srv.TLSConfig = s.opts.TLS.Clone() // before it serves anything: the first Serve adds HTTP/2 to it
	}
	return srv
}

func (s *Server) accept(srv *http.Server, ln net.Listener) error {
	if s.opts.TLS == nil {
		return srv.Serve(ln)
	}
	return srv.ServeTLS(ln, "", "")
}

// awaitTakenOver waits for connections that Shutdown knows nothing of.
func (s *Server) awaitTakenOver(ctx context.Context) error {
	done := make(chan struct{})
	go func() { s.takenOver.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("shut down: connections that were taken over are still open: %w", ctx.Err())
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
