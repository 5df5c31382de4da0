package mcp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"

	"github.com/runlog-dev/runlog/event"
)

// maxNote bounds what is logged of a line that is no message.
const maxNote = 2 << 10

// A wire sees what a server sends before the SDK does, and makes up for four
// things that the SDK does not do: numbers of structured results keep all their
// digits and schemas their order (the SDK decodes both into maps and floats);
// progress is reported before the answer that follows it; an answer over the
// limit fails its call, not the whole connection; and a line on stdout that is
// no message is skipped.
type wire struct {
	limit    int // bytes of a message
	progress func(token string, p event.Progress)
	log      *slog.Logger
}

// lines reads src line by line. each makes of a line what the SDK gets instead;
// a line over the limit was cut short, and outline knows what it was.
func (w *wire) lines(src io.Reader, each func(line []byte, over *outline) []byte) io.Reader {
	return &lineReader{src: bufio.NewReaderSize(src, 64<<10), limit: w.limit, each: each}
}

// stdio takes a line of standard output, which is one message.
func (w *wire) stdio(line []byte, over *outline) []byte {
	if over == nil && !bytes.HasPrefix(line, []byte("{")) && !bytes.HasPrefix(line, []byte("[")) {
		if len(line) > 0 {
			w.log.Debug("mcp server stdout is no message", "line", string(line[:min(len(line), maxNote)]))
		}
		return nil
	}
	msg := w.message(line, over)
	if msg == nil {
		return nil
	}
	return append(msg, '\n')
}

// sse takes a line of an event stream.
func (w *wire) sse(line []byte, over *outline) []byte {
	data, ok := bytes.CutPrefix(line, []byte("data:"))
	if !ok && over == nil {
		return append(line, '\n')
	}
	msg := w.message(bytes.TrimLeft(data, " "), over)
	return fmt.Appendf(nil, "data: %s\n", msg)
}

// message looks at one message and returns it, or what stands for it; nil if
// nothing does.
func (w *wire) message(msg []byte, over *outline) []byte {
	if over != nil {
		return w.refusal(over)
	}
	if bytes.Contains(msg, []byte(`"progressToken"`)) {
		w.report(msg)
	}
	if bytes.Contains(msg, []byte(`"structuredContent"`)) || bytes.Contains(msg, []byte(`"inputSchema"`)) {
		return keepRaw(msg)
	}
	return msg
}

func (w *wire) report(msg []byte) {
	var n struct {
		Method string `json:"method"`
		Params struct {
			Token any `json:"progressToken"`
			event.Progress
		} `json:"params"`
	}
	if json.Unmarshal(msg, &n) != nil || n.Method != "notifications/progress" {
		return
	}
	if token, ok := n.Params.Token.(string); ok {
		w.progress(token, n.Params.Progress)
	}
}

// refusal answers a call in the server's place. What is no answer is dropped.
func (w *wire) refusal(over *outline) []byte {
	w.log.Warn("mcp message over the limit", "bytes", over.size, "limit", w.limit)
	id := bytes.TrimSpace(over.id)
	if over.request || !json.Valid(id) {
		return nil
	}
	text, _ := json.Marshal(fmt.Sprintf(
		"The answer of %d bytes is over the limit of %d. Ask for less.", over.size, w.limit))
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":%s}}`, id, text)
}

// Where keepRaw puts the raw text of what the SDK decodes.
const (
	rawStructured = "runlog/structured"
	rawSchema     = "runlog/input_schema"
)

// keepRaw copies structuredContent of a result, and inputSchema of each tool of
// a list, as text into the _meta beside it. The structured content itself is
// spared the decoding, which fails at some numbers. A message that is neither
// kind of result is returned as it is.
func keepRaw(msg []byte) []byte {
	var m, result map[string]json.RawMessage
	if json.Unmarshal(msg, &m) != nil || json.Unmarshal(m["result"], &result) != nil {
		return msg
	}
	if stash(result, "structuredContent", rawStructured) {
		result["structuredContent"] = json.RawMessage("true")
	}
	var tools []map[string]json.RawMessage
	if json.Unmarshal(result["tools"], &tools) == nil {
		for _, t := range tools {
			stash(t, "inputSchema", rawSchema)
		}
		result["tools"] = encode(tools)
	}
	m["result"] = encode(result)
	return encode(m)
}

func stash(object map[string]json.RawMessage, key, metaKey string) bool {
	raw, ok := object[key]
	if !ok || string(raw) == "null" {
		return false
	}
	meta := map[string]json.RawMessage{}
	_ = json.Unmarshal(object["_meta"], &meta)
	if meta == nil { // it was null
		meta = map[string]json.RawMessage{}
	}
	meta[metaKey] = encode(string(raw))
	object["_meta"] = encode(meta)
	return true
}

// encode leaves <, > and & alone, unlike json.Marshal. It is given what was
// decoded before, so that it cannot fail.
func encode(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return []byte("null")
	}
	return bytes.TrimRight(b.Bytes(), "\n")
}
