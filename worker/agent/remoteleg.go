package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/model"
	"github.com/runlog-dev/runlog/worker/remote"
	"github.com/runlog-dev/runlog/worker/tool"
)

// A leg turns what an agent that lives elsewhere says into events. Its messages
// follow one another: what belongs to an earlier one begins a new one.
type leg struct {
	ctx      context.Context // of the attempt
	run      *Run
	step     int
	mark     event.RemoteMark
	gone     []string // ids of messages that were taken back
	answer   *answer  // the message that is being written, nil: none
	id       string   // what the agent calls it
	calls    map[string]string
	index    map[string]int // of the calls in answer
	progress map[string]*progressLog
	asks     []remote.Ask
	usage    *event.Usage // of the step so far
	spoke    bool
}

func newLeg(ctx context.Context, r *Run, run *event.Run, usage *event.Usage) *leg {
	m := run.Book.Remote
	return &leg{ctx: ctx, run: r, usage: usage, step: run.Book.Step, mark: m.RemoteMark, gone: m.Gone, calls: map[string]string{}, progress: map[string]*progressLog{}}
}

// say logs one saying.
func (l *leg) say(ctx context.Context, s remote.Saying) error {
	l.spoke = true
	switch s := s.(type) {
	case remote.Text:
		if s.Delta == "" && s.MessageID == "" {
			return nil
		}
		return l.write(s.MessageID, model.Chunk{Kind: model.Text, Text: s.Delta})
	case remote.Reasoning:
		return l.write(l.id, model.Chunk{Kind: model.Reasoning, Text: s.Delta})
	case remote.ReasoningEnd:
		if l.answer == nil {
			return nil
		}
		return l.answer.take(model.Chunk{Kind: model.ReasoningEnd})
	case remote.MessageEnd:
		return l.close()
	case remote.Call:
		return l.call(s)
	case remote.Args:
		return l.args(s)
	case remote.Progress:
		return l.progresses(s)
	case remote.Result:
		return l.result(ctx, s)
	case remote.Artifact:
		return l.artifact(ctx, s)
	case remote.Usage:
		return l.spend(s.Usage)
	case remote.Checkpoint:
		return l.checkpoint(s.Value)
	case remote.Ask:
		return l.ask(s)
	}
	return l.beside(s)
}

// write adds to the message, or begins it.
func (l *leg) write(messageID string, c model.Chunk) error {
	if err := l.open(messageID); err != nil {
		return err
	}
	return l.answer.take(c)
}

// open makes the message of this id the one that is written. Without an id any
// one will do. What was thought before a message has its id is a part of it.
func (l *leg) open(messageID string) error {
	if l.answer != nil && (messageID == "" || messageID == l.id) {
		return nil
	}
	if l.answer == nil || l.id != "" || l.answer.started {
		if err := l.close(); err != nil {
			return err
		}
		if err := l.run.speak(l.ctx); err != nil {
			return err
		}
		l.answer, l.index = newAnswer(l.run), map[string]int{}
	}
	l.id = messageID
	l.answer.named(messageID, l.gone)
	return nil
}

// named gives the message the id that the agent calls it by, if it can have it:
// the agent may know it again by that.
func (a *answer) named(id string, gone []string) {
	if id == "" || event.CheckID("message", id) != nil || slices.Contains(gone, id) {
		return
	}
	a.run.Journal.Look(func(s *event.Session) {
		if s.MessageByID(id) == nil {
			a.messageID = id
		}
	})
}

// close ends the message that is being written.
func (l *leg) close() error {
	a := l.answer
	if a == nil {
		return nil
	}
	l.answer, l.id = nil, ""
	err := a.end()
	l.run.hush()
	return err
}

func (l *leg) call(s remote.Call) error {
	if s.Name == "" {
		return broken("a tool call has no name")
	}
	if l.openCall(l.own(s.CallID)) != nil {
		return fmt.Errorf("tool call %q is open already: %w", s.CallID, remote.ErrMisfit)
	}
	if err := l.open(s.MessageID); err != nil {
		return err
	}
	n := len(l.answer.calls)
	if err := l.answer.take(model.Chunk{Kind: model.CallStart, Index: n, CallID: s.CallID, Name: s.Name}); err != nil {
		return err
	}
	l.calls[s.CallID], l.index[s.CallID] = l.answer.calls[n].id, n
	return nil
}

func (l *leg) args(s remote.Args) error {
	n, ok := l.index[s.CallID]
	if !ok || l.answer == nil {
		return fmt.Errorf("arguments of a tool call %q that is not open: %w", s.CallID, remote.ErrMisfit)
	}
	return l.answer.take(model.Chunk{Kind: model.CallArgs, Index: n, Text: s.Delta})
}

// find closes the message that a call stands in and gives the call.
func (l *leg) find(id string) (*toolCall, error) {
	if _, ok := l.index[id]; ok && l.answer != nil {
		if err := l.close(); err != nil {
			return nil, err
		}
	}
	t := l.openCall(l.own(id))
	if t == nil {
		return nil, fmt.Errorf("tool call %q is not open: %w", id, remote.ErrMisfit)
	}
	return t, nil
}

// own is the id in the log of a call that the agent calls id.
func (l *leg) own(id string) string {
	if own, ok := l.calls[id]; ok {
		return own
	}
	return id
}

// openCall is a call of the run that has no result yet, or nil.
func (l *leg) openCall(id string) (t *toolCall) {
	l.run.Journal.Look(func(s *event.Session) {
		if c := s.Call(id); c != nil && c.RunID == l.run.id && !c.Done() {
			call := *c
			t = &toolCall{run: l.run, call: &call, index: s.CallIndex(c), internal: c.Internal}
		}
	})
	return t
}

func (l *leg) progresses(s remote.Progress) error {
	p := l.progress[s.CallID]
	if p == nil {
		t, err := l.find(s.CallID)
		if err != nil {
			return err
		}
		p = &progressLog{call: t}
		l.progress[s.CallID] = p
	}
	p.report(s.Progress)
	return nil
}

func (l *leg) result(ctx context.Context, s remote.Result) error {
	t, err := l.find(s.CallID)
	if err != nil {
		return err
	}
	if p := l.progress[s.CallID]; p != nil {
		p.close()
	}
	result := tool.Result{Content: s.Content, Structured: s.Structured, Failed: s.Failed}
	if s.Failed {
		return t.append(t.toolError(ctx, result))
	}
	return t.completed(ctx, result)
}

// artifact keeps a file. What the run has kept already is not kept twice.
func (l *leg) artifact(ctx context.Context, s remote.Artifact) error {
	if err := l.settle(); err != nil {
		return err
	}
	if err := l.keep(ctx, s); err != nil {
		return &model.Error{Code: event.CodeUnavailable, Message: fmt.Sprintf("the artifact %q could not be kept", s.Name), Retryable: true, Err: err}
	}
	return nil
}

func (l *leg) keep(ctx context.Context, s remote.Artifact) error {
	kept := keptBy(l.run)
	defer kept.close()
	w, err := kept.create(ctx, s.Name, s.MediaType)
	if err != nil {
		return err
	}
	if _, err := w.Write(s.Data); err != nil {
		return err
	}
	_, err = w.Commit(ctx)
	return err
}

// spend adds up what the agent says it has used, and ends the leg when a budget
// is used up.
func (l *leg) spend(u event.Usage) error {
	u.Steps, u.ToolCalls = 0, 0
	if err := u.Check(); err != nil {
		return broken("of its usage, " + err.Error())
	}
	l.usage.Add(u)
	var accounts []account
	l.run.Journal.Look(func(s *event.Session) { accounts = l.run.accounts(s) })
	for _, a := range accounts {
		used := a.spent.Tokens + l.usage.InputTokens + l.usage.OutputTokens
		if a.Tokens > 0 && used > a.Tokens {
			return a.over("tokens", float64(a.Tokens), float64(used))
		}
		if cost := a.spent.CostUSD + l.usage.CostUSD; a.CostUSD > 0 && cost > a.CostUSD {
			return a.over("cost_usd", a.CostUSD, cost)
		}
	}
	return nil
}

// overdrawn ends the leg because a budget is used up. A run that pauses takes back
// what was said: the agent is asked anew when it goes on.
func (l *leg) overdrawn(b *overBudget) error {
	var out []event.Event
	if b.pause {
		l.drop()
		if err := l.run.speak(l.ctx); err != nil {
			return err
		}
		out = l.run.takenBack(l.run.Journal.View(), string(event.CodeBudget), 0)
	} else if err := l.close(); err != nil {
		return err
	}
	out = append(out, l.run.event(event.StepCompleted, event.StepCompletedData{Step: l.step, FinishReason: event.FinishBudget, Usage: *l.usage}))
	if err := l.run.Journal.Append(out...); err != nil {
		return err
	}
	return b
}

// checkpoint makes what was said stand.
func (l *leg) checkpoint(value json.RawMessage) error {
	if err := fits("the checkpoint", value); err != nil {
		return err
	}
	if err := l.close(); err != nil {
		return err
	}
	l.mark.Checkpoint = value
	return l.run.Journal.Append(l.run.mark(l.mark))
}

// ask notes a question; a call that is to be approved must be open.
func (l *leg) ask(s remote.Ask) error {
	if s.CallID == "" {
		l.asks = append(l.asks, s)
		return nil
	}
	t, err := l.find(s.CallID)
	if err != nil {
		return err
	}
	s.CallID = t.call.CallID
	l.asks = append(l.asks, s)
	return nil
}

// settle writes what is gathered of the message.
func (l *leg) settle() error {
	if l.answer == nil {
		return nil
	}
	return l.answer.settle()
}

// flush writes what was said of the message, when the run is cut here.
func (l *leg) flush() error {
	if l.answer == nil {
		return nil
	}
	return l.answer.flush()
}

// drop forgets what is gathered.
func (l *leg) drop() {
	if l.answer != nil {
		l.answer.drop()
	}
}

// abandon takes back the message that is being written, and closes the leg. What
// was completed stands: the agent is not asked anew, and its calls may have had
// their effect.
func (l *leg) abandon(fault *model.Error) error {
	if a := l.answer; a != nil {
		l.answer = nil
		if err := a.discard(string(fault.Code), 0, true); err != nil {
			return err
		}
	}
	return l.halt(string(fault.Code))
}
