// Package anthropic has the dialect of Anthropic's Messages: a run as one message
// of content blocks.
//
//   - text and thinking as they are written;
//   - server_tool_use and mcp_tool_result for tools that run here, each whole;
//   - tool_use for tools of the client's, whole, once the message that calls them
//     stands. The run is parked then, and the message ends: stop_reason tool_use.
//
// Blocks are numbered, so the dialect follows its run. A block cannot be taken
// back: what an attempt that was discarded has said stands as a block of its own.
// A run that fails ends with an error and without message_stop; one that was
// cancelled or stopped has the stop_reason pause_turn.
package anthropic

import (
	"encoding/json"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
)

// Dialect tells messages.
type Dialect struct {
	dialect.Quiet

	From event.Seq // the message is what comes after this event
}

// Name is anthropic.
func (Dialect) Name() string { return "anthropic" }

// Begin returns an encoder.
func (d Dialect) Begin() dialect.Encoder { return NewMessage(d) }

// Event encodes an event as if it were the first.
func (d Dialect) Event(e event.Event, line []byte, to dialect.Audience) []dialect.Message {
	return d.Begin().Next(e, line, to)
}

// Snapshot tells the run under way, or the last one, from a fold.
func (d Dialect) Snapshot(kind dialect.Kind, s *event.Session, to dialect.Audience) []dialect.Message {
	return d.Begin().Snapshot(kind, s, to)
}

// Lost says what Messages have no word for.
func (Dialect) Lost() map[event.Type]string {
	return dialect.Untold("a message holds what the model says and calls, and nothing beside it",
		event.RunStarted, event.TextDelta, event.MessageCompleted, event.MessageDiscarded, event.ReasoningStarted, event.ReasoningDelta,
		event.ReasoningCompleted, event.ToolArgs, event.ToolCompleted, event.ToolFailed, event.RunStatus,
		event.RunCompleted, event.RunFailed, event.RunCancelled)
}

// A Message is one in the making.
type Message struct {
	d      Dialect
	run    string
	id     string
	seq    event.Seq // of the event that is told
	model  string
	begun  bool
	stop   string
	usage  usage
	err    *event.RunError
	blocks int
	open   block  // the last one, if it is open
	text   []byte // of the open block, as the inside of a JSON string
	calls  map[string]call
	made   []json.RawMessage
	list   []dialect.Message
}

// A block is of a kind, text or thinking, and of a message or of reasoning.
type block struct{ kind, of string }

type call struct {
	name, args string
	client     bool
}

// Kept is the size of the blocks that are done.
func (m *Message) Kept() (n int) {
	for _, block := range m.made {
		n += len(block)
	}
	return n
}

// NewMessage returns an encoder that can be asked for the message so far.
func NewMessage(d Dialect) *Message { return &Message{d: d} }

var tellers = map[event.Type]func(*Message, event.Event){
	event.RunStarted:         dialect.Take((*Message).runStarted),
	event.TextDelta:          (*Message).textDelta,
	event.MessageCompleted:   dialect.Take((*Message).messageCompleted),
	event.MessageDiscarded:   func(m *Message, _ event.Event) { m.close() },
	event.ReasoningStarted:   dialect.Take((*Message).reasoningStarted),
	event.ReasoningDelta:     (*Message).reasoningDelta,
	event.ReasoningCompleted: dialect.Take((*Message).reasoningCompleted),
	event.ToolStarted:        dialect.Take((*Message).toolStarted),
	event.ToolArgs:           dialect.Take((*Message).toolArgs),
	event.ToolCompleted:      dialect.Take((*Message).toolEnded),
	event.ToolFailed:         dialect.Take((*Message).toolEnded),
	event.RunStatus:          dialect.Take((*Message).runStatus),
	event.RunCompleted:       dialect.Take((*Message).runCompleted),
	event.RunFailed:          dialect.Take((*Message).runFailed),
	event.RunCancelled:       dialect.Take((*Message).runCancelled),
}

// Next tells of an event. What sub-agents do is a part of the call that began them.
func (m *Message) Next(e event.Event, _ []byte, _ dialect.Audience) []dialect.Message {
	tell := tellers[e.Type]
	if e.Internal || e.Agent != "" || tell == nil {
		return nil
	}
	if m.calls == nil || e.Type == event.RunStarted {
		*m = Message{d: m.d, run: e.RunID, id: e.RunID, calls: map[string]call{}}
	}
	m.seq = e.Seq
	tell(m, e)
	list := m.list
	m.list = nil
	if e.Seq <= m.d.From { // another message tells it
		m.begun, m.blocks, m.open, m.text, m.made, m.stop = false, 0, block{}, nil, nil, ""
		return nil
	}
	return list
}

// Snapshot tells a run anew.
func (m *Message) Snapshot(_ dialect.Kind, s *event.Session, to dialect.Audience) []dialect.Message {
	run := dialect.Shown(s, "")
	if run == nil {
		return nil
	}
	m.d.From = 0
	return dialect.Retold(m, s, run, to)
}
