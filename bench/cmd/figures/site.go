package main

import (
	"embed"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

//go:embed site
var siteFiles embed.FS

// A site is a server, an edge and workers as in production, with a model and
// tools that this program serves.
type site struct {
	b            *bench
	server, edge *proc
	workers      []*proc
	agents       string // directory
	env          []string
	model        *modelServer
	tools        *toolServer
}

// staffedSite starts all, with a worker that works on so many sessions at once.
func (b *bench) staffedSite(slots int) (*site, *proc, error) {
	s, err := b.newSite(15 * time.Second)
	if err != nil {
		return nil, nil, err
	}
	w, err := s.worker(slots)
	if err != nil {
		s.close()
	}
	return s, w, err
}

// newSite starts all but the workers.
func (b *bench) newSite(lease time.Duration) (s *site, err error) {
	s = &site{b: b, model: serveModel(), tools: serveTools()}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.server, err = b.server(); err != nil {
		return s, err
	}
	dir, err := b.newDir("site")
	if err != nil {
		return s, err
	}
	s.env = []string{
		"RUNLOG_NATS_URL=nats://" + s.server.addr,
		"RUNLOG_CATALOG_URL=sqlite:" + filepath.Join(dir, "catalog.db"),
		"RUNLOG_ARTIFACTS_URL=dir:" + filepath.Join(dir, "artifacts"),
		"RUNLOG_LEASE=" + lease.String(),
	}
	s.agents = filepath.Join(dir, "agents")
	if err := s.writeAgents(); err != nil {
		return s, err
	}
	s.edge, err = b.serve(dir, s.env, "edge")
	return s, err
}

// writeAgents fills in where the model and the tools are.
func (s *site) writeAgents() error {
	if err := os.MkdirAll(s.agents, 0o700); err != nil {
		return err
	}
	return fs.WalkDir(siteFiles, "site", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := siteFiles.ReadFile(path)
		if err != nil {
			return err
		}
		filled := strings.NewReplacer("MODEL_URL", s.model.URL, "TOOLS_URL", s.tools.URL).Replace(string(text))
		return os.WriteFile(filepath.Join(s.agents, d.Name()), []byte(filled), 0o600)
	})
}

// worker starts one that works on so many sessions at once.
func (s *site) worker(slots int) (*proc, error) {
	dir, err := s.b.newDir("worker")
	if err != nil {
		return nil, err
	}
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	env := append([]string{"RUNLOG_ADMIN_LISTEN=" + addr, "RUNLOG_AGENTS=" + s.agents, "RUNLOG_SLOTS=" + strconv.Itoa(slots)}, s.env...)
	w, err := s.b.start(addr, readyAt(addr), dir, env, s.b.runlog, "worker")
	if err == nil {
		s.workers = append(s.workers, w)
	}
	return w, err
}

func (s *site) close() {
	for _, p := range append(s.workers, s.edge, s.server) {
		if p != nil {
			p.stop()
		}
	}
	s.model.Close()
	s.tools.Close()
}
