package edge

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/runlog-dev/runlog/event"
)

// What clients of other protocols say to a run that waits for them.

// resultOf is the command that brings what a tool of the client's has returned.
func resultOf(callID string, content []event.Part, structured json.RawMessage, failed bool) event.Command {
	return event.Command{CommandID: callID + ".result", Kind: event.Result, CallID: callID, Content: content, Structured: structured, Failed: failed}
}

// unanswered refuses answers that leave the run waiting.
func unanswered(fold *event.Session, run *event.Run, given map[string]bool) error {
	var missing []string
	for _, t := range fold.ToolCalls {
		if t.RunID == run.RunID && t.Waits() && !given[t.CallID] {
			missing = append(missing, t.CallID+" ("+t.Name+")")
		}
	}
	if len(missing) > 0 {
		return problem(http.StatusConflict, event.CodeConflict, "answer everything that the run waits for; missing: %s", strings.Join(missing, ", "))
	}
	return nil
}

// nothingWaits refuses an answer that nobody has asked for.
func nothingWaits(where string) error {
	return problem(http.StatusConflict, event.CodeConflict, "nothing in this %s waits for an answer: it was given already, or its time is over", where)
}

// inPlaceOfAnAnswer is how what is said to a session that waits for an answer is queued, where
// its client does not care: the wait is over.
func inPlaceOfAnAnswer(fold *event.Session, queue event.Queue) event.Queue {
	if queue == "" && fold.Parked() != nil {
		return event.Interrupt
	}
	return queue
}
