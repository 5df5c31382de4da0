package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/runlog-dev/runlog/edge"
	"github.com/runlog-dev/runlog/edge/stream"
	"github.com/runlog-dev/runlog/examples"
	"github.com/runlog-dev/runlog/worker/redact"
)

// Settings of a server process, by flag or environment; the flag wins. Read
// here and nowhere else.
type settings struct {
	data, listen, adminListen, logLevel string
	natsURL, catalogURL, artifactsURL   string
	agents                              string
	partitions, replicas                int
	slots, tenantSlots                  int
	lease, grace, elsewhere             time.Duration
	tlsCert, tlsKey, origins, proxies   string
	edge                                edge.Options // but for what those four say
	syncMode                            string
	log                                 *slog.Logger
}

// A group of settings that a command takes.
type group func(*flag.FlagSet, *settings)

func parse(name string, args []string, groups ...group) (*settings, error) {
	s := &settings{}
	f := flag.NewFlagSet("runlog "+name, flag.ContinueOnError)
	for _, g := range append(groups, logSettings) {
		g(f, s)
	}
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil, err
		}
		return nil, fmt.Errorf("%w: %w", errUsage, err)
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("%w: %s takes no argument %q", errUsage, name, f.Arg(0))
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(s.logLevel)); err != nil {
		return nil, fmt.Errorf("%w: --log %q is none of debug, info, warn, error", errUsage, s.logLevel)
	}
	s.log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	return s, nil
}

func logSettings(f *flag.FlagSet, s *settings) {
	text(f, &s.logLevel, "log", "LOG", "warn", "debug, info, warn or error")
}

func storeSettings(f *flag.FlagSet, s *settings) {
	text(f, &s.natsURL, "nats", "NATS_URL", "nats://127.0.0.1:4222", "NATS servers, separated by commas")
	catalogSettings(f, s)
	text(f, &s.artifactsURL, "artifacts", "ARTIFACTS_URL", "dir:.runlog/artifacts", "s3://bucket?endpoint=… or dir:PATH")
	number(f, &s.partitions, "partitions", "PARTITIONS", 1, "log streams, fixed at the first start")
	number(f, &s.replicas, "replicas", "REPLICAS", 1, "copies of each stream (3 in a cluster)")
	processSettings(f, s)
}

// processSettings are those of every server process.
func processSettings(f *flag.FlagSet, s *settings) {
	span(f, &s.lease, "lease", "LEASE", 15*time.Second, "how long a silent worker keeps a session")
	text(f, &s.adminListen, "admin-listen", "ADMIN_LISTEN", "", "address of /metrics and /debug/pprof; empty: none")
}

func catalogSettings(f *flag.FlagSet, s *settings) {
	text(f, &s.catalogURL, "catalog", "CATALOG_URL", "sqlite:.runlog/catalog.db", "postgres://… or sqlite:FILE")
}

func edgeSettings(f *flag.FlagSet, s *settings) {
	text(f, &s.listen, "listen", "LISTEN", "127.0.0.1:8080", "address for clients; keys are needed beyond this machine")
	span(f, &s.edge.Stream.Ping, "ping", "PING", stream.DefaultPing, "pause between signs of life on a stream")
	text(f, &s.tlsCert, "tls-cert", "TLS_CERT", "", "certificate file; with it, HTTPS and HTTP/2")
	text(f, &s.tlsKey, "tls-key", "TLS_KEY", "", "file of its key")
	text(f, &s.origins, "origins", "ORIGINS", "", "origins of web pages that may call, separated by commas; * for all")
	span(f, &s.edge.DrainDelay, "drain-delay", "DRAIN_DELAY", 0, "between not ready and the end of streams")
	limitSettings(f, s)
}

func workerSettings(f *flag.FlagSet, s *settings) {
	text(f, &s.agents, "agents", "AGENTS", "", "directory of agent files; empty: ./agents, or the demo agent")
	number(f, &s.slots, "slots", "SLOTS", 64, "sessions at once")
	number(f, &s.tenantSlots, "tenant-slots", "TENANT_SLOTS", 0, "of them of one tenant; 0: no limit")
	span(f, &s.grace, "grace", "GRACE", 10*time.Second, "for running tools when the worker stops")
	span(f, &s.elsewhere, "elsewhere", "ELSEWHERE", 5*time.Minute, "for a run to find a worker that has its agent")
}

func devSettings(f *flag.FlagSet, s *settings) {
	text(f, &s.data, "data", "DATA", ".runlog", "directory of everything that is kept")
	text(f, &s.syncMode, "sync", "SYNC", "interval", "always: each append is on the disk before it is acknowledged")
	processSettings(f, s)
}

func env(name string) (value string, ok bool) { return os.LookupEnv("RUNLOG_" + name) }

func text(f *flag.FlagSet, p *string, name, variable, def, help string) {
	if v, ok := env(variable); ok {
		def = v
	}
	f.StringVar(p, name, def, help+" (RUNLOG_"+variable+")")
}

func number(f *flag.FlagSet, p *int, name, variable string, def int, help string) {
	read(f, p, name, variable, def, help, parseNumber, strconv.Itoa)
}

// size is a number of bytes, such as 256KiB, 1.5GiB or 1000.
func size(f *flag.FlagSet, p *int64, name, variable string, def int64, help string) {
	read(f, p, name, variable, def, help, parseSize, sizeText)
}

func span(f *flag.FlagSet, p *time.Duration, name, variable string, def time.Duration, help string) {
	read(f, p, name, variable, def, help, time.ParseDuration, time.Duration.String)
}

// read defines a setting that is parsed. A variable that cannot be is passed over, loudly: a
// server that stays away for a slip of the pen helps nobody.
func read[T any](f *flag.FlagSet, p *T, name, variable string, def T, help string, parse func(string) (T, error), show func(T) string) {
	f.Func(name, fmt.Sprintf("%s (RUNLOG_%s) (default %s)", help, variable, show(def)), func(v string) (err error) {
		*p, err = parse(v)
		return err
	})
	*p = def
	v, ok := env(variable)
	if !ok {
		return
	}
	if set, err := parse(v); err == nil {
		*p = set
	} else {
		fmt.Fprintf(os.Stderr, "runlog: RUNLOG_%s: %v, using %s\n", variable, err, show(def))
	}
}

func parseNumber(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, fmt.Errorf("%q is no number from 0 on", text)
	}
	return int(n), nil
}

// agentFiles is where agents are read from: the directory that was named,
// ./agents if it is there, else the demo agent.
func (s *settings) agentFiles() (fsys fs.FS, dir string) {
	if s.agents != "" {
		return os.DirFS(s.agents), s.agents
	}
	if info, err := os.Stat("agents"); err == nil && info.IsDir() {
		return os.DirFS("agents"), "agents"
	}
	return examples.Agents(), "built in"
}

// redacted is the log of whoever handles what users and tools say.
func (s *settings) redacted(r *redact.Redactor) *slog.Logger {
	return slog.New(r.Handler(s.log.Handler()))
}
