package worker

import (
	"slices"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// invoke starts a run at once when the session is free. Else its queue policy
// says what becomes of it; a run that waits does so in the log, the inbox is no
// queue.
func (t *turn) invoke(s *event.Session, c eventlog.Waiting) (events []event.Event, done bool) {
	if s.Run(c.RunID) != nil {
		return ignored(c.Command, "the run is there already"), true
	}
	d := event.RunQueuedData{Agent: c.Agent, CommandID: c.CommandID, Messages: c.Messages, Resumes: c.Resumes, Config: c.Config}
	if s.Free() {
		if f := t.w.opts.Observe.Started; f != nil {
			f(time.Since(c.Time.Time))
		}
		return t.start(s, c.RunID, c.TraceID, c.Traceparent, d), true
	}
	active := s.Active()
	switch {
	case c.Queue == event.Reject:
		e := event.New(event.RunFailed, event.RunFailedData{Code: event.CodeConflict, Message: "the session is busy with another run", Retryable: true})
		return named(c.CommandID, c.RunID, c.TraceID, []event.Event{e}), true
	case c.Queue == event.SteerInto && active != nil && t.hold(active):
		return nil, false
	case c.Queue == event.SteerInto && active != nil:
		return steer(s, c, active), true
	case c.Queue == event.Interrupt && active != nil:
		t.halt.end(eventlog.Waiting{Command: event.Command{Kind: event.Cancel, RunID: active.RunID, By: c.By, Reason: "interrupted by run " + c.RunID}})
		return nil, false // it starts when that run has ended
	}
	e := event.New(event.RunQueued, d)
	e.RunID, e.TraceID = c.RunID, c.TraceID
	return []event.Event{e}, true
}

// steer gives a run's messages to the active one and ends it with that.
func steer(s *event.Session, c eventlog.Waiting, active *event.Run) []event.Event {
	out := named("", active.RunID, active.TraceID, inputs(s, c.Messages))
	e := event.New(event.RunCompleted, event.RunCompletedData{FinishReason: event.FinishStop, SteeredInto: active.RunID})
	return append(out, named(c.CommandID, c.RunID, c.TraceID, []event.Event{e})...)
}

// start is how a run begins: with the messages that the session does not know.
func (t *turn) start(s *event.Session, runID, traceID, traceparent string, d event.RunQueuedData) []event.Event {
	own := []event.Event{event.New(event.RunStarted, event.RunStartedData{Agent: d.Agent, CommandID: d.CommandID, Attempt: 1, Resumes: d.Resumes, Traceparent: traceparent, Config: d.Config})}
	own = append(own, inputs(s, d.Messages)...)
	own = append(own, event.New(event.RunStatus, event.RunStatusData{Status: event.Running, Previous: event.Pending}))
	for i := range own {
		own[i].RunID, own[i].TraceID, own[i].CommandID = runID, traceID, d.CommandID
	}
	return own
}

// inputs are the events of the messages, and of the calls in them, that the
// session does not hold yet. Of what has one id the first counts.
func inputs(s *event.Session, messages []event.InputMessage) []event.Event {
	var out []event.Event
	index, said, made := len(s.Messages), map[string]bool{}, map[string]bool{}
	for _, m := range messages {
		if s.MessageByID(m.MessageID) != nil || said[m.MessageID] {
			continue
		}
		brought := len(m.Calls)
		m.Calls = slices.DeleteFunc(slices.Clone(m.Calls), func(c event.PastCall) bool {
			known := s.Call(c.CallID) != nil || made[c.CallID]
			made[c.CallID] = true
			return known
		})
		if brought > 0 && len(m.Calls)+len(m.Parts) == 0 {
			continue // nothing of it is new
		}
		said[m.MessageID] = true
		out = append(out, inputMessage(m, index)...)
		index++
	}
	return out
}

func inputMessage(m event.InputMessage, index int) []event.Event {
	parts := append([]event.Part{}, m.Parts...)
	var calls []event.Event
	for i, c := range m.Calls {
		parts = append(parts, event.Part{Type: event.PartToolCall, CallID: c.CallID})
		calls = append(calls,
			event.New(event.ToolStarted, event.ToolStartedData{CallID: c.CallID, Name: c.Name, Index: i, MessageID: m.MessageID, Executor: event.ByClient}),
			event.New(event.ToolArgs, event.ToolArgsData{CallID: c.CallID, Name: c.Name, Index: i, Args: c.Args}),
			event.New(event.ToolCompleted, event.ToolCompletedData{CallID: c.CallID, Name: c.Name, Index: i, Args: c.Args, Content: append([]event.Part{}, c.Content...)}))
	}
	message := event.New(event.MessageCompleted, event.MessageCompletedData{
		MessageID: m.MessageID, Role: m.Role, Index: index, Parts: parts, SHA256: event.TextHash(parts)})
	return append([]event.Event{message}, calls...)
}
