package crashtest

import (
	"context"
	"fmt"
	"sync"
	"testing"

	runlog "github.com/runlog-dev/runlog/clients/go"
	"github.com/runlog-dev/runlog/event"
)

// A story is a run with whoever watches it, and does what it waits for.
type story struct {
	agent   string
	session string
	seen    []event.Event
	err     error
	over    chan struct{}

	client  *runlog.Client
	fold    *event.Session // of what was seen
	settled map[string]bool
	hands   sync.WaitGroup

	mu      sync.Mutex
	refused []error // what the edge said to the operator
}

// submit starts a run and follows it.
func (l *lane) submit(t testing.TB, agent string) *story {
	l.runs++
	if agent == "" {
		agent = "crash"
	}
	s := &story{agent: agent, session: fmt.Sprintf("ses_%d", l.runs), over: make(chan struct{}), client: l.client, settled: map[string]bool{}}
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
		s.seen = append(s.seen, e)
		s.fold.Seq = e.Seq - 1 // what is internal is not seen
		if s.err = s.fold.Apply(e); s.err != nil {
			return
		}
		s.operate(ctx)
	}
}

// operate settles what a run waits for, once, as soon as it says that it does.
func (s *story) operate(ctx context.Context) {
	run := s.fold.Parked()
	if run == nil || s.agent == "expiring" {
		return
	}
	for _, c := range s.fold.ToolCalls {
		if !c.Waits() || s.settled[c.CallID] {
			continue
		}
		s.settled[c.CallID] = true
		runID, callID, gated := run.RunID, c.CallID, c.Status == event.WaitingApproval
		s.hands.Go(func() {
			var err error
			if gated {
				_, err = s.client.Decide(ctx, runID, callID, runlog.Decision{Decision: event.Approved})
			} else {
				_, err = s.client.Answer(ctx, runID, callID, runlog.ToolResult{Content: "Monday"})
			}
			if err != nil {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.refused = append(s.refused, err)
			}
		})
	}
}

// checkOperator: what the edge has taken was done, and it has taken everything.
func (s *story) checkOperator(t *testing.T) {
	t.Helper()
	for _, err := range s.refused {
		t.Errorf("the operator was refused: %v", err)
	}
}
