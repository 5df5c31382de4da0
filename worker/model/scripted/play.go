package scripted

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/model"
)

const defaultStall = 60 * time.Second

// A Model plays a script. It keeps no state and is safe for concurrent use.
type Model struct{ script *Script }

// New returns the model that plays a script.
func New(s *Script) *Model { return &Model{script: s} }

// Stream implements model.Model.
func (m *Model) Stream(ctx context.Context, req model.Request, emit func(model.Chunk) error) (model.Result, error) {
	d := look(req)
	step, err := m.script.choose(d)
	if err != nil {
		return model.Result{}, broken(err)
	}
	chunks, err := step.chunks(d)
	if err != nil {
		return model.Result{}, broken(fmt.Errorf("step %d: template: %s", d.Step, inTemplate.ReplaceAllString(err.Error(), "")))
	}
	result := step.result(req, chunks)
	p := newPace(m.script.Rate, step)
	for i, c := range chunks {
		if step.Fail.hits(d.Attempt) && i >= step.Fail.After {
			break
		}
		if err := p.wait(ctx); err != nil {
			return model.Result{}, err
		}
		if err := emit(c); err != nil {
			return model.Result{}, err
		}
	}
	if step.Fail.hits(d.Attempt) {
		return model.Result{}, step.Fail.end(ctx)
	}
	return result, nil
}

// broken is a script that cannot be played: trying again does not help.
func broken(err error) error {
	return &model.Error{Code: event.CodeModelError, Message: "scripted model: " + err.Error()}
}

// chunks is the whole answer, one token each.
func (s *Step) chunks(d *data) ([]model.Chunk, error) {
	reasoning, err := s.Reasoning.say(d)
	if err != nil {
		return nil, err
	}
	text, err := s.Text.say(d)
	if err != nil {
		return nil, err
	}
	chunks := tokens(model.Reasoning, reasoning)
	if reasoning != "" {
		chunks = append(chunks, model.Chunk{Kind: model.ReasoningEnd})
	}
	chunks = append(chunks, tokens(model.Text, text)...)
	var calls [][]model.Chunk
	for _, c := range s.Calls {
		call, err := c.chunks(len(calls), d)
		if err != nil {
			return nil, err
		}
		if call != nil {
			calls = append(calls, call)
		}
	}
	return append(chunks, arrange(calls, s.Interleave)...), nil
}

// chunks is nil for a call that is left out.
func (c Call) chunks(index int, d *data) ([]model.Chunk, error) {
	if only, err := c.If.say(d); err != nil || !c.If.empty() && strings.TrimSpace(only) == "" {
		return nil, err
	}
	name, err := c.Name.say(d)
	if err != nil {
		return nil, err
	}
	args, err := c.Args.say(d)
	if err != nil {
		return nil, err
	}
	chunks := append([]model.Chunk{{Kind: model.CallStart, Name: name}}, tokens(model.CallArgs, args)...)
	for i := range chunks {
		chunks[i].Index = index
	}
	return chunks, nil
}

// arrange puts the calls one after the other, or takes a token of each in turn.
func arrange(calls [][]model.Chunk, interleave bool) []model.Chunk {
	var list []model.Chunk
	if interleave {
		for i := 0; len(calls) > 0; i++ {
			var rest [][]model.Chunk
			for _, c := range calls {
				if list = append(list, c[0]); len(c) > 1 {
					rest = append(rest, c[1:])
				}
			}
			calls = rest
		}
		return list
	}
	for _, c := range calls {
		list = append(list, c...)
	}
	return list
}

// maxToken is how long a token gets, in characters: words that are longer, and
// scripts without spaces, come in pieces.
const maxToken = 12

// tokens cuts a text before its spaces. Joined they are the text again.
func tokens(kind model.ChunkKind, text string) []model.Chunk {
	var list []model.Chunk
	for text != "" {
		n := tokenLen(text)
		list = append(list, model.Chunk{Kind: kind, Text: text[:n]})
		text = text[n:]
	}
	return list
}

func tokenLen(text string) int {
	runes, word := 0, false
	for i, r := range text {
		space := unicode.IsSpace(r)
		if space && word || runes == maxToken {
			return i
		}
		word = word || !space
		runes++
	}
	return len(text)
}

// result counts what the whole answer costs.
func (s *Step) result(req model.Request, chunks []model.Chunk) model.Result {
	input := len(req.System)/4 + len(req.Session.OpenAIView(event.View{RunID: req.RunID}))/4
	u := event.Usage{InputTokens: int64(input)}
	finish := or(s.Finish, event.FinishStop)
	for _, c := range chunks {
		if c.Kind == model.CallStart && s.Finish == "" {
			finish = event.FinishToolCalls
		}
		if c.Kind == model.Reasoning {
			u.ReasoningTokens++
		}
		if c.Kind != model.ReasoningEnd {
			u.OutputTokens++
		}
	}
	return model.Result{FinishReason: finish, Usage: u}
}

// end is the failure, after its stall.
func (f *Fail) end(ctx context.Context) error {
	e := &model.Error{Code: f.Code, Message: f.Message, Retryable: true, RetryAfter: time.Duration(f.RetryAfter)}
	switch f.Kind {
	case failStall:
		if err := sleep(ctx, or(time.Duration(f.Stall), defaultStall)); err != nil {
			return err
		}
		e.Code = or(f.Code, event.CodeModelTimeout)
	case failTruncate:
		e.Code = or(f.Code, event.CodeModelTruncated)
	case failRefuse:
		e.Code, e.Retryable = or(f.Code, event.CodeModelRefused), false
	default:
		e.Code = or(f.Code, event.CodeModelError)
	}
	e.Message = or(f.Message, "the script says that the model fails here ("+f.Kind+")")
	if f.Retryable != nil {
		e.Retryable = *f.Retryable
	}
	return e
}

func or[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}

// A pace says one token each so often, counted from the first, so that a slow
// listener does not slow it down.
type pace struct {
	next time.Time
	gap  time.Duration
}

func newPace(rate float64, s *Step) *pace {
	if s.Rate != nil {
		rate = *s.Rate
	}
	p := &pace{next: time.Now().Add(time.Duration(s.Delay))}
	if rate > 0 {
		p.gap = time.Duration(float64(time.Second) / rate)
	}
	return p
}

func (p *pace) wait(ctx context.Context) error {
	err := sleep(ctx, time.Until(p.next))
	p.next = p.next.Add(p.gap)
	return err
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
