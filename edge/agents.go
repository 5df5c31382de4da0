package edge

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// chooseAgent makes sure that a worker knows the agent. Without a name it is the
// session's, or the default one.
func (s *Server) chooseAgent(ctx context.Context, k eventlog.Key, want eventlog.RunRef) (string, error) {
	name := want.Agent
	if name == "" && want.After > 0 {
		fold, err := s.load(ctx, k)
		if err != nil {
			return "", err
		}
		name = fold.Agent
	}
	if name == "" {
		name = s.opts.DefaultAgent
	}
	if name == "" {
		return s.onlyAgent(ctx)
	}
	if s.agents.known(name) {
		return name, nil
	}
	_, err := s.Log.Agent(ctx, name)
	if errors.Is(err, eventlog.ErrNotFound) {
		return "", s.unknownAgent(ctx, name)
	}
	if err == nil {
		s.agents.add(name)
	}
	return name, err
}

// onlyAgent serves requests that name no agent: the only agent there is, or the one for
// demonstrations.
func (s *Server) onlyAgent(ctx context.Context) (string, error) {
	if name := s.agents.only(); name != "" {
		return name, nil
	}
	names, err := s.agentNames(ctx)
	if err != nil {
		return "", err
	}
	if len(names) == 1 {
		s.agents.setOnly(names[0])
		return names[0], nil
	}
	if slices.Contains(names, demoAgent) {
		s.agents.setOnly(demoAgent)
		return demoAgent, nil
	}
	p := bad("agent", "name an agent; known: %s", cmp.Or(strings.Join(names, ", "), "none, since no worker has announced one"))
	p.Known = names
	return "", p
}

const demoAgent = "demo"

func (s *Server) unknownAgent(ctx context.Context, name string) error {
	names, err := s.agentNames(ctx)
	if err != nil {
		return err
	}
	p := problem(http.StatusNotFound, event.CodeNotFound, "there is no agent %q; known: %s", name,
		cmp.Or(strings.Join(names, ", "), "none, since no worker has announced one"))
	p.Param, p.Known = "agent", names
	return p
}

// An agentInfo is an agent as its workers announced it.
type agentInfo struct {
	Name  string `json:"name"`
	About any    `json:"about,omitempty"`
}

// listAgents answers with all agents that were announced.
func (s *Server) listAgents(w http.ResponseWriter, r *http.Request, _ *call) error {
	names, err := s.agentNames(r.Context())
	if err != nil {
		return err
	}
	list := make([]agentInfo, 0, len(names))
	for _, name := range names {
		about, err := s.Log.Agent(r.Context(), name)
		if errors.Is(err, eventlog.ErrNotFound) {
			continue
		}
		if err != nil {
			return fmt.Errorf("list agents: %w", err)
		}
		list = append(list, agentInfo{name, jsonOrNil(about)})
	}
	writeJSON(w, http.StatusOK, struct {
		Agents []agentInfo `json:"agents"`
	}{list})
	return nil
}

// agentCache remembers for a moment which agents were announced, and which of them
// onlyAgent chose.
type agentCache struct {
	list singleflight.Group // see agentNames

	mu        sync.Mutex
	until     map[string]time.Time // of names that were announced
	def       string
	defChosen time.Time
}

// listTimeout is for one list of the agents.
const listTimeout = 5 * time.Second

// agentNames lists the agents that were announced. Who asks while somebody else does gets
// the same list: each takes a consumer of the event log, of which there are not thousands.
func (s *Server) agentNames(ctx context.Context) ([]string, error) {
	names, err := together(ctx, &s.agents.list, listTimeout, s.Log.Agents)
	return slices.Clone(names), err
}

// agentTTL is how long an agentCache remembers.
const agentTTL = 10 * time.Second

// known reports whether an agent was announced a moment ago.
func (a *agentCache) known(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Now().Before(a.until[name])
}

func (a *agentCache) add(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.until) > 1000 || a.until == nil {
		a.until = map[string]time.Time{}
	}
	a.until[name] = time.Now().Add(agentTTL)
}

// only is what onlyAgent chose a moment ago; empty: nothing.
func (a *agentCache) only() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Since(a.defChosen) > agentTTL {
		return ""
	}
	return a.def
}

func (a *agentCache) setOnly(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.def, a.defChosen = name, time.Now()
}

// jsonOrNil is what somebody has announced, if it is JSON.
func jsonOrNil(raw []byte) json.RawMessage {
	if event.Valid(raw) {
		return raw
	}
	return nil
}
