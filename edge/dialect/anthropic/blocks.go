package anthropic

import (
	"encoding/json"
	"strconv"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
)

// start begins a wire message.
func start(kind string, size int) dialect.Object {
	return dialect.NewObject(size+64).Text("type", kind)
}

func (m *Message) emit(kind string, o dialect.Object) { m.list = append(m.list, o.Message(kind)) }

// about begins a wire message about the last block.
func (m *Message) about(kind string, size int) dialect.Object {
	return strconv.AppendInt(append(start(kind, size), `,"index":`...), int64(m.blocks-1), 10)
}

// openBlock closes the open block and opens another.
func (m *Message) openBlock(open block, content any) {
	m.close()
	m.begin()
	m.blocks++
	m.open = open
	m.emit("content_block_start", m.about("content_block_start", 64).Value("content_block", content))
}

// delta adds text, a JSON string, to the open block.
func (m *Message) delta(kind, member string, text json.RawMessage) {
	o := append(m.about("content_block_delta", len(text)+64), `,"delta":{"type":"`...)
	o = append(append(append(append(o, kind...), `","`...), member...), `":`...)
	m.emit("content_block_delta", append(append(o, text...), '}'))
}

// done ends the open block, which is what final says.
func (m *Message) done(final any) {
	m.open, m.text = block{}, nil
	m.emit("content_block_stop", m.about("content_block_stop", 0))
	m.made = append(m.made, event.Encode(final))
}

// close ends the block that is open, if one is.
func (m *Message) close() {
	switch m.open.kind {
	case "text":
		m.done(text{"text", joined(m.text)})
	case "thinking":
		m.done(thinking{"thinking", joined(m.text), ""})
	}
}

// joined is the text of JSON strings that were put one after the other.
func joined(strings []byte) string {
	var s string
	_ = json.Unmarshal(append(append([]byte{'"'}, strings...), '"'), &s) // each of them is valid
	return s
}

type (
	text struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	thinking struct {
		Type      string `json:"type"`
		Thinking  string `json:"thinking"`
		Signature string `json:"signature"`
	}
	use struct {
		Type  string          `json:"type"`
		ID    string          `json:"id"`
		Name  string          `json:"name"`
		Input json.RawMessage `json:"input"`
	}
	result struct {
		Type    string `json:"type"`
		ID      string `json:"tool_use_id"`
		IsError bool   `json:"is_error"`
		Content []text `json:"content"`
	}
)

func (m *Message) textDelta(e event.Event) {
	id, delta, ok := dialect.Delta(e.Data)
	if !ok {
		return
	}
	if m.open.kind != "text" || m.open.of != string(id) {
		m.openBlock(block{"text", string(id)}, text{Type: "text"})
	}
	m.text = append(m.text, delta[1:len(delta)-1]...)
	m.delta("text_delta", "text", delta)
}

// messageCompleted ends the text. The calls that the client has to run are told
// now that they stand.
func (m *Message) messageCompleted(e event.Event, d event.MessageCompletedData) {
	if d.Role != event.RoleAssistant || e.CommandID != "" {
		return
	}
	m.close()
	for _, p := range d.Parts {
		if c, ok := m.calls[p.CallID]; p.Type == event.PartToolCall && ok && c.client && !p.Internal {
			m.use("tool_use", p.CallID, c)
		}
	}
}

func (m *Message) reasoningStarted(_ event.Event, d event.ReasoningStartedData) {
	m.openBlock(block{"thinking", d.ReasoningID}, thinking{Type: "thinking"})
}

func (m *Message) reasoningDelta(e event.Event) {
	_, delta, ok := dialect.Delta(e.Data)
	if !ok || m.open.kind != "thinking" {
		return
	}
	m.text = append(m.text, delta[1:len(delta)-1]...)
	m.delta("thinking_delta", "thinking", delta)
}

func (m *Message) reasoningCompleted(_ event.Event, d event.ReasoningCompletedData) {
	if m.open != (block{"thinking", d.ReasoningID}) {
		return
	}
	m.delta("signature_delta", "signature", event.Encode(d.Signature))
	m.done(thinking{"thinking", d.Text, d.Signature})
}

func (m *Message) toolStarted(_ event.Event, d event.ToolStartedData) {
	m.calls[d.CallID] = call{name: d.Name, client: d.Executor == event.ByClient}
}

func (m *Message) toolArgs(e event.Event, d event.ToolArgsData) {
	c := m.calls[d.CallID]
	c.name, c.args = d.Name, d.Args
	m.calls[d.CallID] = c
	if !c.client && e.CommandID == "" {
		m.use("server_tool_use", d.CallID, c)
	}
}

func (m *Message) use(kind, id string, c call) {
	input := dialect.Arguments(c.args)
	if input[0] != '{' { // clients expect an object
		input = event.Encode(struct {
			Text string `json:"text"`
		}{c.args})
	}
	m.openBlock(block{kind: kind}, use{kind, id, c.name, json.RawMessage("{}")})
	m.delta("input_json_delta", "partial_json", event.Encode(string(input)))
	m.done(use{kind, id, c.name, input})
}

// toolEnded tells what a tool here has returned; clients have what theirs did.
func (m *Message) toolEnded(e event.Event, r dialect.Result) {
	c, ok := m.calls[r.CallID]
	if !ok || c.client {
		return
	}
	whole := result{"mcp_tool_result", r.CallID, e.Type == event.ToolFailed, []text{{"text", r.Text()}}}
	m.openBlock(block{kind: whole.Type}, whole)
	m.done(whole)
}
