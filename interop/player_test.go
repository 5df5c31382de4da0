package interop

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/edge/dialect/scenarios"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// A player takes tickets and commands as a worker does, and answers an invoke of
// the agent NAME by playing the scenario of that name, all at once, or event by
// event if the agent is NAME-live. Where a scenario waits for a command the run
// is parked until it comes. NAME-held is as NAME-live, but begins only when a
// command of the kind steer comes, and ends only when another one does: whoever
// comes back in between finds the run under way.
type player struct {
	log *eventlog.Log

	mu     sync.Mutex
	parked map[string][]scenarios.Step // by run
}

// pace is the time between two events of a live run.
const pace = 2 * time.Millisecond

// played is the size of a large result when it is played.
const played = 200 << 10

func play(t *testing.T, l *eventlog.Log) *player {
	t.Helper()
	p := &player{log: l, parked: map[string][]scenarios.Step{}}
	for _, sc := range scenarios.All() {
		for _, name := range []string{sc.Name, sc.Name + "-live", sc.Name + "-held"} {
			about := event.Encode(map[string]string{"name": name, "description": sc.About})
			if err := l.Announce(t.Context(), name, about); err != nil {
				t.Fatal(err)
			}
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for range 8 {
		q, err := l.Tickets(ctx)
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() { p.run(ctx, t, q) })
	}
	t.Cleanup(func() { stop(); running.Wait() })
	return p
}

func (p *player) run(ctx context.Context, t *testing.T, q *eventlog.Tickets) {
	for ctx.Err() == nil {
		ticket, err := q.Next(ctx)
		if err != nil {
			continue
		}
		if err := p.serve(ctx, ticket.Key); err != nil && ctx.Err() == nil {
			t.Errorf("player: session %s: %v", ticket.Key.Session, err)
		}
		_ = ticket.Release(ctx)
		if waiting, err := p.log.Inbox(ctx, ticket.Key); err == nil && len(waiting) > 0 {
			_ = p.log.Wake(ctx, ticket.Key)
		}
	}
}

// serve answers all commands of a session.
func (p *player) serve(ctx context.Context, k eventlog.Key) error {
	for {
		waiting, err := p.log.Inbox(ctx, k)
		if err != nil || len(waiting) == 0 {
			return err
		}
		for _, cmd := range waiting {
			if err := p.take(ctx, k, cmd.Command); err != nil {
				return err
			}
			if err := p.log.Answered(ctx, cmd.Pos); err != nil {
				return err
			}
		}
	}
}

func (p *player) take(ctx context.Context, k eventlog.Key, cmd event.Command) error {
	fold, head, err := p.log.Load(ctx, k)
	if err != nil || fold.Knows(cmd.CommandID) {
		return err
	}
	w := p.log.Writer(k, head)
	defer w.Close()
	return p.write(ctx, w, fold, cmd, p.steps(fold, cmd))
}

// steps is what follows a command.
func (p *player) steps(fold *event.Session, cmd event.Command) []scenarios.Step {
	if cmd.Kind == event.Invoke {
		name, held := strings.CutSuffix(cmd.Agent, "-held")
		sc, ok := scenarios.Named(strings.TrimSuffix(name, "-live"))
		if !ok {
			return nil
		}
		steps := sc.Steps(scenarios.Invoke{RunID: cmd.RunID, TraceID: cmd.TraceID, CommandID: cmd.CommandID, Agent: cmd.Agent,
			Messages: cmd.Messages, Config: cmd.Config, Fold: fold.Clone(), Big: played})
		if held {
			steps[0].Await, steps[len(steps)-1].Await = event.Steer, event.Steer
		}
		return steps
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	rest := p.parked[cmd.RunID]
	if len(rest) == 0 {
		return nil
	}
	delete(p.parked, cmd.RunID)
	kind := rest[0].Await
	if kind == event.Approve && cmd.Kind == event.Deny {
		kind = event.Deny
	}
	if cmd.Kind == event.Cancel && kind != event.Cancel {
		return cancelled(fold, cmd)
	}
	if cmd.Kind != kind {
		p.parked[cmd.RunID] = rest
		return nil
	}
	rest[0].Await = ""
	return rest
}

// cancelled closes what a parked run has open.
func cancelled(fold *event.Session, cmd event.Command) []scenarios.Step {
	r := fold.Run(cmd.RunID)
	list := []event.Event{event.New(event.RunStatus, event.RunStatusData{Status: event.Running, Previous: r.Status})}
	for _, c := range fold.ToolCalls {
		if c.RunID == cmd.RunID && !c.Done() {
			list = append(list, event.New(event.ToolFailed, event.ToolFailedData{CallID: c.CallID, Name: c.Name, Index: fold.CallIndex(c),
				Args: c.Args, Code: event.CodeInterrupted, Outcome: event.OutcomeCancelled, Message: "the run was cancelled"}))
		}
	}
	list = append(list, event.New(event.RunCancelled, event.RunCancelledData{By: cmd.By, Reason: cmd.Reason}))
	steps := make([]scenarios.Step, len(list))
	for i, e := range list {
		e.RunID, e.TraceID = cmd.RunID, r.TraceID
		steps[i].Event = e
	}
	return steps
}

// write appends steps, up to one that waits.
func (p *player) write(ctx context.Context, w *eventlog.Writer, fold *event.Session, cmd event.Command, steps []scenarios.Step) error {
	agent := cmd.Agent
	if r := fold.Run(cmd.RunID); r != nil {
		agent = r.Agent
	}
	live := strings.HasSuffix(agent, "-live") || strings.HasSuffix(agent, "-held")
	answered := false
	for i, step := range steps {
		if step.Await != "" {
			p.mu.Lock()
			p.parked[cmd.RunID] = append([]scenarios.Step(nil), steps[i:]...)
			p.mu.Unlock()
			break
		}
		e := step.Event
		if !answered && e.RunID == cmd.RunID {
			e.CommandID, answered = cmd.CommandID, true
		}
		if _, err := w.Append(e); err != nil {
			return err
		}
		if !live {
			continue
		}
		if err := w.Sync(ctx); err != nil {
			return err
		}
		select {
		case <-time.After(pace):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return w.Sync(ctx)
}
