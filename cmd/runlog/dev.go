package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/runlog-dev/runlog/eventlog"
	"github.com/runlog-dev/runlog/recorder"
)

// dev runs the whole platform in this process: a NATS server without a port,
// SQLite, a directory of artifacts, an edge and a worker.
func dev(ctx context.Context, args []string) error {
	s, err := parse("dev", args, devSettings, edgeSettings, workerSettings)
	if err != nil {
		return err
	}
	if s.syncMode != "always" && s.syncMode != "interval" {
		return fmt.Errorf("%w: --sync %q is neither interval nor always", errUsage, s.syncMode)
	}
	if s.data, err = filepath.Abs(s.data); err != nil {
		return err
	}
	s.partitions, s.replicas = 1, 1
	s.catalogURL = "sqlite:" + filepath.Join(s.data, "catalog.db")
	s.artifactsURL = "dir:" + filepath.Join(s.data, "artifacts")
	if err := os.MkdirAll(s.data, 0o700); err != nil {
		return err
	}
	srv, err := eventlog.StartEmbedded(filepath.Join(s.data, "jetstream"), s.syncMode == "always")
	if err != nil {
		return err
	}
	return errors.Join(s.runDev(ctx, srv), srv.Close())
}

func (s *settings) runDev(ctx context.Context, srv *eventlog.Embedded) error {
	nc, err := srv.Connect()
	if err != nil {
		return err
	}
	st, err := s.open(ctx, nc, true)
	if err != nil {
		return err
	}
	if err := s.fits(ctx, st); errors.Is(err, recorder.ErrAhead) { // nobody else can have the log
		err = s.restored(ctx, st)
		if err != nil {
			return errors.Join(err, st.close())
		}
	}
	ln, err := net.Listen("tcp", s.listen)
	if err != nil {
		return errors.Join(fmt.Errorf("%w: stop what listens there or choose another --listen", err), st.close())
	}
	e, err := s.buildAgents()
	if err != nil {
		return errors.Join(err, st.close())
	}
	g, gctx := errgroup.WithContext(ctx)
	ready := make(chan struct{})
	g.Go(func() error { return s.serveWorker(gctx, st, e, s.newWorker(st, e, true, func() { close(ready) })) })
	select {
	case <-ready: // before that, requests wait in the listener: nobody knows the agents yet
	case <-gctx.Done():
		return errors.Join(g.Wait(), ln.Close(), st.close())
	}
	g.Go(func() error { return s.serveEdge(gctx, st, ln) })
	g.Go(func() error { return s.admin(gctx, st.metrics, func() error { return st.log.Ping(gctx) }) })
	s.greet(ln.Addr().String(), e)
	return errors.Join(g.Wait(), st.close())
}

func (s *settings) greet(addr string, e *ensemble) {
	_, dir := s.agentFiles()
	agent := slices.Min(slices.Collect(maps.Keys(e.agents)))
	if e.agents["demo"] != nil {
		agent = "demo"
	}
	fmt.Printf(`runlog is up on http://%[1]s
  data    %[2]s
  agents  %[3]s

Try it:
  curl -N -H 'Accept: text/event-stream' -d '{"agent":"%[4]s","input":"Count to three and write it down."}' http://%[1]s/v1/runs
  runlog run --agent %[4]s "Count to three and write it down."

Ctrl-C stops it; started again on the same data, unfinished runs go on.
`, addr, s.data, dir, agent)
}
