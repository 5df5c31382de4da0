package agui_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/runlog-dev/runlog/event"
)

// A reader takes messages as AG-UI's clients do: it refuses what they refuse and
// keeps what they keep.
type reader struct {
	running  bool
	open     map[string]bool // kind and id
	messages []entry
	state    json.RawMessage
	errors   int
}

type entry struct {
	id, role, text string
	calls          []string // id, name and arguments
}

type wire struct {
	Type     string          `json:"type"`
	Message  string          `json:"messageId"`
	Call     string          `json:"toolCallId"`
	CallName string          `json:"toolCallName"`
	Parent   string          `json:"parentMessageId"`
	Role     string          `json:"role"`
	Delta    json.RawMessage `json:"delta"`
	Content  json.RawMessage `json:"content"`
	Step     string          `json:"stepName"`
	Sub      string          `json:"subagentRunId"`
	Activity string          `json:"activityType"`
	Patch    json.RawMessage `json:"patch"`
	State    json.RawMessage `json:"snapshot"`
	Messages []struct {
		ID      string `json:"id"`
		Role    string `json:"role"`
		Content string `json:"content"`
		Calls   []struct {
			ID       string `json:"id"`
			Function struct{ Name, Arguments string }
		} `json:"toolCalls"`
	} `json:"messages"`
}

func newReader() *reader { return &reader{open: map[string]bool{}, state: json.RawMessage(`{}`)} }

// read takes one message.
func (r *reader) read(data []byte) error {
	var m wire
	if err := json.Unmarshal(data, &m); err != nil {
		return err
	}
	if err := r.lifecycle(m); err != nil {
		return err
	}
	if err := r.bracket(m); err != nil {
		return err
	}
	return r.keep(m)
}

func (r *reader) lifecycle(m wire) error {
	switch {
	case m.Type == "RUN_STARTED" && r.running:
		return fmt.Errorf("RUN_STARTED while a run is active")
	case m.Type == "RUN_STARTED":
		r.running, r.open = true, map[string]bool{}
	case m.Type == "RUN_ERROR":
		r.running = false
		r.errors++
	case !r.running:
		return fmt.Errorf("%s outside of a run", m.Type)
	case m.Type == "RUN_FINISHED":
		for what, open := range r.open {
			if open {
				return fmt.Errorf("RUN_FINISHED with %s open", what)
			}
		}
		r.running = false
	}
	return nil
}

// bracket checks what is opened and closed.
func (r *reader) bracket(m wire) error {
	kinds := []struct{ prefix, id string }{
		{"TEXT_MESSAGE", m.Message}, {"TOOL_CALL", m.Call}, {"REASONING_MESSAGE", m.Message}, {"REASONING", m.Message},
		{"STEP", m.Sub + "/" + m.Step}, {"SUBAGENT", m.Sub},
	}
	for _, k := range kinds {
		verb, ok := strings.CutPrefix(m.Type, k.prefix+"_")
		if !ok {
			continue
		}
		key := k.prefix + " " + k.id
		switch verb {
		case "START", "STARTED":
			if r.open[key] {
				return fmt.Errorf("%s is open already", key)
			}
			r.open[key] = true
		case "CONTENT", "ARGS", "END", "FINISHED", "ERROR":
			if !r.open[key] {
				return fmt.Errorf("%s: %s is not open", verb, key)
			}
			r.open[key] = verb == "CONTENT" || verb == "ARGS"
		}
		return nil
	}
	return nil
}

func (r *reader) find(id string) int {
	return slices.IndexFunc(r.messages, func(e entry) bool { return e.id == id })
}

func (r *reader) ensure(id, role string) *entry {
	i := r.find(id)
	if i < 0 {
		i = len(r.messages)
		r.messages = append(r.messages, entry{id: id, role: role})
	}
	return &r.messages[i]
}

func text(raw json.RawMessage) (s string) {
	_ = json.Unmarshal(raw, &s)
	return s
}

func (r *reader) keep(m wire) error {
	switch m.Type {
	case "TEXT_MESSAGE_START", "REASONING_MESSAGE_START":
		r.ensure(m.Message, m.Role)
	case "TEXT_MESSAGE_CONTENT", "REASONING_MESSAGE_CONTENT":
		r.ensure(m.Message, "").text += text(m.Delta)
	case "TOOL_CALL_START":
		owner := r.ensure(m.Parent, "assistant")
		if !slices.ContainsFunc(owner.calls, func(c string) bool { return strings.HasPrefix(c, m.Call+" ") }) {
			owner.calls = append(owner.calls, m.Call+" "+m.CallName+" ")
		}
	case "TOOL_CALL_ARGS":
		for i := range r.messages {
			for j, c := range r.messages[i].calls {
				if strings.HasPrefix(c, m.Call+" ") {
					r.messages[i].calls[j] += text(m.Delta)
				}
			}
		}
	case "TOOL_CALL_RESULT":
		if r.find(m.Message) >= 0 {
			return fmt.Errorf("a second result %s", m.Message)
		}
		r.messages = append(r.messages, entry{id: m.Message, role: "tool", text: text(m.Content)})
	case "STATE_SNAPSHOT":
		r.state = m.State
	case "STATE_DELTA":
		next, err := event.Patch(r.state, m.Delta)
		if err != nil {
			return err
		}
		r.state = next
	case "ACTIVITY_SNAPSHOT":
		*r.ensure(m.Message, "activity") = entry{id: m.Message, role: "activity", text: string(m.Content)}
	case "ACTIVITY_DELTA":
		a := r.ensure(m.Message, "activity")
		next, err := event.Patch(json.RawMessage(a.text), m.Patch)
		if err != nil || m.Activity == "" {
			return fmt.Errorf("activity %s: %w", m.Message, err)
		}
		a.text = string(next)
	case "MESSAGES_SNAPSHOT":
		r.replace(m)
	}
	return nil
}

// replace keeps what a snapshot does not speak of: activities, and reasoning if
// it has none.
func (r *reader) replace(m wire) {
	reasoned := false
	stays := map[string]entry{}
	for _, n := range m.Messages {
		e := entry{id: n.ID, role: n.Role, text: n.Content}
		for _, c := range n.Calls {
			e.calls = append(e.calls, c.ID+" "+c.Function.Name+" "+c.Function.Arguments)
		}
		stays[n.ID] = e
		reasoned = reasoned || n.Role == "reasoning"
	}
	r.messages = slices.DeleteFunc(r.messages, func(e entry) bool {
		_, ok := stays[e.id]
		return !ok && e.role != "activity" && (e.role != "reasoning" || reasoned)
	})
	for i, e := range r.messages {
		if n, ok := stays[e.id]; ok {
			r.messages[i] = n
		}
	}
	for _, n := range m.Messages {
		if r.find(n.ID) < 0 {
			r.messages = append(r.messages, stays[n.ID])
		}
	}
}

// knows is what the reader has in the end, in an order that does not depend on
// how it came to know it; reasoning that was taken back counts for nothing.
func (r *reader) knows() string {
	list := slices.DeleteFunc(slices.Clone(r.messages), func(e entry) bool { return e.role == "reasoning" && e.text == "" })
	slices.SortFunc(list, func(a, b entry) int { return strings.Compare(a.id, b.id) })
	return fmt.Sprintf("%q %s", list, r.state)
}
