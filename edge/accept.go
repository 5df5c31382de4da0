package edge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// A submission is a run that somebody wants.
type submission struct {
	tenant         string
	by             string
	idempotencyKey string
	traceparent    string
	want           eventlog.RunRef // ids that are empty are given by reserve
	messages       []inputMessage
	config         *event.RunConfig
	queue          event.Queue
	resumes        string // the run that this one goes on from
	untilGone      bool   // cancel it when its client disconnects
}

// reserve finds or makes the run's entry in the runs index. existed: it was
// asked for before, by the same request.
func (s *Server) reserve(ctx context.Context, sub *submission) (ref eventlog.RunRef, existed bool, err error) {
	if _, err := distinct(sub.messages); err != nil {
		return ref, false, err // before anything is kept
	}
	for _, m := range sub.messages {
		if err := m.CheckJSON(); err != nil {
			return ref, false, bad("", "%s", err)
		}
	}
	want := sub.want
	if want.RunID == "" {
		want.RunID = event.NewID("run")
	}
	known := want.SessionID != ""
	if !known {
		want.SessionID = event.NewID("ses")
	}
	k := eventlog.Key{Tenant: sub.tenant, Session: want.SessionID}
	if known {
		head, err := s.Log.Head(ctx, k)
		if err != nil {
			return ref, false, err
		}
		want.After = head.Seq
	}
	if want.Agent, err = s.chooseAgent(ctx, k, want); err != nil {
		return ref, false, err
	}
	want.CommandID, want.Created = want.RunID+".invoke", event.At(time.Now())
	return s.Log.Reserve(ctx, sub.tenant, sub.idempotencyKey, want)
}

// place puts the run's command into the inbox and has a worker woken, unless an
// earlier request has done so. Once it returns nil the run will be executed, or
// end in a state that can be seen.
func (s *Server) place(ctx context.Context, sub *submission, ref eventlog.RunRef) error {
	if ref.Accepted {
		return nil
	}
	k := eventlog.Key{Tenant: sub.tenant, Session: ref.SessionID}
	messages, err := s.named(ctx, k, ref, sub.messages)
	if err != nil {
		return err
	}
	cmd := event.Command{CommandID: ref.CommandID, Kind: event.Invoke, SessionID: ref.SessionID, RunID: ref.RunID,
		TraceID: ref.TraceID, Traceparent: sub.traceparent, Agent: ref.Agent, Messages: messages, Config: sub.config,
		Queue: sub.queue, Resumes: sub.resumes,
		By: sub.by, Time: ref.Created}
	if err := s.Log.Submit(ctx, k, cmd); err != nil {
		return err
	}
	if err := s.Log.Wake(ctx, k); err != nil {
		return err
	}
	return s.Log.Accept(ctx, ref)
}

// chooseAgent makes sure that a worker knows the agent. Without a name it is the
// session's, or the default one.
func (s *Server) chooseAgent(ctx context.Context, k eventlog.Key, want eventlog.RunRef) (string, error) {
	name := want.Agent
	if name == "" && want.After > 0 {
		fold, _, err := s.Log.Load(ctx, k)
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

// onlyAgent is the one that there is, or the one for demonstrations.
func (s *Server) onlyAgent(ctx context.Context) (string, error) {
	if name := s.agents.only(); name != "" {
		return name, nil
	}
	names, err := s.Log.Agents(ctx)
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
	names, err := s.Log.Agents(ctx)
	if err != nil {
		return err
	}
	p := problem(http.StatusNotFound, event.CodeNotFound, "there is no agent %q; known: %s", name,
		cmp.Or(strings.Join(names, ", "), "none, since no worker has announced one"))
	p.Param, p.Known = "agent", names
	return p
}

// agentCache remembers for a moment which agents were announced, and which of
// them serves requests that name none.
type agentCache struct {
	mu        sync.Mutex
	until     map[string]time.Time
	def       string
	defChosen time.Time
}

const agentTTL = 10 * time.Second

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

func (s *Server) listAgents(w http.ResponseWriter, r *http.Request, _ *call) error {
	names, err := s.Log.Agents(r.Context())
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
