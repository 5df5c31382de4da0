package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/runlog-dev/runlog/artifacts"
	"github.com/runlog-dev/runlog/catalog"
	"github.com/runlog-dev/runlog/eventlog"
)

// stores are what every server process stands on.
type stores struct {
	nc        *nats.Conn
	log       *eventlog.Log
	artifacts artifacts.Store
	catalog   *catalog.DB
	metrics   *prometheus.Registry
}

// open brings up the stores on a connection; it closes nothing on failure, the
// process ends.
func (s *settings) open(ctx context.Context, nc *nats.Conn, migrate bool) (*stores, error) {
	st := &stores{nc: nc, metrics: prometheus.NewRegistry()}
	st.metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	var err error
	if err := s.makeDirs(); err != nil {
		return nil, err
	}
	if st.artifacts, err = artifacts.Open(ctx, s.artifactsURL, artifacts.Options{}); err != nil {
		return nil, err
	}
	if st.catalog, err = s.openCatalog(ctx, migrate); err != nil {
		return nil, err
	}
	st.log, err = eventlog.Open(ctx, nc, eventlog.Options{
		Partitions: s.partitions, Replicas: s.replicas, Lease: s.lease, Logger: s.log,
		Blobs: snapshots{st.artifacts}, Observe: eventlog.Metrics(st.metrics), Exclusive: s.data != "",
	})
	return st, err
}

// openAs connects to the cluster and brings up the stores of an installation.
func (s *settings) openAs(ctx context.Context, name string) (*stores, error) {
	nc, err := s.connect(name)
	if err != nil {
		return nil, err
	}
	return s.open(ctx, nc, false)
}

// openCatalog opens the catalog. One that is a file of this machine has no operator
// who migrates it: whoever opens it does.
func (s *settings) openCatalog(ctx context.Context, migrate bool) (*catalog.DB, error) {
	migrate = migrate || strings.HasPrefix(s.catalogURL, "sqlite:")
	return catalog.Open(ctx, s.catalogURL, catalog.Options{Migrate: migrate, Log: s.log})
}

// makeDirs makes the directories that local stores are in.
func (s *settings) makeDirs() error {
	var dirs []string
	if file, ok := strings.CutPrefix(s.catalogURL, "sqlite:"); ok {
		dirs = append(dirs, filepath.Dir(file))
	}
	if dir, ok := strings.CutPrefix(s.artifactsURL, "dir:"); ok {
		dirs = append(dirs, dir)
	}
	for _, d := range dirs {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return fmt.Errorf("make directory of a store: %w", err)
		}
	}
	return nil
}

func (st *stores) close() error {
	st.nc.Close()
	return errors.Join(st.artifacts.Close(), st.catalog.Close())
}

// connect dials the cluster.
func (s *settings) connect(name string) (*nats.Conn, error) {
	return eventlog.Connect(s.natsURL, name, eventlog.Attentive(s.lease))
}

// snapshots keeps the folds that are too large for JetStream beside the
// artifacts, under a tenant name that no tenant can have.
type snapshots struct{ store artifacts.Store }

const snapshotTenant = "~snapshots"

func snapshotKey(name string) artifacts.Key {
	return artifacts.Key{Tenant: snapshotTenant, ID: strings.ReplaceAll(url.PathEscape(name), "%", "=")}
}

func (s snapshots) Put(ctx context.Context, name string, data []byte) error {
	w, err := s.store.Create(ctx, snapshotKey(name), artifacts.Meta{Name: "snapshot", MediaType: "application/zstd"})
	if err != nil {
		return err
	}
	defer w.Abort()
	if _, err := w.Write(data); err != nil {
		return err
	}
	_, err = w.Commit(ctx)
	return err
}

func (s snapshots) Get(ctx context.Context, name string) ([]byte, error) {
	o, err := s.store.Open(ctx, snapshotKey(name))
	if errors.Is(err, artifacts.ErrNotFound) {
		err = eventlog.ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	defer o.Close()
	return io.ReadAll(o)
}

func (s snapshots) Delete(ctx context.Context, name string) error {
	return s.store.Delete(ctx, snapshotKey(name))
}

// admin serves metrics and profiles until ctx ends; nothing if no address is set.
func (s *settings) admin(ctx context.Context, reg *prometheus.Registry, ready func() error) error {
	if s.adminListen == "" {
		<-ctx.Done()
		return nil
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	ln, err := net.Listen("tcp", s.adminListen)
	if err != nil {
		return fmt.Errorf("admin listener: %w", err)
	}
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("admin listener: %w", err)
	}
	return nil
}
