package terminal

import (
	"fmt"
	"strings"

	"github.com/runlog-dev/runlog/event"
)

func (v *textView) runStarted(e event.Event, d event.RunStartedData) {
	v.started[e.RunID] = e.Time
	if v.users {
		v.remark(fmt.Sprintf("run %s, agent %s, %s", e.RunID, d.Agent, e.Time.In(v.now().Location()).Format("2006-01-02 15:04:05")))
	}
}

func (v *textView) runQueued(_ event.Event, _ event.RunQueuedData) {
	v.remark("queued: the session has another run going")
}

func (v *textView) runRecovered(_ event.Event, d event.RunRecoveredData) {
	v.remark(fmt.Sprintf("another worker took over (attempt %d)", d.Attempt))
}

func (v *textView) runStatus(_ event.Event, d event.RunStatusData) {
	switch {
	case d.Status == event.WaitingApproval:
		v.remark("waiting for an approval")
	case d.Status == event.WaitingTool && d.Reason == "client":
		v.remark("waiting for the result of a tool that the client runs")
	}
}

func (v *textView) approvalRequested(e event.Event, d event.ApprovalRequestedData) {
	what := "needs an approval"
	if d.Reason == event.CodeInterrupted {
		what = "was broken off, and may run again with an approval"
	}
	v.remark(fmt.Sprintf("call %s %s before %s: runlog approve %s %s (or deny)",
		d.CallID, what, d.ExpiresAt.In(v.now().Location()).Format("2006-01-02 15:04:05"), e.RunID, d.CallID))
}

func (v *textView) approvalResolved(_ event.Event, d event.ApprovalResolvedData) {
	v.remark(strings.TrimSuffix(fmt.Sprintf("call %s: %s by %s: %s", d.CallID, d.Decision, d.By, d.Reason), ": "))
}

func (v *textView) runCompleted(e event.Event, d event.RunCompletedData) {
	head := v.paint("completed", green)
	if d.FinishReason != "" && d.FinishReason != event.FinishStop {
		head += " (" + oneLine(string(d.FinishReason), 40) + ")"
	}
	v.ended(e, head, &d.Usage)
}

func (v *textView) runFailed(e event.Event, d event.RunFailedData) {
	again := ""
	if d.Retryable {
		again = " (may succeed when tried again)"
	}
	v.ended(e, v.paint("failed", red)+": "+oneLine(fmt.Sprintf("%s: %s", d.Code, d.Message), 500)+again, d.Usage)
}

func (v *textView) runCancelled(e event.Event, d event.RunCancelledData) {
	head := v.paint("cancelled", yellow)
	if d.By != "" {
		head += " by " + oneLine(d.By, 100)
	}
	if d.Reason != "" {
		head += ": " + oneLine(d.Reason, 300)
	}
	v.ended(e, head, d.Usage)
}

// ended shows the end of a run and how to come back to it.
func (v *textView) ended(e event.Event, head string, usage *event.Usage) {
	v.dropOpen(e.RunID)
	v.speaking = ""
	if text := used(usage); text != "" {
		head += " · " + text
	}
	if d := between(v.started[e.RunID], e.Time); d > 0 {
		head += " · " + lasted(d)
	}
	delete(v.started, e.RunID)
	v.line(head)
	v.line(v.paint(oneLine(fmt.Sprintf("run %s · session %s", e.RunID, e.SessionID), 300), dim))
	hint := "runlog attach " + e.RunID
	if e.TraceID != "" {
		hint += " · runlog trace " + e.TraceID
	}
	v.line(v.paint(oneLine(hint, 400), dim))
}
