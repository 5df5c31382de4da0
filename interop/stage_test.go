package interop

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/artifacts"
	"github.com/runlog-dev/runlog/edge"
	"github.com/runlog-dev/runlog/edge/dialect/scenarios"
	"github.com/runlog-dev/runlog/edge/stream"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// A stage is what clients are tested on: one JetStream, two edges or more, each
// with its own connection and nothing in common with the others, and a player in
// the place of workers. Tests steer it over HTTP.
type stage struct {
	t         testing.TB
	nats      *eventlog.Embedded
	artifacts artifacts.Store
	player    *player

	mu    sync.Mutex
	edges map[string]*node
	next  int
}

// A node is one edge.
type node struct {
	ID  string `json:"id"`
	URL string `json:"url"`

	http  *httptest.Server
	drain func()
}

// lease is long: nobody is lost here, and the machine may be busy.
const lease = time.Minute

// newStage starts everything and returns the address that steers it.
func newStage(t *testing.T) (url string) {
	t.Helper()
	s := &stage{t: t, edges: map[string]*node{}}
	var err error
	if s.nats, err = eventlog.StartEmbedded(t.TempDir(), false); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.nats.Close() })
	if s.artifacts, err = artifacts.Open(t.Context(), "dir:"+t.TempDir(), artifacts.Options{}); err != nil {
		t.Fatal(err)
	}
	s.player = play(t, s.open(eventlog.Options{Lease: lease}))
	for range 2 {
		s.startEdge(edge.Options{})
	}
	srv := httptest.NewServer(s.routes())
	t.Cleanup(srv.Close)
	return srv.URL
}

func (s *stage) open(opts eventlog.Options) *eventlog.Log {
	nc, err := s.nats.Connect()
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(nc.Close)
	l, err := eventlog.Open(s.t.Context(), nc, opts)
	if err != nil {
		s.t.Fatal(err)
	}
	return l
}

// startEdge starts an edge as Server.Run does, on a port of its own. Its pings
// and heartbeats are so frequent that every client meets them.
func (s *stage) startEdge(opts edge.Options) *node {
	opts.Stream = stream.Options{Ping: 20 * time.Millisecond, Heartbeat: 15 * time.Millisecond}
	logger := slog.New(slog.DiscardHandler)
	if os.Getenv("INTEROP_LOG") != "" {
		logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	l := s.open(eventlog.Options{Lease: lease})
	srv := edge.New(edge.Deps{Log: l, Artifacts: s.artifacts, Logger: logger}, opts)
	ln := httptest.NewUnstartedServer(nil) // only for its listener
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := srv.Run(ctx, ln.Listener); err != nil {
			logger.Error("edge", "err", err)
		}
	}()
	drain := func() { stop(); <-done }
	s.t.Cleanup(drain)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	n := &node{ID: fmt.Sprint("e", s.next), URL: "http://" + ln.Listener.Addr().String(), http: ln, drain: drain}
	s.edges[n.ID] = n
	return n
}

type scenarioInfo struct {
	Name  string     `json:"name"`
	About string     `json:"about"`
	Ends  event.Type `json:"ends"`
}

// routes steer the stage; lib/stage.mjs calls them.
func (s *stage) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) {
		var about struct {
			Edges     []*node        `json:"edges"`
			Scenarios []scenarioInfo `json:"scenarios"`
		}
		s.mu.Lock()
		about.Edges = []*node{s.edges["e1"], s.edges["e2"]}
		s.mu.Unlock()
		for _, sc := range scenarios.All() {
			if !sc.LogOnly {
				about.Scenarios = append(about.Scenarios, scenarioInfo{sc.Name, sc.About, sc.Ends})
			}
		}
		answer(w, about)
	})
	mux.HandleFunc("POST /edges", func(w http.ResponseWriter, r *http.Request) {
		streams, _ := strconv.Atoi(r.URL.Query().Get("streams"))
		answer(w, s.startEdge(edge.Options{TenantStreams: streams}))
	})
	mux.HandleFunc("DELETE /edges/{id}", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		n := s.edges[r.PathValue("id")]
		s.mu.Unlock()
		if n == nil {
			http.Error(w, "no such edge", http.StatusNotFound)
			return
		}
		n.drain()
		answer(w, n)
	})
	mux.HandleFunc("POST /commands", s.command)
	return mux
}

// command puts a command into a session's inbox, for kinds that edges do not
// take yet.
func (s *stage) command(w http.ResponseWriter, r *http.Request) {
	var cmd event.Command
	if err := json.NewDecoder(r.Body).Decode(&cmd); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	cmd.V, cmd.CommandID, cmd.Time = event.Version, event.NewID("cmd"), event.At(time.Now())
	k := eventlog.Key{Tenant: "default", Session: cmd.SessionID}
	err := s.player.log.Submit(r.Context(), k, cmd)
	if err == nil {
		err = s.player.log.Wake(r.Context(), k)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answer(w, cmd)
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(event.Encode(v))
}
