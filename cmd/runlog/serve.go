package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/runlog-dev/runlog/artifacts"
	"github.com/runlog-dev/runlog/edge"
	"github.com/runlog-dev/runlog/recorder"
	"github.com/runlog-dev/runlog/worker"
	"github.com/runlog-dev/runlog/worker/agent"
	"github.com/runlog-dev/runlog/worker/agents"
	"github.com/runlog-dev/runlog/worker/redact"
)

func edgeCommand(ctx context.Context, args []string) error {
	s, err := parse("edge", args, edgeSettings, storeSettings)
	if err != nil {
		return err
	}
	st, err := s.openAs(ctx, "edge")
	if err != nil {
		return err
	}
	if err := s.fits(ctx, st); err != nil {
		return errors.Join(err, st.close())
	}
	ln, err := net.Listen("tcp", s.listen)
	if err != nil {
		return err
	}
	spendOnSpeed()
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return tidyWhenQuiet(gctx) })
	g.Go(func() error { return s.guard(gctx, st) })
	g.Go(func() error { return s.serveEdge(gctx, st, ln) })
	g.Go(func() error { return s.admin(gctx, st.metrics, func() error { return st.log.Ping(gctx) }) })
	return errors.Join(g.Wait(), st.close())
}

// serveEdge runs an edge until ctx ends.
func (s *settings) serveEdge(ctx context.Context, st *stores, ln net.Listener) error {
	opts, err := s.edgeOptions()
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	if opts.Memory > 0 {
		s.log.Info("memory is limited", "bytes", opts.Memory)
	}
	if opts.MaxConns < s.edge.MaxConns {
		s.log.Warn("connections are limited by the files that the process may open: raise that (ulimit -n, LimitNOFILE)", "connections", opts.MaxConns)
	}
	srv := edge.New(edge.Deps{Log: st.log, Artifacts: st.artifacts, Catalog: st.catalog, Metrics: st.metrics, Logger: s.log}, opts)
	return srv.Run(ctx, ln)
}

// edgeOptions are the settings of an edge, as far as this process can bear them.
func (s *settings) edgeOptions() (o edge.Options, err error) {
	o = s.edge
	o.SocketPing, o.Origins = o.Stream.Ping, list(s.origins)
	o.MaxConns, o.Memory = limitConns(o.MaxConns, openFiles()), limitMemory(o.Memory)
	if o.TLS, err = s.tlsConfig(); err != nil {
		return o, err
	}
	o.TrustedProxies, err = prefixes(s.proxies)
	return o, err
}

// list reads values that are separated by commas.
func list(text string) (values []string) {
	for v := range strings.SplitSeq(text, ",") {
		if v = strings.TrimSpace(v); v != "" {
			values = append(values, v)
		}
	}
	return values
}

func workerCommand(ctx context.Context, args []string) error {
	s, err := parse("worker", args, workerSettings, storeSettings)
	if err != nil {
		return err
	}
	st, err := s.openAs(ctx, "worker")
	if err != nil {
		return err
	}
	if err := s.fits(ctx, st); err != nil {
		return errors.Join(err, st.close())
	}
	a, err := s.buildAgents()
	if err != nil {
		return errors.Join(err, st.close())
	}
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.guard(gctx, st) })
	w := s.newWorker(st, a, false, nil)
	g.Go(func() error { return s.serveWorker(gctx, st, a, w) })
	g.Go(func() error {
		return s.admin(gctx, st.metrics, func() error { return errors.Join(w.Ready(), st.log.Ping(gctx)) })
	})
	return errors.Join(g.Wait(), st.close())
}

// An ensemble is what a worker runs: agents, and what keeps their secrets.
type ensemble struct {
	agents   map[string]*agent.Agent
	redactor *redact.Redactor
}

func (e *ensemble) close() {
	for _, a := range e.agents {
		_ = a.Close()
	}
}

// newWorker makes a worker; ready, if not nil, is called when runs can come.
func (s *settings) newWorker(st *stores, e *ensemble, exclusive bool, ready func()) *worker.Worker {
	return worker.New(st.log, st.artifacts, e.agents, worker.Options{
		Slots: s.slots, PerTenant: s.tenantSlots, Grace: s.grace, Elsewhere: s.elsewhere, Redactor: e.redactor, Exclusive: exclusive,
		Logger: s.redacted(e.redactor), Observe: worker.Metrics(st.metrics), Ready: ready,
	})
}

// serveWorker runs a worker and a recorder until ctx ends.
func (s *settings) serveWorker(ctx context.Context, st *stores, e *ensemble, w *worker.Worker) error {
	defer e.close()
	r := recorder.New(st.log, st.catalog, recorder.Options{Log: s.log, Observe: recorder.Metrics(st.metrics)})
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return w.Run(gctx) })
	g.Go(func() error { return r.Run(gctx) })
	g.Go(func() error { s.sweep(gctx, st.artifacts); return nil })
	return g.Wait()
}

// sweepEvery and abandoned: what a lost worker began to write is removed when
// nobody can be writing it any more.
const (
	sweepEvery = time.Hour
	abandoned  = 24 * time.Hour
)

// sweep removes abandoned artifacts now and then until ctx ends. Several
// processes may do so.
func (s *settings) sweep(ctx context.Context, store artifacts.Store) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		if n, err := store.Sweep(ctx, abandoned); err != nil && ctx.Err() == nil {
			s.log.Warn("abandoned artifacts stay", "err", err)
		} else if n > 0 {
			s.log.Info("abandoned artifacts removed", "count", n)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// buildAgents loads all agents; those that are wrong are reported and left out.
func (s *settings) buildAgents() (*ensemble, error) {
	secrets := redact.NewSecrets(nil)
	e := &ensemble{map[string]*agent.Agent{}, secrets.Redactor(redact.Options{})} // before any secret is resolved
	fsys, dir := s.agentFiles()
	list, err := agents.Load(fsys, dir)
	report := func(err error) { fmt.Fprintln(os.Stderr, "runlog: agent left out:", err) }
	if err != nil {
		report(err)
	}
	self, _ := os.Executable()
	for _, d := range list {
		a, err := agents.Build(d, agents.Options{Secrets: secrets, Self: self, Logger: s.redacted(e.redactor)})
		if err != nil {
			report(err)
			continue
		}
		e.agents[d.Name] = a
	}
	if len(e.agents) == 0 {
		return nil, fmt.Errorf("no agent in %s can run: see docs/agents.md for a file to begin with", dir)
	}
	return e, nil
}
