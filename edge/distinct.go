package edge

import (
	"slices"

	"github.com/runlog-dev/runlog/event"
)

// distinct holds what a request brings against itself: a message or a tool call
// that is there twice in the same words counts once, and two different ones with
// one id are refused, since the log could keep only one of them. The list itself
// is left as it is.
func distinct(list []inputMessage) ([]inputMessage, error) {
	b := brought{map[string]string{}, map[string]*event.PastCall{}}
	out := make([]inputMessage, 0, len(list))
	for _, m := range list {
		again, err := b.message(&m)
		if err != nil {
			return nil, err
		}
		if !again {
			out = append(out, m)
		}
	}
	return out, nil
}

// brought is what a request has brought so far, by id.
type brought struct {
	messages map[string]string // what each says
	calls    map[string]*event.PastCall
}

// message leaves the calls out of m that were there before; again: nothing of it
// is new.
func (b *brought) message(m *inputMessage) (again bool, err error) {
	says, calls := saying(m), len(m.Calls)
	if m.Calls, err = b.newCalls(m.Calls); err != nil {
		return false, err
	}
	before, known := b.messages[m.MessageID]
	switch {
	case m.MessageID == "" || !known:
		b.messages[m.MessageID] = says
	case before != says:
		return false, bad("message_id", "two different messages of the request have the id %q: send one of them, or give each an id of its own", m.MessageID)
	default:
		return true, nil
	}
	return calls > 0 && len(m.Calls)+len(m.Parts) == 0, nil
}

// saying is what a message says, without the answers to its calls.
func saying(m *inputMessage) string {
	said := event.InputMessage{Role: m.Role, Parts: m.Parts}
	for _, c := range m.Calls {
		said.Calls = append(said.Calls, event.PastCall{CallID: c.CallID, Name: c.Name, Args: c.Args})
	}
	return string(event.Encode(said))
}

func (b *brought) newCalls(list []event.PastCall) ([]event.PastCall, error) {
	calls := make([]event.PastCall, 0, len(list)) // its items are pointed to: it does not grow
	for _, c := range list {
		before := b.calls[c.CallID]
		switch {
		case c.CallID == "":
			return nil, bad("tool_calls", "a call of the tool %q has no id: give each call an id of its own", c.Name)
		case before == nil:
			calls = append(calls, c)
			b.calls[c.CallID] = &calls[len(calls)-1]
		case before.Name != c.Name || before.Args != c.Args:
			return nil, bad("tool_calls", "two different tool calls of the request have the id %q: give each an id of its own", c.CallID)
		case before.Content == nil:
			before.Content = c.Content
		case c.Content != nil && !sameContent(before.Content, c.Content):
			return nil, twoResults("tool_calls", c.CallID)
		}
	}
	return slices.Clip(calls), nil
}

func sameContent(a, b []event.Part) bool {
	return string(event.Encode(a)) == string(event.Encode(b))
}

func twoResults(param, callID string) error {
	return bad(param, "the tool call %q has two different results in the request: send one", callID)
}
