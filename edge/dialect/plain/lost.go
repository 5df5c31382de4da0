package plain

import "github.com/runlog-dev/runlog/event"

// Lost says what the plain dialect has no word for: it is for a text and the
// tools that were used.
func (Dialect) Lost() map[event.Type]string {
	const small = "only texts and tools are told"
	return map[event.Type]string{
		event.SessionCreated:     small,
		event.RunQueued:          "a run that waits has nothing to say",
		event.RunRecovered:       "shows in text_reset",
		event.RunStatus:          small,
		event.StepStarted:        small,
		event.StepCompleted:      small,
		event.MessageStarted:     "the first text_delta says it",
		event.MessageCompleted:   "the deltas have said it",
		event.ReasoningStarted:   small,
		event.ReasoningDelta:     small,
		event.ReasoningCompleted: small,
		event.ToolStarted:        "tool_use comes when the arguments are complete",
		event.ToolArgsDelta:      "tool_use comes when the arguments are complete",
		event.ToolRunning:        small,
		event.ToolProgress:       small,
		event.ApprovalRequested:  "GET /v1/runs/{run} shows what waits",
		event.ApprovalResolved:   "shows in tool_result",
		event.ArtifactStarted:    "tool_result refers to artifacts",
		event.ArtifactProgress:   "tool_result refers to artifacts",
		event.ArtifactCompleted:  "tool_result refers to artifacts",
		event.StateSnapshot:      small,
		event.StateDelta:         small,
		event.ActivitySnapshot:   small,
		event.ActivityDelta:      small,
		event.BudgetExceeded:     "message_stop has the error",
		event.Custom:             small,
	}
}
