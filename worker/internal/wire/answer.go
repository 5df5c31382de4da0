package wire

import (
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/model"
)

// An Answer writes what a provider streams as chunks: it closes reasoning
// before something else begins, numbers the calls, and gives on only ids that
// the session does not have. The first error of emit sticks.
type Answer struct {
	emit     func(model.Chunk) error
	taken    map[string]bool // ids of calls
	names    map[string]string
	thinking bool
	calls    []*callState
	err      error
}

type callState struct{ hasArgs bool }

// NewAnswer reads the request's session once, before the first chunk.
func NewAnswer(req model.Request, emit func(model.Chunk) error) *Answer {
	a := &Answer{emit: emit, taken: map[string]bool{}, names: map[string]string{}}
	for _, c := range req.Session.ToolCalls {
		a.taken[c.CallID] = true
	}
	for _, t := range req.Tools {
		a.names[event.WireName(t.Name)] = t.Name
	}
	return a
}

// Err is the first error of emit; nothing is emitted after it.
func (a *Answer) Err() error { return a.err }

func (a *Answer) write(c model.Chunk) {
	if a.err == nil {
		a.err = a.emit(c)
	}
}

// Text adds to the answer's text.
func (a *Answer) Text(s string) {
	if s != "" {
		a.EndReasoning("")
		a.write(model.Chunk{Kind: model.Text, Text: s})
	}
}

// Reasoning adds to the thought that is being written, or begins one.
func (a *Answer) Reasoning(s string) {
	if s != "" {
		a.thinking = true
		a.write(model.Chunk{Kind: model.Reasoning, Text: s})
	}
}

// EndReasoning ends the thought, if there is one; a signature is one by itself.
func (a *Answer) EndReasoning(signature string) {
	if a.thinking || signature != "" {
		a.thinking = false
		a.write(model.Chunk{Kind: model.ReasoningEnd, Signature: signature})
	}
}

// Start begins a call and returns its ordinal.
func (a *Answer) Start(id, name string) int {
	a.EndReasoning("")
	if id != "" && (a.taken[id] || event.CheckID("call id", id) != nil) {
		id = ""
	}
	a.taken[id] = true
	if own, ok := a.names[name]; ok {
		name = own
	}
	index := len(a.calls)
	a.calls = append(a.calls, &callState{})
	a.write(model.Chunk{Kind: model.CallStart, Index: index, CallID: id, Name: name})
	return index
}

// Args adds to the arguments of the call.
func (a *Answer) Args(index int, s string) {
	if s != "" {
		a.calls[index].hasArgs = true
		a.write(model.Chunk{Kind: model.CallArgs, Index: index, Text: s})
	}
}

// Finish ends the answer. Calls without arguments have none, unless the answer
// was cut off. A stop after calls is one for the calls' sake, whatever the
// server calls it.
func (a *Answer) Finish(reason event.FinishReason) event.FinishReason {
	a.EndReasoning("")
	if reason != event.FinishStop && reason != event.FinishToolCalls {
		return reason
	}
	for i, c := range a.calls {
		if !c.hasArgs {
			a.Args(i, "{}")
		}
	}
	if len(a.calls) > 0 {
		return event.FinishToolCalls
	}
	return event.FinishStop
}
