package exec

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/model"
	"github.com/runlog-dev/runlog/worker/remote"
)

// decode reads a line. An empty one says nothing.
func (t *talk) decode(line []byte) ([]remote.Saying, error) {
	line = bytes.TrimSpace(line)
	if len(line) == 0 {
		return nil, nil
	}
	if err := plain(line); err != nil {
		return nil, err
	}
	var kind struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(line, &kind); err != nil {
		return nil, fmt.Errorf("is not a JSON object: %w: %q", err, clip(line))
	}
	if t.done || t.failed != nil {
		return nil, fmt.Errorf("follows the end: %q comes after run.completed or run.failed", kind.Type)
	}
	word, ok := words[kind.Type]
	if !ok {
		return nil, fmt.Errorf("has the unknown type %q; there are %s", kind.Type, strings.Join(slices.Sorted(maps.Keys(words)), ", "))
	}
	list, err := word(t, line)
	if err != nil {
		return nil, fmt.Errorf("is not as %s is: %w", kind.Type, err)
	}
	return list, nil
}

func clip(line []byte) string { return string(line[:min(len(line), 80)]) }

// words are the types of lines.
var words = map[string]func(*talk, []byte) ([]remote.Saying, error){
	"text.delta":          on(func(d delta) (remote.Saying, error) { return remote.Text{Delta: d.text()}, d.check() }),
	"reasoning.delta":     on(func(d delta) (remote.Saying, error) { return remote.Reasoning{Delta: d.text()}, d.check() }),
	"reasoning.completed": on(func(nothing) (remote.Saying, error) { return remote.ReasoningEnd{}, nil }),
	"message.completed":   on(func(nothing) (remote.Saying, error) { return remote.MessageEnd{}, nil }),
	"tool.started":        started,
	"tool.args.delta": on(func(d struct {
		CallID string `json:"call_id"`
		delta
	}) (remote.Saying, error) {
		return remote.Args{CallID: d.CallID, Delta: d.text()}, d.check()
	}),
	"tool.progress": on(func(d struct {
		CallID string `json:"call_id"`
		event.Progress
	}) (remote.Saying, error) {
		return remote.Progress(d), nil
	}),
	"tool.completed": on(completed),
	"tool.failed": on(func(d struct {
		CallID  string `json:"call_id"`
		Message string `json:"message"`
	}) (remote.Saying, error) {
		return remote.Result{CallID: d.CallID, Failed: true, Content: []event.Part{event.TextPart(d.Message)}}, needs("message", d.Message != "")
	}),
	"approval.requested": on(func(d struct {
		CallID string `json:"call_id"`
	}) (remote.Saying, error) {
		return remote.Ask{ID: d.CallID, CallID: d.CallID}, needs("call_id", d.CallID != "")
	}),
	"state.snapshot": on(func(d struct {
		State json.RawMessage `json:"state"`
	}) (remote.Saying, error) {
		return remote.State{State: d.State}, needs("state", d.State != nil)
	}),
	"state.delta": on(func(d struct {
		Patch json.RawMessage `json:"patch"`
	}) (remote.Saying, error) {
		return remote.StatePatch{Patch: d.Patch}, needs("patch", d.Patch != nil)
	}),
	"activity.snapshot": on(func(d event.ActivityData) (remote.Saying, error) {
		return remote.Activity{ID: d.ActivityID, Kind: d.Kind, Content: d.Content}, needs("activity_id, kind and content", d.ActivityID != "" && d.Kind != "" && d.Content != nil)
	}),
	"activity.delta": on(func(d event.ActivityDeltaData) (remote.Saying, error) {
		return remote.ActivityPatch{ID: d.ActivityID, Patch: d.Patch}, needs("activity_id and patch", d.ActivityID != "" && d.Patch != nil)
	}),
	"artifact": on(artifact),
	"custom": on(func(d event.CustomData) (remote.Saying, error) {
		return remote.Custom{Name: d.Name, Value: d.Value}, needs("name", d.Name != "")
	}),
	"usage": on(func(d struct {
		Input     int64   `json:"input_tokens"`
		Output    int64   `json:"output_tokens"`
		Reasoning int64   `json:"reasoning_tokens"`
		Cached    int64   `json:"cached_input_tokens"`
		Cost      float64 `json:"cost_usd"`
	}) (remote.Saying, error) {
		return remote.Usage{Usage: event.Usage{InputTokens: d.Input, OutputTokens: d.Output, ReasoningTokens: d.Reasoning, CachedInputTokens: d.Cached, CostUSD: d.Cost}}, nil
	}),
	"checkpoint": on(func(d struct {
		Value json.RawMessage `json:"value"`
	}) (remote.Saying, error) {
		return remote.Checkpoint{Value: d.Value}, needs("value", d.Value != nil)
	}),
	"run.completed": func(t *talk, line []byte) ([]remote.Saying, error) {
		t.done = true
		return nil, strict(line, &nothing{})
	},
	"run.failed": func(t *talk, line []byte) ([]remote.Saying, error) {
		var d struct {
			Message   string `json:"message"`
			Retryable bool   `json:"retryable"`
		}
		if err := strict(line, &d); err != nil {
			return nil, err
		}
		t.failed = &model.Error{Code: event.CodeModelError, Message: d.Message, Retryable: d.Retryable}
		return nil, needs("message", d.Message != "")
	},
}

type nothing struct{}

type delta struct {
	Delta *string `json:"delta"`
}

func (d delta) check() error { return needs("delta", d.Delta != nil) }

func (d delta) text() string {
	if d.Delta == nil {
		return ""
	}
	return *d.Delta
}

func needs(what string, there bool) error {
	if there {
		return nil
	}
	return errors.New("it needs " + what)
}

func on[D any](word func(D) (remote.Saying, error)) func(*talk, []byte) ([]remote.Saying, error) {
	return several(func(d D) ([]remote.Saying, error) {
		s, err := word(d)
		return []remote.Saying{s}, err
	})
}

func several[D any](word func(D) ([]remote.Saying, error)) func(*talk, []byte) ([]remote.Saying, error) {
	return func(_ *talk, line []byte) ([]remote.Saying, error) {
		var d D
		if err := strict(line, &d); err != nil {
			return nil, err
		}
		return word(d)
	}
}

// strict refuses members that the word does not have: they are misspelt.
func strict(line []byte, into any) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(line, &members); err != nil {
		return err
	}
	delete(members, "type")
	dec := json.NewDecoder(bytes.NewReader(event.Encode(members)))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

type call struct {
	CallID string          `json:"call_id"`
	Name   string          `json:"name"`
	Args   json.RawMessage `json:"args"` // an object, or a text that is one
}

// started begins a call. Its id is one that the program has not used before: a
// second call of it may well be a mistake, and pay twice.
func started(t *talk, line []byte) ([]remote.Saying, error) {
	return several(func(d call) ([]remote.Saying, error) {
		if t.calls[d.CallID] {
			return nil, fmt.Errorf("the call_id %q was started before: give each call its own", d.CallID)
		}
		if t.calls == nil {
			t.calls = map[string]bool{}
		}
		t.calls[d.CallID] = true
		return begun(d)
	})(t, line)
}

func begun(d call) ([]remote.Saying, error) {
	list := []remote.Saying{remote.Call{CallID: d.CallID, Name: d.Name}}
	if d.Args != nil {
		args := string(d.Args)
		if json.Unmarshal(d.Args, &args) != nil {
			args = string(d.Args)
		}
		list = append(list, remote.Args{CallID: d.CallID, Delta: args})
	}
	return list, needs("call_id and name", d.CallID != "" && d.Name != "")
}

type result struct {
	CallID     string          `json:"call_id"`
	Content    json.RawMessage `json:"content"`
	Structured json.RawMessage `json:"structured"`
}

func completed(d result) (remote.Saying, error) {
	r := remote.Result{CallID: d.CallID, Structured: d.Structured}
	var text string
	switch {
	case d.Content == nil:
	case json.Unmarshal(d.Content, &text) == nil:
		r.Content = []event.Part{event.TextPart(text)}
	default:
		if err := json.Unmarshal(d.Content, &r.Content); err != nil {
			return nil, fmt.Errorf("content is a text or a list of parts: %w", err)
		}
	}
	for _, p := range r.Content {
		if p.Type != event.PartText && p.Type != event.PartJSON {
			return nil, fmt.Errorf("content has a part of type %q; give text or json", p.Type)
		}
	}
	return r, needs("content or structured", d.Content != nil || d.Structured != nil)
}

type file struct {
	Name      string  `json:"name"`
	MediaType string  `json:"media_type"`
	Text      *string `json:"text"`
	Base64    *string `json:"base64"`
}

func artifact(d file) (remote.Saying, error) {
	s := remote.Artifact{Name: d.Name, MediaType: d.MediaType}
	if s.MediaType == "" {
		s.MediaType = "application/octet-stream"
		if d.Text != nil {
			s.MediaType = "text/plain; charset=utf-8"
		}
	}
	switch {
	case d.Name == "" || (d.Text == nil) == (d.Base64 == nil):
		return nil, errors.New("it needs a name, and either text or base64")
	case d.Text != nil:
		s.Data = []byte(*d.Text)
		return s, nil
	}
	var err error
	s.Data, err = base64.StdEncoding.DecodeString(*d.Base64)
	return s, err
}
