package crashtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	runlog "github.com/runlog-dev/runlog/clients/go"
	"github.com/runlog-dev/runlog/event"
)

// A plot is a kind of story: which agent runs, and what its viewer does meanwhile.
type plot struct {
	agent string
	// act is called for every event that the viewer sees; nil: settle what the run
	// waits for.
	act func(*story, context.Context, event.Event)
	// ends are the ways in which the run may end, if it is not always the same.
	ends []event.Type
}

var plots = map[string]plot{
	"crash":    {agent: "crash"},
	"gated":    {agent: "gated"},
	"nested":   {agent: "nested"},
	"doubted":  {agent: "doubted"},
	"poor":     {agent: "poor"},
	"expiring": {agent: "expiring", act: func(*story, context.Context, event.Event) {}},
	// Commands in the model's first answer, and while tools run.
	"cancelled in the text":  {agent: "crash", act: at(event.TextDelta, (*story).cancel), ends: []event.Type{event.RunCancelled}},
	"cancelled in the tools": {agent: "crash", act: at(event.ToolRunning, (*story).cancel), ends: []event.Type{event.RunCancelled}},
	"stopped in the text":    {agent: "crash", act: at(event.TextDelta, (*story).stop), ends: []event.Type{event.RunCompleted}},
	"steered in the tools":   {agent: "crash", act: at(event.ToolRunning, (*story).steer), ends: []event.Type{event.RunCompleted}},
	"cancelled from above":   {agent: "nested", act: at(event.ToolProgress, (*story).cancel), ends: []event.Type{event.RunCancelled}},
}

// at does something at the first event of a type.
func at(t event.Type, do func(*story, context.Context)) func(*story, context.Context, event.Event) {
	return func(s *story, ctx context.Context, e event.Event) {
		if e.Type == t && !s.acted {
			s.acted = true
			s.hands.Go(func() { do(s, ctx) })
		}
	}
}

// A story is a run with whoever watches it.
type story struct {
	plot
	name    string
	session string
	seen    []event.Event
	err     error
	over    chan struct{}

	client  *runlog.Client
	fold    *event.Session // of what was seen
	runID   string
	settled map[string]bool
	acted   bool
	hands   sync.WaitGroup

	mu      sync.Mutex
	refused []error    // what the edge said to the operator
	final   runlog.Run // what the answer to a cancel was
}

// submit starts a run and follows it.
func (l *lane) submit(t testing.TB, name string) *story {
	t.Helper()
	l.runs++
	if name == "" {
		name = "crash"
	}
	s := &story{plot: plots[name], name: name, session: fmt.Sprintf("ses_%d", l.runs), over: make(chan struct{}), client: l.client, settled: map[string]bool{}}
	if s.act == nil {
		s.act = (*story).settle
	}
	s.fold = event.NewSession(s.session)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	go s.watch(ctx)
	return s
}

func (s *story) watch(ctx context.Context) {
	defer close(s.over)
	defer s.hands.Wait()
	for e, err := range s.client.SubmitStream(ctx, runlog.Submission{Agent: s.agent, SessionID: s.session, Input: "hello"}) {
		if err != nil {
			s.err = err
			return
		}
		if e.Type == runlog.Heartbeat {
			continue
		}
		if s.runID == "" {
			s.runID = e.RunID
		}
		s.seen = append(s.seen, e)
		s.fold.Seq = e.Seq - 1 // what is internal is not seen
		if s.err = s.fold.Apply(e); s.err != nil {
			return
		}
		s.act(s, ctx, e)
	}
}

// settle gives a run what it waits for, once, as soon as it says that it does.
func (s *story) settle(ctx context.Context, _ event.Event) {
	run := s.fold.Parked()
	if run == nil {
		return
	}
	if run.Paused() && !s.settled[run.ExpiresAt.String()] {
		s.settled[run.ExpiresAt.String()] = true
		s.hands.Go(func() { s.raise(ctx) })
	}
	for _, c := range s.fold.ToolCalls {
		question := fmt.Sprint(c.CallID, c.Attempt) // a call that was broken off is asked about again
		if !c.Waits() || s.settled[question] {
			continue
		}
		s.settled[question] = true
		callID, gated := c.CallID, c.Status == event.WaitingApproval
		s.hands.Go(func() {
			if gated {
				_, err := s.client.Decide(ctx, s.runID, callID, runlog.Decision{Decision: event.Approved})
				s.answered(err)
				return
			}
			_, err := s.client.Answer(ctx, s.runID, callID, runlog.ToolResult{Content: "Monday"})
			s.answered(err)
		})
	}
}

func (s *story) answered(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.refused = append(s.refused, err)
	}
}

func (s *story) cancel(ctx context.Context) {
	run, err := s.client.Cancel(ctx, s.runID, runlog.Cancellation{Reason: "enough", Wait: true})
	s.answered(err)
	s.final = run
}

func (s *story) stop(ctx context.Context) {
	_, err := s.client.Stop(ctx, s.runID, runlog.Cancellation{Reason: "enough"})
	s.answered(err)
}

const more = "and another thing"

func (s *story) raise(ctx context.Context) {
	_, err := s.client.Resume(ctx, s.runID)
	s.answered(err)
}

func (s *story) steer(ctx context.Context) {
	_, err := s.client.Steer(ctx, s.runID, more)
	s.answered(err)
}

// checkOperator: the edge has taken everything, and what it has taken was done.
func (s *story) checkOperator(t *testing.T, fold *event.Session, all []event.Event) {
	t.Helper()
	for _, err := range s.refused {
		t.Errorf("the operator was refused: %v", err)
	}
	if len(s.ends) == 0 {
		return
	}
	run := fold.Run(s.runID)
	end := all[slices.IndexFunc(all, func(e event.Event) bool { return e.RunID == s.runID && e.Type.Terminal() })]
	if !slices.Contains(s.ends, end.Type) {
		t.Errorf("%s: the run ended with %s %s", s.name, end.Type, end.Data)
	}
	if s.final.RunID != "" && s.final.Status != run.Status {
		t.Errorf("%s: the answer was that the run is %s, it is %s", s.name, s.final.Status, run.Status)
	}
	heard := 0
	for _, m := range fold.Messages {
		if m.Role == event.RoleUser && m.Parts[0].Text == more {
			heard++
		}
	}
	if want := strings.HasPrefix(s.name, "steered"); want && heard != 1 || !want && heard > 0 {
		t.Errorf("%s: the message was heard %d times", s.name, heard)
	}
}
