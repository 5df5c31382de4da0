package agui

import (
	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
)

// object opens a message of a kind.
func object(kind string) dialect.Object { return sized(kind, 0) }

func sized(kind string, size int) dialect.Object {
	return dialect.NewObject(32+size).Text("type", kind)
}

// begin opens a message about an event; those of a sub-agent say whose they are.
func begin(kind string, e event.Event) dialect.Object {
	o := sized(kind, len(e.Data))
	if !own(e) {
		return o.Text("subagentRunId", e.RunID)
	}
	return o
}

func textDelta(_ Dialect, e event.Event) []dialect.Message {
	return delta("TEXT_MESSAGE_CONTENT", "messageId", e)
}

func reasoningDelta(_ Dialect, e event.Event) []dialect.Message {
	return delta("REASONING_MESSAGE_CONTENT", "messageId", e)
}

func toolArgsDelta(_ Dialect, e event.Event) []dialect.Message {
	return delta("TOOL_CALL_ARGS", "toolCallId", e)
}

// delta makes {"type":kind,as:id,"delta":text}.
func delta(kind, as string, e event.Event) []dialect.Message {
	id, text, ok := dialect.Delta(e.Data)
	if !ok {
		return nil
	}
	return begin(kind, e).Raw(as, id).Raw("delta", text).One("")
}
