package edge

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/runlog-dev/runlog/edge/dialect/langgraph"
	"github.com/runlog-dev/runlog/event"
)

// answers are commands for all that a parked run waits for. The resume value is
// the answer to the only interrupt, or an object of answers by the interrupts' ids.
func (in *langgraphInput) answers(fold *event.Session, run *event.Run) ([]event.Command, error) {
	asked := langgraph.Interrupts(fold, run.RunID)
	values, err := answersTo(asked, in.Command.Resume)
	if err != nil {
		return nil, err
	}
	var list []event.Command
	for i, a := range asked {
		switch a.Kind {
		case langgraph.Budget:
			return []event.Command{{CommandID: "resume", Kind: event.Resume}}, nil
		case langgraph.ClientTool:
			list = append(list, graphResult(fold.Call(a.ID), values[i]))
		case langgraph.Review:
			decisions, err := decisionsOf(fold, a.Calls, values[i])
			if err != nil {
				return nil, err
			}
			list = append(list, decisions...)
		}
	}
	return list, nil
}

// answersTo finds the answer to each interrupt.
func answersTo(asked []langgraph.Interrupt, resume json.RawMessage) ([]json.RawMessage, error) {
	byID := map[string]json.RawMessage{}
	_ = json.Unmarshal(resume, &byID) // what is no object has no ids
	values := make([]json.RawMessage, len(asked))
	var missing []string
	for i, a := range asked {
		if v, ok := byID[a.ID]; ok {
			values[i] = v
		} else {
			missing = append(missing, a.ID)
		}
	}
	switch {
	case len(missing) == 0:
		return values, nil
	case len(asked) == 1: // not by id
		return []json.RawMessage{resume}, nil
	}
	return nil, problem(http.StatusConflict, event.CodeConflict, "command.resume has to answer all interrupts, by their ids; missing: %s", strings.Join(missing, ", "))
}

// graphResult is what a tool of the client's has returned: any value, {error} if
// it failed. The SDK puts it under the call's id.
func graphResult(t *event.ToolCall, value json.RawMessage) event.Command {
	var byCall map[string]json.RawMessage
	if json.Unmarshal(value, &byCall) == nil && byCall[t.CallID] != nil && len(byCall) == 1 {
		value = byCall[t.CallID]
	}
	cmd := resultOf(t.CallID, nil, nil, false)
	var text string
	var failed struct {
		Error *string `json:"error"`
	}
	switch {
	case json.Unmarshal(value, &text) == nil:
	case json.Unmarshal(value, &failed) == nil && failed.Error != nil:
		text, cmd.Failed = *failed.Error, true
	default:
		text, cmd.Structured = string(value), value
	}
	cmd.Content = []event.Part{event.TextPart(text)}
	return cmd
}

// A graphDecision is one of LangChain's human-in-the-loop middleware, or of what
// came before it.
type graphDecision struct {
	Type     string          `json:"type"` // approve | reject; accept | ignore
	Approved *bool           `json:"approved"`
	Message  string          `json:"message"`
	Reason   string          `json:"reason"`
	Args     json.RawMessage `json:"args"`
}

// decisionsOf reads decisions about calls, in their order: {decisions}, a list,
// or one for all.
func decisionsOf(fold *event.Session, calls []string, value json.RawMessage) ([]event.Command, error) {
	var wrapped struct {
		Decisions []json.RawMessage `json:"decisions"`
	}
	var each []json.RawMessage
	if json.Unmarshal(value, &wrapped) == nil && wrapped.Decisions != nil {
		each = wrapped.Decisions
	} else if json.Unmarshal(value, &each) != nil {
		for range calls {
			each = append(each, value)
		}
	}
	if len(each) != len(calls) {
		return nil, problem(http.StatusConflict, event.CodeConflict, "%d decisions for %d calls: decide about each, in the order of action_requests", len(each), len(calls))
	}
	list := make([]event.Command, len(calls))
	for i, id := range calls {
		approved, reason, err := readDecision(each[i])
		if err != nil {
			return nil, err
		}
		list[i] = decision(fold.Call(id), approved, reason)
	}
	return list, nil
}

func readDecision(raw json.RawMessage) (approved bool, reason string, err error) {
	if json.Unmarshal(raw, &approved) == nil {
		return approved, "", nil
	}
	var d graphDecision
	if json.Unmarshal(raw, &d.Type) != nil && json.Unmarshal(raw, &d) != nil {
		return false, "", bad("command.resume", "%s is no decision: send {type: approve} or {type: reject, message}", raw)
	}
	reason = d.Message + d.Reason
	_ = json.Unmarshal(d.Args, &reason) // a text, in the older form
	if d.Approved != nil {
		return *d.Approved, reason, nil
	}
	switch d.Type {
	case "approve", "accept", "approved", "yes":
		return true, reason, nil
	case "reject", "deny", "ignore", "denied", "no":
		return false, reason, nil
	}
	return false, "", unsupported("command.resume", "the decision %s cannot be taken: a call runs with the arguments that stand, or not at all; use approve or reject", raw)
}
