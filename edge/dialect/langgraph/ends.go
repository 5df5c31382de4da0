package langgraph

import (
	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
)

// id is what the client calls the run.
func (d Dialect) id(e event.Event) string {
	if d.As != "" {
		return d.As
	}
	return e.RunID
}

func (d Dialect) began(e event.Event) []dialect.Message {
	return dialect.NewObject(128).Text("run_id", d.id(e)).Text("thread_id", e.SessionID).One("metadata")
}

// end is the last message of a run that did not fail.
func (d Dialect) end(e event.Event, status string) dialect.Message {
	return dialect.NewObject(96).Text("run_id", d.id(e)).Text("status", status).Message("end")
}

func (d Dialect) completed(e event.Event) []dialect.Message {
	return []dialect.Message{d.end(e, "success")}
}

// Failure is what an error event says.
type Failure struct {
	Error   string `json:"error"`
	Message string `json:"message"`
}

// userInterrupt is LangGraph's name for a run that somebody has cancelled.
const userInterrupt = "UserInterrupt"

// FailureOf is how a run has failed or was cancelled; nil if it was neither.
func FailureOf(r *event.Run) *Failure {
	switch {
	case r.Status == event.Failed && r.Error != nil:
		return &Failure{string(r.Error.Code), r.Error.Message}
	case r.Status == event.Cancelled:
		return &Failure{userInterrupt, cancelled(r.By, r.Reason)}
	}
	return nil
}

func (d Dialect) failed(_ event.Event, f event.RunFailedData) []dialect.Message {
	return []dialect.Message{Failure{string(f.Code), f.Message}.message()}
}

// cancelled is an error, so that nobody takes half an answer for the whole.
func (d Dialect) cancelled(_ event.Event, c event.RunCancelledData) []dialect.Message {
	return []dialect.Message{Failure{userInterrupt, cancelled(c.By, c.Reason)}.message()}
}

func cancelled(by, reason string) string {
	text := "the run was cancelled by " + by
	if reason != "" {
		text += ": " + reason
	}
	return text
}

func (f Failure) message() dialect.Message {
	return dialect.NewObject(64+len(f.Message)).Text("error", f.Error).Text("message", f.Message).Message("error")
}

// Snapshot is the thread as it is now, for a client whose position is no longer
// kept: chunks cannot say that, so it is values, whatever the modes.
func (d Dialect) Snapshot(_ dialect.Kind, s *event.Session, _ dialect.Audience) []dialect.Message {
	run := dialect.Shown(s, "")
	if run == nil {
		return []dialect.Message{told(State(s))}
	}
	e := event.Event{SessionID: s.SessionID, RunID: run.RunID}
	list := d.began(e)
	if run.ExpiresAt != nil {
		return append(list, told(withInterrupts(State(s), Interrupts(s, run.RunID))), d.end(e, "interrupted"))
	}
	list = append(list, told(State(s)))
	switch failure := FailureOf(run); {
	case failure != nil:
		return append(list, failure.message())
	case run.Status == event.Completed:
		return append(list, d.end(e, "success"))
	}
	return list
}
