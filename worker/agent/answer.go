package agent

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/model"
	"github.com/runlog-dev/runlog/worker/redact"
)

// Bounds of one answer in encoded bytes, so that its closers fit an event: all
// its text and reasoning, and the arguments of one call, which stand in the
// event of its result too.
const (
	maxAnswer = 512 << 10
	maxArgs   = 96 << 10
)

// encodedLen is how long s gets as JSON, at most.
func encodedLen(s string) int {
	n := len(s)
	for i := range len(s) {
		switch c := s[i]; {
		case c < 0x20:
			n += 5
		case c == '"' || c == '\\':
			n++
		}
	}
	return n
}

func tooLong(what string, limit int) error {
	return &model.Error{Code: event.CodeModelTruncated, Message: fmt.Sprintf("the model's %s is longer than %d KiB", what, limit>>10)}
}

// An answer turns the chunks of one model attempt into events. Deltas of one
// thing are gathered for a short window; only what may be the beginning of a
// secret is held back longer.
type answer struct {
	run       *Run
	messageID string
	index     int // of the message in its session
	executor  func(name string) event.Executor
	ready     bool          // the run has the floor
	waiting   []model.Chunk // until then

	mu      sync.Mutex // the window's timer writes too
	started bool
	parts   []event.Part
	calls   []*callDraft
	open    *draft // text or reasoning that grows
	pending strings.Builder
	flusher func() error // writes pending
	timer   *time.Timer
	sent    time.Time // last delta
	size    int       // encoded
	err     error     // of a write from the timer
}

// A draft is text or reasoning in the making.
type draft struct {
	kind  event.PartType
	id    string // of reasoning
	index int
	text  strings.Builder // redacted
	guard *redact.Stream
}

func newAnswer(r *Run) *answer {
	a := &answer{run: r, messageID: event.NewID("msg"), executor: r.executor}
	a.place()
	return a
}

// place says where in its session the message stands.
func (a *answer) place() {
	a.run.Journal.Look(func(s *event.Session) { a.index = len(s.Messages) })
}

// take logs one chunk.
func (a *answer) take(c model.Chunk) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.err != nil:
		return a.err
	case !a.ready && !a.run.maySpeak():
		return a.later(c)
	}
	if err := a.begin(); err != nil {
		return err
	}
	return a.write(c)
}

// later keeps a chunk until another run under the same one has spoken: the model
// is heard meanwhile, or its server would think that nobody listens.
func (a *answer) later(c model.Chunk) error {
	if a.size += encodedLen(c.Text); a.size > maxAnswer {
		return tooLong("answer", maxAnswer)
	}
	a.waiting = append(a.waiting, c)
	return nil
}

// begin writes what has waited. The run has the floor.
func (a *answer) begin() error {
	if a.ready {
		return nil
	}
	a.ready, a.size = true, 0
	if a.run.parent != nil { // others have spoken since
		a.place()
	}
	waiting := a.waiting
	a.waiting = nil
	for _, c := range waiting {
		if err := a.write(c); err != nil {
			return err
		}
	}
	return nil
}

// catchUp waits for the floor and writes what has waited.
func (a *answer) catchUp(ctx context.Context) error {
	if err := a.run.speak(ctx); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.begin()
}

func (a *answer) write(c model.Chunk) error {
	switch c.Kind {
	case model.Text:
		return a.grow(event.PartText, c.Text)
	case model.Reasoning:
		return a.grow(event.PartReasoning, c.Text)
	case model.ReasoningEnd:
		return a.endReasoning(c.Signature)
	case model.CallStart:
		return a.startCall(c)
	case model.CallArgs:
		return a.growCall(c)
	}
	return nil
}

// grow adds to the open text or reasoning, or opens it.
func (a *answer) grow(kind event.PartType, text string) error {
	if text == "" {
		return nil
	}
	if a.size += encodedLen(text); a.size > maxAnswer {
		return tooLong("answer", maxAnswer)
	}
	if a.open == nil || a.open.kind != kind {
		if err := a.openDraft(kind); err != nil {
			return err
		}
	}
	return a.delta(a.open, a.open.guard.Write(text))
}

func (a *answer) openDraft(kind event.PartType) error {
	if err := a.closeDraft(""); err != nil {
		return err
	}
	d := &draft{kind: kind, index: len(a.parts), guard: a.run.Redactor.Stream()}
	a.open = d
	if kind == event.PartText {
		return a.start()
	}
	d.id = event.NewID("rsn")
	return a.append(!a.run.emit.reasoning(), event.ReasoningStarted, event.ReasoningStartedData{ReasoningID: d.id, Index: d.index})
}

// endReasoning closes a block of reasoning; one that came without text, only
// signed, is a block too.
func (a *answer) endReasoning(signature string) error {
	if a.open == nil || a.open.kind != event.PartReasoning {
		if signature == "" {
			return nil
		}
		if err := a.openDraft(event.PartReasoning); err != nil {
			return err
		}
	}
	return a.closeDraft(signature)
}

// start opens the message once something other than reasoning comes.
func (a *answer) start() error {
	if a.started {
		return nil
	}
	a.started = true
	return a.append(false, event.MessageStarted, event.MessageStartedData{MessageID: a.messageID, Role: event.RoleAssistant, Index: a.index})
}

// delta gathers what is safe to show.
func (a *answer) delta(d *draft, safe string) error {
	if safe == "" {
		return nil
	}
	d.text.WriteString(safe)
	return a.gather(safe, func(text string) error {
		if d.kind == event.PartText {
			return a.append(false, event.TextDelta, event.TextDeltaData{MessageID: a.messageID, Delta: text})
		}
		return a.append(!a.run.emit.reasoning(), event.ReasoningDelta, event.ReasoningDeltaData{ReasoningID: d.id, Delta: text})
	})
}

// closeDraft ends the open text or reasoning and keeps it as a part.
func (a *answer) closeDraft(signature string) error {
	d := a.open
	if d == nil {
		return a.flushPending() // of a call's arguments
	}
	a.open = nil
	if err := a.delta(d, d.guard.Close()); err != nil {
		return err
	}
	if err := a.flushPending(); err != nil {
		return err
	}
	p := event.Part{Type: d.kind, ReasoningID: d.id, Text: d.text.String()}
	if d.kind == event.PartReasoning {
		p.Signature, p.Internal = signature, !a.run.emit.reasoning()
	}
	a.parts = append(a.parts, p)
	if d.kind == event.PartText {
		return nil
	}
	return a.append(p.Internal, event.ReasoningCompleted, event.ReasoningCompletedData{ReasoningID: d.id, Index: d.index, Text: p.Text, Signature: signature})
}

// flush writes what is gathered, when the run is cut here.
func (a *answer) flush() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.closeDraft("")
}

// complete writes the closers of the answer and of its step.
func (a *answer) complete(step int, result model.Result) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	out, err := a.closers()
	if err != nil {
		return err
	}
	if len(a.calls) > 0 {
		result.FinishReason = event.FinishToolCalls // some servers say stop
	}
	out = append(out, a.run.event(event.StepCompleted, event.StepCompletedData{Step: step, FinishReason: result.FinishReason, Usage: result.Usage}))
	return a.run.Journal.Append(out...)
}

// end writes the closers of the answer alone.
func (a *answer) end() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	out, err := a.closers()
	if err != nil {
		return err
	}
	return a.run.Journal.Append(out...)
}

// closers are what closes the answer's calls and itself.
func (a *answer) closers() (out []event.Event, err error) {
	if err := a.closeDraft(""); err != nil {
		return nil, err
	}
	if err := a.start(); err != nil {
		return nil, err
	}
	for _, d := range a.calls {
		if rest := d.guard.Close(); rest != "" {
			out = append(out, a.run.hidden(d.internal, event.ToolArgsDelta, event.ToolArgsDeltaData{CallID: d.id, Delta: rest}))
		}
		args, changed := a.run.Redactor.Args(d.raw.String())
		if changed {
			a.run.rawArgs[d.id] = d.raw.String()
		}
		out = append(out, a.run.hidden(d.internal, event.ToolArgs, event.ToolArgsData{CallID: d.id, Name: d.name, Index: d.index, Args: args, Redacted: changed}))
	}
	return append(out, a.run.event(event.MessageCompleted, event.MessageCompletedData{
		MessageID: a.messageID, Role: event.RoleAssistant, Index: a.index, Parts: nonNil(a.parts), SHA256: event.TextHash(a.parts)})), nil
}

func nonNil(parts []event.Part) []event.Part {
	if parts == nil {
		return []event.Part{}
	}
	return parts
}

// discard takes the attempt back. The last one is taken back too, so that a
// failed run never seems to have answered.
func (a *answer) discard(reason string, retry int, last bool) error {
	a.drop()
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.started && a.open == nil && len(a.parts) == 0 {
		return nil // nothing was shown
	}
	if last {
		retry = 0
	}
	return a.append(false, event.MessageDiscarded, event.MessageDiscardedData{MessageID: a.messageID, Reason: reason, Retry: retry})
}

func (a *answer) append(internal bool, t event.Type, data any) error {
	return a.run.Journal.Append(a.run.hidden(internal, t, data))
}
