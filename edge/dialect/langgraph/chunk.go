package langgraph

import (
	"encoding/json"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
)

// The nodes of the graph that an agent is for LangGraph.
const (
	nodeAgent = "agent"
	nodeTools = "tools"
)

// tuple begins the data of a messages event; end closes it.
func tuple(kind string, size int) dialect.Object {
	o := append(make(dialect.Object, 0, size+224), '[', '{')
	return o.Text("type", kind)
}

func endTuple(o dialect.Object, e event.Event) dialect.Message {
	o = append(o, '}', ',')
	o = meta(append(o, '{'), e, nodeAgent)
	return dialect.Message{Event: "messages", Data: append(o, '}', ']')}
}

// meta says whose a message is, as LangGraph's metadata does.
func meta(o dialect.Object, e event.Event, node string) dialect.Object {
	o = o.Text("run_id", e.RunID).Text("thread_id", e.SessionID).Text("langgraph_node", node)
	return append(o, `,"tags":[]`...)
}

const aiChunk = "AIMessageChunk"

// textDelta is one chunk of a message.
func (d Dialect) textDelta(e event.Event) []dialect.Message {
	id, text, ok := dialect.Delta(e.Data)
	if !ok {
		return nil
	}
	list := make([]dialect.Message, 0, 2)
	if d.in(Tuples) {
		o := tuple(aiChunk, len(e.Data)).Raw("id", id).Raw("content", text)
		list = append(list, endTuple(o, e))
	}
	if d.in(Events) {
		o := chain("on_chat_model_stream", e, nodeAgent).Open("data").Open("chunk").
			Text("type", aiChunk).Raw("id", id).Raw("content", text).Close().Close()
		list = append(list, o.Message("events"))
	}
	return list
}

// toolStarted begins a call's chunk: more arguments follow under its index.
func (d Dialect) toolStarted(e event.Event, t event.ToolStartedData) []dialect.Message {
	if !d.in(Tuples) {
		return nil
	}
	return []dialect.Message{callChunk(e, t.MessageID, t.Index, t.CallID, t.Name, "")}
}

type chunkOfCall struct {
	Type  string `json:"type"`
	ID    string `json:"id,omitempty"`
	Name  string `json:"name,omitempty"`
	Args  string `json:"args"`
	Index int    `json:"index"`
}

func callChunk(e event.Event, messageID string, index int, callID, name, args string) dialect.Message {
	o := tuple(aiChunk, 160+len(args)).Text("id", messageID).Text("content", "").
		Value("tool_call_chunks", []chunkOfCall{{"tool_call_chunk", callID, name, args, index}})
	return endTuple(o, e)
}

// result is what a tool has said, in whichever modes tell of it.
func (d Dialect) result(e event.Event, m message, tool toolEvent) []dialect.Message {
	var list []dialect.Message
	if d.in(Tuples) {
		o := append(make(dialect.Object, 0, 512), '[')
		o = append(append(o, event.Encode(m)...), ',', '{')
		list = append(list, dialect.Message{Event: "messages", Data: append(meta(o, e, nodeTools), '}', ']')})
	}
	if d.in(Messages) {
		list = append(list, whole("messages/complete", m))
	}
	if d.in(Updates) {
		list = append(list, update(nodeTools, m))
	}
	if d.in(Tools) {
		list = append(list, tool.message())
	}
	if d.in(Events) {
		list = append(list, chain("on_tool_end", e, nodeTools).Open("data").Value("output", m).Close().Message("events"))
	}
	return list
}

func (d Dialect) toolEnded(e event.Event, r dialect.Result) []dialect.Message {
	m := toolMessage(r, e.Type == event.ToolFailed)
	tool := toolEvent{Event: "on_tool_end", CallID: r.CallID, Name: r.Name, Output: m.Content}
	if e.Type == event.ToolFailed {
		tool = toolEvent{Event: "on_tool_error", CallID: r.CallID, Name: r.Name, Error: m.Content}
	}
	return d.result(e, m, tool)
}

// A toolEvent is one of the mode tools.
type toolEvent struct {
	Event  string          `json:"event"`
	CallID string          `json:"toolCallId"`
	Name   string          `json:"name,omitempty"`
	Input  json.RawMessage `json:"input,omitempty"`
	Data   *event.Progress `json:"data,omitempty"`
	Output any             `json:"output,omitempty"`
	Error  any             `json:"error,omitempty"`
}

func (t toolEvent) message() dialect.Message {
	return dialect.Message{Event: "tools", Data: event.Encode(t), Bare: true}
}

func (d Dialect) toolProgress(e event.Event, t event.ToolProgressData) []dialect.Message {
	list := d.generic(e)
	if d.in(Tools) {
		list = append(list, toolEvent{Event: "on_tool_event", CallID: t.CallID, Data: &t.Progress}.message())
	}
	return list
}

// chain begins an event of LangChain's.
func chain(name string, e event.Event, node string) dialect.Object {
	o := dialect.NewObject(288+len(e.Data)).Text("event", name).Text("name", node).Text("run_id", e.RunID)
	o = append(o, `,"tags":[]`...)
	return o.Open("metadata").Text("thread_id", e.SessionID).Text("langgraph_node", node).Close()
}

func (d Dialect) chain(name string, e event.Event, node, member string, v any) []dialect.Message {
	if !d.in(Events) {
		return nil
	}
	return chain(name, e, node).Open("data").Value(member, v).Close().One("events")
}

func (d Dialect) stepStarted(e event.Event, s event.StepStartedData) []dialect.Message {
	return d.chain("on_chat_model_start", e, nodeAgent, "step", s.Step)
}

func (d Dialect) stepCompleted(e event.Event, s event.StepCompletedData) []dialect.Message {
	return d.chain("on_chat_model_end", e, nodeAgent, "usage_metadata", s.Usage)
}

// messageStarted is told to who reads messages as a whole.
func (d Dialect) messageStarted(e event.Event, m event.MessageStartedData) []dialect.Message {
	if !d.in(Messages) {
		return nil
	}
	o := meta(dialect.NewObject(256).Open(jsonName(m.MessageID)).Open("metadata"), e, nodeAgent)
	return o.Close().Close().One("messages/metadata")
}

// jsonName is a member's name out of an id, which may hold anything.
func jsonName(id string) string {
	quoted := event.Encode(id)
	return string(quoted[1 : len(quoted)-1])
}

// generic tells of an event by its name.
func (d Dialect) generic(e event.Event) []dialect.Message {
	if !d.in(Custom) {
		return nil
	}
	return d.tagged(e).Raw("data", dialect.PublicData(e)).One("custom")
}

func (d Dialect) custom(e event.Event, c event.CustomData) []dialect.Message {
	if !d.in(Custom) {
		return nil
	}
	return d.tagged(e).Text("name", c.Name).Raw("value", c.Value).One("custom")
}

func (d Dialect) tagged(e event.Event) dialect.Object {
	o := dialect.NewObject(128+len(e.Data)).Text("type", string(e.Type))
	if e.Agent != "" {
		o = o.Text("agent", e.Agent).Text("run_id", e.RunID)
	}
	return o
}
