package agui

import (
	"encoding/json"
	"unicode/utf8"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
)

// A frame is a wire message in the making: an object that is still open.
type frame []byte

// begin opens a message; those of a sub-agent say whose they are.
func begin(kind string, e event.Event) frame {
	f := make(frame, 0, 96+len(e.Data))
	f = append(f, `{"type":"`...)
	f = append(append(f, kind...), '"')
	if !own(e) {
		return f.text("subagentRunId", e.RunID)
	}
	return f
}

func (f frame) name(name string) frame {
	f = append(f, ',', '"')
	f = append(f, name...)
	return append(f, '"', ':')
}

// text adds a string.
func (f frame) text(name, value string) frame { return appendString(f.name(name), value) }

// some adds a string if there is one.
func (f frame) some(name, value string) frame {
	if value == "" {
		return f
	}
	return f.text(name, value)
}

// raw adds JSON if there is any: an absent member is left out.
func (f frame) raw(name string, value json.RawMessage) frame {
	if len(value) == 0 {
		return f
	}
	return append(f.name(name), value...)
}

// value adds anything.
func (f frame) value(name string, v any) frame { return append(f.name(name), event.Encode(v)...) }

func (f frame) end() dialect.Message { return dialect.Message{Data: append(f, '}')} }

func (f frame) alone() []dialect.Message { return []dialect.Message{f.end()} }

// appendString takes the short way for plain text.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c >= utf8.RuneSelf || c == '"' || c == '\\' {
			return append(b, event.Encode(s)...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// The deltas are most of what there is. Their data is copied as it stands in the
// log, if it stands there as runlog writes it.

func textDelta(_ Dialect, e event.Event) []dialect.Message {
	return delta("TEXT_MESSAGE_CONTENT", `"messageId":`, `{"message_id":`, e)
}

func reasoningDelta(_ Dialect, e event.Event) []dialect.Message {
	return delta("REASONING_MESSAGE_CONTENT", `"messageId":`, `{"reasoning_id":`, e)
}

func toolArgsDelta(_ Dialect, e event.Event) []dialect.Message {
	return delta("TOOL_CALL_ARGS", `"toolCallId":`, `{"call_id":`, e)
}

// delta makes {"type":kind,as:id,"delta":text} of {member:id,"delta":text}.
func delta(kind, as, member string, e event.Event) []dialect.Message {
	f := begin(kind, e)
	if id, text, ok := cutDelta(e.Data, member); ok {
		f = append(append(append(f, ','), as...), id...)
		f = append(append(f, `,"delta":`...), text...)
		return f.alone()
	}
	var d struct {
		MessageID   string `json:"message_id"`
		ReasoningID string `json:"reasoning_id"`
		CallID      string `json:"call_id"`
		Delta       string `json:"delta"`
	}
	if e.Into(&d) != nil {
		return nil
	}
	f = append(append(f, ','), as...)
	f = appendString(f, d.MessageID+d.ReasoningID+d.CallID) // one of them
	return f.text("delta", d.Delta).alone()
}

// cutDelta finds the two strings of a delta's data, quotes included.
func cutDelta(data []byte, member string) (id, text []byte, ok bool) {
	const second = `,"delta":`
	if len(data) < len(member) || string(data[:len(member)]) != member {
		return nil, nil, false
	}
	data = data[len(member):]
	n := quoted(data)
	if n == 0 || len(data) < n+len(second) || string(data[n:n+len(second)]) != second {
		return nil, nil, false
	}
	id, data = data[:n], data[n+len(second):]
	n = quoted(data)
	return id, data[:n], n > 0 && len(data) == n+1 && data[n] == '}'
}

// quoted is the length of the JSON string that data begins with, 0 if none does.
func quoted(data []byte) int {
	if len(data) == 0 || data[0] != '"' {
		return 0
	}
	for i := 1; i < len(data); i++ {
		switch data[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return 0
}
