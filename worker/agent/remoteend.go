package agent

import (
	"encoding/json"
	"errors"
	"slices"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/model"
	"github.com/runlog-dev/runlog/worker/remote"
)

// end closes a leg: the agent has said all of it. Calls that the client runs, or
// that somebody has to approve, stay open; others have no result and get none.
func (l *leg) end() error {
	asks, err := l.questions()
	if err != nil {
		return err
	}
	if err := l.close(); err != nil {
		return err
	}
	view := l.run.Journal.View()
	finish, out := event.FinishStop, []event.Event(nil)
	for _, c := range openCalls(view, l.run.id) {
		if c.Executor == event.ByClient || asked(asks, c.CallID) {
			finish = event.FinishToolCalls
			continue
		}
		t := &toolCall{run: l.run, view: view, call: c, index: view.CallIndex(c), internal: c.Internal}
		out = append(out, t.failed(event.CodeToolError, event.OutcomeUnknown, "the agent ended without telling the result", nil))
	}
	m := l.mark
	m.Checkpoint, m.Ended, m.Asks = nil, true, asks
	out = append(out, l.run.mark(m),
		l.run.event(event.StepCompleted, event.StepCompletedData{Step: l.step, FinishReason: finish, Usage: *l.usage}))
	return l.run.Journal.Append(out...)
}

// cut closes a leg whose run ends now. One that pauses, or goes on elsewhere, takes
// back what was said.
func (l *leg) cut(cause error) error {
	var over *overBudget
	switch {
	case errors.As(cause, new(*Cancelled)):
		return l.halt("cancelled")
	case errors.As(cause, &over) && !over.pause:
		return l.halt(string(event.CodeBudget))
	}
	return l.flush()
}

// halt closes a leg in the middle. What was said so far stands, and what was used
// counts.
func (l *leg) halt(why string) error {
	if err := l.flush(); err != nil {
		return err
	}
	l.answer = nil
	out := l.run.closeOpen(l.run.Journal.View(), why)
	return l.run.Journal.Append(append(out,
		l.run.event(event.StepCompleted, event.StepCompletedData{Step: l.step, FinishReason: event.FinishStopped, Usage: *l.usage}))...)
}

func asked(asks []event.Ask, callID string) bool {
	return slices.ContainsFunc(asks, func(a event.Ask) bool { return a.CallID == callID })
}

// questions are the asks as the log keeps them. One that is about no call becomes
// a call that the client answers.
func (l *leg) questions() (asks []event.Ask, err error) {
	for _, a := range l.asks {
		if a.CallID == "" {
			if a.CallID, err = l.question(a); err != nil {
				return nil, err
			}
		}
		asks = append(asks, event.Ask{ID: a.ID, CallID: a.CallID, ExpiresAt: a.ExpiresAt})
	}
	return asks, nil
}

func (l *leg) question(a remote.Ask) (callID string, err error) {
	if err := l.open(l.id); err != nil {
		return "", err
	}
	client := func(string) event.Executor { return event.ByClient }
	was := l.answer.executor
	l.answer.executor = client
	n := len(l.answer.calls)
	err = l.answer.take(model.Chunk{Kind: model.CallStart, Index: n, CallID: a.ID, Name: a.Name})
	l.answer.executor = was
	if err != nil {
		return "", err
	}
	args := a.Question
	if len(args) == 0 {
		args = json.RawMessage("{}")
	}
	return l.answer.calls[n].id, l.answer.take(model.Chunk{Kind: model.CallArgs, Index: n, Text: string(args)})
}
