package audit

import (
	"slices"
	"strings"

	"github.com/runlog-dev/runlog/event"
)

// message is an answer of a model, as its deltas tell it.
type message struct {
	id    string
	run   string
	done  bool // completed or taken back
	parts []*part
}

// part is a piece of an answer in the making.
type part struct {
	kind event.PartType
	id   string // of reasoning or a call
	text strings.Builder
	rsn  *reasoning
}

type reasoning struct {
	id        string
	text      strings.Builder
	signature string
	done      bool
}

// answer follows messages, their text and their reasoning.
func (c *Checker) answer(e event.Event) {
	r := c.runs[e.RunID]
	switch e.Type {
	case event.MessageStarted:
		c.messageStarted(e, r)
	case event.TextDelta:
		c.textDelta(e, r)
	case event.MessageCompleted:
		c.messageCompleted(e, r)
	case event.MessageDiscarded:
		c.messageDiscarded(e, r)
	case event.ReasoningStarted, event.ReasoningDelta, event.ReasoningCompleted:
		c.reasoning(e, r)
	}
}

func (c *Checker) messageStarted(e event.Event, r *run) {
	d, ok := data[event.MessageStartedData](c, e)
	if !ok {
		return
	}
	if !r.inStep || r.message != nil || c.texts[d.MessageID] != nil || d.MessageID == "" {
		c.wrong(MessagePair, "message %s begins, in a step: %v, another is open: %v, known: %v", d.MessageID, r.inStep, r.message != nil, c.texts[d.MessageID] != nil)
	}
	if want := len(c.fold.Messages); !c.broken && d.Index != want {
		c.wrong(MessageSlot, "index %d, it is number %d", d.Index, want)
	}
	m := &message{id: d.MessageID, run: r.id}
	for _, t := range r.reasoning {
		m.parts = append(m.parts, &part{kind: event.PartReasoning, id: t.id, rsn: t})
	}
	r.message, r.reasoning, c.texts[d.MessageID] = m, nil, m
}

func (c *Checker) textDelta(e event.Event, r *run) {
	d, ok := data[event.TextDeltaData](c, e)
	if !ok {
		return
	}
	m := r.message
	if m == nil || m.id != d.MessageID {
		c.wrong(MessagePair, "message %s is not open", d.MessageID)
		return
	}
	if n := len(m.parts); n == 0 || m.parts[n-1].kind != event.PartText {
		m.parts = append(m.parts, &part{kind: event.PartText})
	}
	m.parts[len(m.parts)-1].text.WriteString(d.Delta)
}

func (c *Checker) messageCompleted(e event.Event, r *run) {
	d, ok := data[event.MessageCompletedData](c, e)
	if !ok {
		return
	}
	if want := event.TextHash(d.Parts); d.SHA256 != want {
		c.wrong(MessageHash, "sha256 is %s, that of its text %s", d.SHA256, want)
	}
	m := r.message
	if m == nil || m.id != d.MessageID {
		c.given(d, r)
		return
	}
	if want := c.place(d.MessageID); !c.broken && d.Index != want {
		c.wrong(MessageSlot, "index %d, it is number %d", d.Index, want)
	}
	c.sameParts(m, d.Parts)
	for _, call := range c.calls {
		if call.message == m.id && !call.argsDone {
			c.wrong(CallArgs, "of call %s are open at the end of its answer", call.id)
		}
	}
	r.message, r.answer, m.done = nil, d.MessageID, true
}

// given is a message that came whole: from a client, never from the model.
func (c *Checker) given(d event.MessageCompletedData, r *run) {
	if c.texts[d.MessageID] != nil {
		c.wrong(MessagePair, "message %s was there before", d.MessageID)
	}
	if d.Role == event.RoleAssistant && r.inStep {
		c.wrong(MessagePair, "message %s was not begun", d.MessageID)
	}
	if want := c.place(d.MessageID); !c.broken && d.Index != want {
		c.wrong(MessageSlot, "index %d, it is number %d", d.Index, want)
	}
	c.texts[d.MessageID] = &message{id: d.MessageID, run: r.id, done: true}
}

// place is where a message stands, or will stand.
func (c *Checker) place(id string) int {
	for i, m := range c.fold.Messages {
		if m.MessageID == id {
			return i
		}
	}
	return len(c.fold.Messages)
}

// sameParts compares what was said with what is said to have been said.
func (c *Checker) sameParts(m *message, closed []event.Part) {
	said := m.parts
	for _, p := range closed {
		if p.Type == event.PartText && p.Text == "" {
			continue // held back as a whole, or never begun
		}
		if len(said) == 0 {
			c.wrong(MessageText, "has a %s that was never said: %.80q", p.Type, p.Text+p.CallID)
			return
		}
		if problem := said[0].differs(p); problem != "" {
			c.wrong(MessageText, "%s", problem)
			return
		}
		said = said[1:]
	}
	if len(said) > 0 {
		c.wrong(MessageText, "lacks a %s that was said", said[0].kind)
	}
}

func (p *part) differs(closed event.Part) string {
	switch {
	case p.kind != closed.Type:
		return "has a " + string(closed.Type) + " where a " + string(p.kind) + " was said"
	case p.kind == event.PartText && p.text.String() != closed.Text:
		return difference(closed.Text, p.text.String())
	case p.kind == event.PartToolCall && p.id != closed.CallID:
		return "has call " + closed.CallID + " where " + p.id + " was begun"
	case p.kind != event.PartReasoning:
		return ""
	case p.id != closed.ReasoningID || !p.rsn.done:
		return "has reasoning " + closed.ReasoningID + " where " + p.id + " was begun, or that is open"
	case p.rsn.text.String() != closed.Text || p.rsn.signature != closed.Signature:
		return "reasoning " + p.id + ": " + difference(closed.Text+closed.Signature, p.rsn.text.String()+p.rsn.signature)
	}
	return ""
}

// messageDiscarded takes an attempt back, with its reasoning and its calls.
func (c *Checker) messageDiscarded(e event.Event, r *run) {
	d, ok := data[event.MessageDiscardedData](c, e)
	if !ok {
		return
	}
	m := r.message
	switch {
	case m != nil && m.id == d.MessageID:
		m.done = true
	case m == nil && len(r.reasoning) > 0 && c.texts[d.MessageID] == nil:
		c.texts[d.MessageID] = &message{id: d.MessageID, run: r.id, done: true}
	case c.saidElsewhere(r, d.MessageID):
	default:
		c.wrong(MessagePair, "message %s is not open", d.MessageID)
		return
	}
	for id, call := range c.calls {
		if call.message == d.MessageID {
			if call.attempts > 0 {
				c.wrong(CallRunning, "call %s of an answer that is taken back has run", id)
			}
			call.done, call.discarded = true, true
		}
	}
	r.message, r.reasoning = nil, nil
}

// saidElsewhere reports that the message is complete, and of an agent that lives
// elsewhere, which is asked anew.
func (c *Checker) saidElsewhere(r *run, id string) bool {
	if f := c.fold.Run(r.id); r.inStep && f != nil && f.Book.Remote != nil {
		return slices.Contains(f.Book.Remote.Said, id)
	}
	return false
}

func (c *Checker) reasoning(e event.Event, r *run) {
	d, ok := data[struct {
		event.ReasoningCompletedData
		Delta string `json:"delta"`
	}](c, e)
	if !ok {
		return
	}
	t := r.thought(d.ReasoningID)
	if e.Type == event.ReasoningStarted {
		c.reasoningStarted(r, d.ReasoningID, t != nil)
		return
	}
	if t == nil || t.done {
		c.wrong(ReasonPair, "reasoning %s is not open", d.ReasoningID)
		return
	}
	t.text.WriteString(d.Delta)
	if e.Type == event.ReasoningCompleted {
		t.done, t.signature = true, d.Signature
		if said := t.text.String(); said != d.Text {
			c.wrong(ReasonText, "reasoning %s: %s", t.id, difference(d.Text, said))
		}
	}
}

func (c *Checker) reasoningStarted(r *run, id string, known bool) {
	if !r.inStep || known || id == "" {
		c.wrong(ReasonPair, "reasoning %s begins, in a step: %v, known: %v", id, r.inStep, known)
	}
	t := &reasoning{id: id}
	if m := r.message; m != nil {
		m.parts = append(m.parts, &part{kind: event.PartReasoning, id: id, rsn: t})
		return
	}
	r.reasoning = append(r.reasoning, t)
}

// thought finds reasoning of the answer that is being written.
func (r *run) thought(id string) *reasoning {
	for _, t := range r.reasoning {
		if t.id == id {
			return t
		}
	}
	if r.message == nil {
		return nil
	}
	for _, p := range r.message.parts {
		if p.rsn != nil && p.id == id {
			return p.rsn
		}
	}
	return nil
}
