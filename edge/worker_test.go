package edge_test

import (
	"context"
	"strings"
	"testing"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// A fakeWorker takes commands as a worker does, without a model: it says the
// user's words again. A run whose words hold "hold" goes on until it is cancelled.
type fakeWorker struct {
	t       testing.TB
	log     *eventlog.Log
	invokes chan event.Command // every invoke that led to a run
}

// work runs a fake worker on the site until the test ends.
func (s *site) work() *fakeWorker {
	s.t.Helper()
	w := &fakeWorker{s.t, s.open(eventlog.Options{}), make(chan event.Command, 1000)}
	q, err := w.log.Tickets(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			ticket, err := q.Next(ctx)
			if err != nil {
				return
			}
			w.serve(ctx, ticket.Key)
			_ = ticket.Release(ctx)
			if waiting, err := w.log.Inbox(ctx, ticket.Key); err == nil && len(waiting) > 0 {
				_ = w.log.Ticket(ctx, ticket.Key)
			}
		}
	}()
	s.t.Cleanup(func() { stop(); <-done })
	return w
}

func (w *fakeWorker) serve(ctx context.Context, k eventlog.Key) {
	for {
		waiting, err := w.log.Inbox(ctx, k)
		if err != nil || len(waiting) == 0 {
			return
		}
		fold, head, err := w.log.Load(ctx, k)
		if err != nil {
			return
		}
		log := w.log.Writer(k, head)
		for _, cmd := range waiting {
			if !fold.Knows(cmd.CommandID) {
				for _, e := range w.answer(fold, cmd.Command) {
					e.RunID, e.TraceID, e.CommandID = cmd.RunID, cmd.TraceID, cmd.CommandID
					if _, err := log.Append(e); err != nil || log.Sync(ctx) != nil {
						break
					}
				}
			}
			_ = w.log.Answered(ctx, cmd.Pos)
			if fold, _, err = w.log.Load(ctx, k); err != nil {
				return
			}
		}
		log.Close()
	}
}

func (w *fakeWorker) answer(fold *event.Session, cmd event.Command) []event.Event {
	if r := fold.Run(cmd.RunID); r != nil && r.Status.Terminal() {
		return nil
	}
	if cmd.Kind == event.Cancel {
		return []event.Event{event.New(event.RunCancelled, event.RunCancelledData{By: cmd.By, Reason: cmd.Reason})}
	}
	w.invokes <- cmd
	list := []event.Event{event.New(event.RunStarted, event.RunStartedData{Agent: cmd.Agent, CommandID: cmd.CommandID, Attempt: 1})}
	said := ""
	for _, m := range cmd.Messages {
		if fold.MessageByID(m.MessageID) != nil {
			continue
		}
		list = append(list, event.New(event.MessageCompleted, event.MessageCompletedData{MessageID: m.MessageID, Role: m.Role, Parts: m.Parts, SHA256: event.TextHash(m.Parts)}))
		for _, p := range m.Parts {
			said = p.Text
		}
	}
	list = append(list, event.New(event.RunStatus, event.RunStatusData{Status: event.Running, Previous: event.Pending}))
	if strings.Contains(said, "hold") {
		return list
	}
	id := "answer-" + cmd.RunID
	parts := []event.Part{event.TextPart("you said: " + said)}
	return append(list,
		event.New(event.MessageStarted, event.MessageStartedData{MessageID: id, Role: event.RoleAssistant}),
		event.New(event.TextDelta, event.TextDeltaData{MessageID: id, Delta: parts[0].Text}),
		event.New(event.MessageCompleted, event.MessageCompletedData{MessageID: id, Role: event.RoleAssistant, Parts: parts, SHA256: event.TextHash(parts)}),
		event.New(event.RunCompleted, event.RunCompletedData{FinishReason: event.FinishStop, Output: event.RunOutput{MessageID: id}}))
}
