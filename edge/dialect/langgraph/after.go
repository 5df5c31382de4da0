package langgraph

import (
	"encoding/json"
	"slices"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
)

// after is an event with the session before it.
type after struct {
	Dialect
	e      event.Event
	before *event.Session
}

// told makes a message of a whole state.
func told(state json.RawMessage) dialect.Message {
	return dialect.Message{Event: "values", Data: state, Bare: true}
}

// values tells the whole state.
func (a after) values(list []message, state json.RawMessage) []dialect.Message {
	if !a.in(Values) {
		return nil
	}
	return []dialect.Message{told(valuesOf(list, state))}
}

func (a after) stateSnapshot(d event.StateSnapshotData) []dialect.Message { return a.state(d.State) }

func (a after) stateDelta(d event.StateDeltaData) []dialect.Message {
	state, err := event.Patch(a.before.State, d.Patch)
	if err != nil {
		return nil // the fold leaves it as it is, too
	}
	return a.state(state)
}

func (a after) state(state json.RawMessage) []dialect.Message {
	var list []dialect.Message
	if a.in(Updates) {
		list = append(list, dialect.NewObject(len(state)).Raw("state", state).Message("updates"))
	}
	return append(list, a.values(messages(a.before), state)...)
}

// messageCompleted tells a whole message of the model's.
func (a after) messageCompleted(d event.MessageCompletedData) []dialect.Message {
	if d.Role != event.RoleAssistant || hidden(d.Parts) {
		return nil
	}
	m := messageOf(a.before, d.MessageID, d.Role, d.Parts)
	var list []dialect.Message
	if a.in(Tuples) && m.Additional != nil { // which the chunks have not told
		o := tuple(aiChunk, 64+len(m.Additional.Reasoning)).Text("id", m.ID).Text("content", "").Value("additional_kwargs", m.Additional)
		list = append(list, endTuple(o, a.e))
	}
	if a.in(Messages) {
		list = append(list, whole("messages/complete", m))
	}
	if a.in(Updates) {
		list = append(list, update(nodeAgent, m))
	}
	return append(list, a.values(append(messages(a.before), m), a.before.State)...)
}

// update is what a node has added.
func update(node string, m message) dialect.Message {
	return dialect.NewObject(256).Open(node).Value("messages", []message{m}).Close().Message("updates")
}

func whole(name string, m message) dialect.Message {
	return dialect.Message{Event: name, Data: event.Encode([]message{m})}
}

// textDelta tells the message as far as it is written to who wants whole ones.
func (a after) textDelta(d event.TextDeltaData) []dialect.Message {
	list := a.Dialect.textDelta(a.e)
	text := a.before.TextSoFar(d.MessageID) + d.Delta
	return append(list, whole("messages/partial", message{Type: "ai", ID: d.MessageID, Content: text}))
}

// argsDelta finds out which message a piece of arguments belongs to.
func (a after) argsDelta(d event.ToolArgsDeltaData) []dialect.Message {
	c := a.before.Call(d.CallID)
	if c == nil {
		return nil
	}
	return []dialect.Message{callChunk(a.e, c.MessageID, a.before.CallIndex(c), "", "", d.Delta)}
}

// args tells arguments that came in no pieces.
func (a after) args(d event.ToolArgsData) []dialect.Message {
	c := a.before.Call(d.CallID)
	if c == nil || c.ArgsSoFar() != "" || d.Args == "" {
		return nil
	}
	return []dialect.Message{callChunk(a.e, c.MessageID, d.Index, "", "", d.Args)}
}

func (a after) toolRunning(d event.ToolRunningData) []dialect.Message {
	c := a.before.Call(d.CallID)
	if c == nil {
		return nil
	}
	var list []dialect.Message
	input := dialect.Arguments(c.Args)
	if a.in(Tools) {
		list = append(list, toolEvent{Event: "on_tool_start", CallID: c.CallID, Name: c.Name, Input: input}.message())
	}
	return append(list, a.chain("on_tool_start", a.e, nodeTools, "input", input)...)
}

// discarded takes a message out of the client's list.
func (a after) discarded(d event.MessageDiscardedData) []dialect.Message {
	var list []dialect.Message
	gone := []string{d.MessageID}
	for _, c := range a.before.CallsOf(d.MessageID) { // of an agent that lives elsewhere
		if c.Done() && !c.Internal {
			gone = append(gone, resultID(c.CallID))
		}
	}
	for _, id := range gone {
		if a.in(Tuples) {
			list = append(list, endTuple(tuple("remove", 64).Text("id", id).Text("content", ""), a.e))
		}
	}
	if a.in(Custom) {
		list = append(list, a.generic(a.e)...)
	}
	stands := slices.DeleteFunc(messages(a.before), func(m message) bool { return slices.Contains(gone, m.ID) })
	return append(list, a.values(stands, a.before.State)...)
}

// waited reports that the run was parked: for LangGraph it had ended.
func (a after) waited() bool {
	r := a.before.Run(a.e.RunID)
	return r != nil && r.ExpiresAt != nil
}

// status ends what LangGraph calls a run, or begins its next one; where the run
// only moves on, the state is told as it is between two steps.
func (a after) status(d event.RunStatusData) []dialect.Message {
	switch {
	case d.ExpiresAt != nil:
		if a.waited() {
			return nil
		}
		return a.parks()
	case d.Status == event.Running:
		var list []dialect.Message
		if a.waited() {
			list = a.began(a.e)
		}
		return append(list, a.values(messages(a.before), a.before.State)...)
	case a.waited():
		return a.began(a.e)
	}
	return nil
}

// parks tells what the run waits for, and ends it.
func (a after) parks() []dialect.Message {
	asked := Interrupts(a.before, a.e.RunID)
	var list []dialect.Message
	if a.in(Updates) {
		list = append(list, dialect.NewObject(256).Value(interruptKey, asked).Message("updates"))
	}
	if a.in(Values) {
		list = append(list, told(withInterrupts(State(a.before), asked)))
	}
	return append(list, a.end(a.e, "interrupted"))
}
