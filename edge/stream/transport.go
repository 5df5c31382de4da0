package stream

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
)

// A Transport is how wire messages leave over HTTP: it frames them, purely, so
// that what it returns is shared by all viewers. Values must be comparable.
type Transport interface {
	// ContentType of the answer.
	ContentType() string
	// Append appends one framed message; id is empty if the message does not
	// move the client's cursor.
	Append(b []byte, id string, m dialect.Message) []byte
	// Hello appends what a stream begins with.
	Hello(b []byte) []byte
	// Ping appends a sign of life that clients ignore.
	Ping(b []byte) []byte
}

// SSE is the text/event-stream of the WHATWG, with LF alone as line end: some
// clients know no other.
type SSE struct{}

// ContentType of server-sent events.
func (SSE) ContentType() string { return "text/event-stream; charset=utf-8" }

// Append writes id, event and data lines in this order.
func (SSE) Append(b []byte, id string, m dialect.Message) []byte {
	if id != "" {
		b = append(append(append(b, "id: "...), id...), '\n')
	}
	if m.Event != "" {
		b = append(append(append(b, "event: "...), m.Event...), '\n')
	}
	return append(append(append(b, "data: "...), m.Data...), "\n\n"...)
}

// Hello says when to come back after a lost connection; not all at once.
func (SSE) Hello(b []byte) []byte {
	return append(strconv.AppendInt(append(b, "retry: "...), 1000+rand.Int64N(1000), 10), "\n\n"...)
}

// Ping is a comment.
func (SSE) Ping(b []byte) []byte { return append(b, ": ping\n\n"...) }

// NDJSON has one message per line; each says its type, and seq is in the body.
type NDJSON struct{}

// ContentType of lines of JSON.
func (NDJSON) ContentType() string { return "application/x-ndjson" }

// Append writes the line, with its type if the data does not say it, and its position if
// that is more than the seq that the data says.
func (NDJSON) Append(b []byte, id string, m dialect.Message) []byte {
	if !m.Bare {
		return append(append(b, m.Data...), '\n')
	}
	b = append(append(append(b, `{"type":"`...), m.Event...), '"')
	if strings.Contains(id, "~") {
		b = append(append(append(b, `,"id":"`...), id...), '"')
	}
	if len(m.Data) > len("{}") {
		b = append(b, ',')
	}
	return append(append(b, m.Data[1:]...), '\n')
}

// Hello is nothing.
func (NDJSON) Hello(b []byte) []byte { return b }

// Ping is a line, since readers of lines do not take empty ones.
func (NDJSON) Ping(b []byte) []byte { return append(b, `{"type":"ping"}`+"\n"...) }

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

// Lines has the fields of SSE in one JSON object a line. It is for streams in lines whose
// messages do not hold the client's cursor.
type Lines struct{ WebSocket }

// ContentType of lines of JSON.
func (Lines) ContentType() string { return "application/x-ndjson" }

// Ping is a line, since readers of lines do not take empty ones.
func (Lines) Ping(b []byte) []byte { return append(b, `{"event":"ping"}`+"\n"...) }
