package dialect

import (
	"bytes"
	"encoding/json"

	"github.com/runlog-dev/runlog/event"
)

// Delta returns the two strings of a delta event's data as JSON, quotes included:
// whose it is, and the delta. As runlog writes them they are found without
// decoding.
func Delta(data json.RawMessage) (id, text json.RawMessage, ok bool) {
	if id, text, ok = cutDelta(data); ok {
		return id, text, true
	}
	var d struct {
		MessageID   *string `json:"message_id"`
		ReasoningID *string `json:"reasoning_id"`
		CallID      *string `json:"call_id"`
		Delta       *string `json:"delta"`
	}
	if json.Unmarshal(data, &d) != nil || d.Delta == nil {
		return nil, nil, false
	}
	for _, of := range []*string{d.MessageID, d.ReasoningID, d.CallID} {
		if of != nil {
			return event.Encode(*of), event.Encode(*d.Delta), true
		}
	}
	return nil, nil, false
}

// cutDelta takes {"…_id":id,"delta":text} apart.
func cutDelta(data []byte) (id, text []byte, ok bool) {
	const second = `,"delta":`
	if len(data) == 0 || data[0] != '{' {
		return nil, nil, false
	}
	n := quoted(data[1:]) + 1
	if n < 6 || string(data[n-4:n]) != `_id"` || len(data) == n || data[n] != ':' {
		return nil, nil, false
	}
	data = data[n+1:]
	n = quoted(data)
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

// Unquoted is the text that a JSON string stands for.
func Unquoted(quoted json.RawMessage) string {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1])
	}
	var s string
	_ = json.Unmarshal(quoted, &s) // it is one
	return s
}

// Quotes reports whether a JSON string stands for a text, if that is plain: for one that
// needs escapes it says no.
func Quotes(quoted json.RawMessage, text string) bool {
	return len(quoted) == len(text)+2 && string(quoted[1:len(quoted)-1]) == text
}
