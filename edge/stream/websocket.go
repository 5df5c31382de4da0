package stream

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
)

// WebSocket has one JSON object per message, with the three fields of SSE: id,
// event and data. Each is a line: whoever sends them makes a message of it.
type WebSocket struct{}

// ContentType is nobody's: the protocol has none.
func (WebSocket) ContentType() string { return "" }

// Append leaves out what is empty. Data that is no JSON is a string.
func (WebSocket) Append(b []byte, id string, m dialect.Message) []byte {
	b = append(b, '{')
	if id != "" {
		b = append(strconv.AppendQuote(append(b, `"id":`...), id), ',')
	}
	if m.Event != "" {
		b = append(append(append(b, `"event":`...), event.Encode(m.Event)...), ',')
	}
	data := m.Data
	if !bytes.HasPrefix(data, []byte("{")) && !json.Valid(data) {
		data = event.Encode(string(data))
	}
	return append(append(append(b, `"data":`...), data...), "}\n"...)
}

// Hello is nothing.
func (WebSocket) Hello(b []byte) []byte { return b }

// Ping is left to the protocol's own.
func (WebSocket) Ping(b []byte) []byte { return b }
