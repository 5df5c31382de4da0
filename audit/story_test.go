package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

var at = event.At(time.Date(2020, 11, 30, 12, 0, 0, 0, time.UTC))

// line makes an event of a run, or of none.
func line(run string, t event.Type, data any) event.Event {
	e := event.New(t, data)
	e.RunID, e.Time = run, at
	if run != "" {
		e.TraceID = "trace of " + run
	}
	if t == event.SessionClaimed || t == event.SessionReleased || t == event.CommandIgnored {
		e.Internal = true
	}
	return e
}

// numbered gives the events their places in a log.
func numbered(list []event.Event) []event.Event {
	list = slices.Clone(list)
	for i := range list {
		list[i].Seq, list[i].SessionID = event.Seq(i+1), "ses_1"
		list[i].ID = "ses_1-" + list[i].Seq.String()
	}
	return list
}

func sum(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:])
}

func closer(id string, role event.Role, index int, parts ...event.Part) event.MessageCompletedData {
	return event.MessageCompletedData{MessageID: id, Role: role, Index: index, Parts: parts, SHA256: event.TextHash(parts)}
}

func text(s string) event.Part { return event.TextPart(s) }

func callPart(id string) event.Part { return event.Part{Type: event.PartToolCall, CallID: id} }

func claim(worker string, n int) event.Event {
	return line("", event.SessionClaimed, event.SessionClaimedData{Worker: worker, Attempt: n})
}

func release(worker, reason string) event.Event {
	return line("", event.SessionReleased, event.SessionReleasedData{Worker: worker, Reason: reason})
}

func status(run string, to, from event.Status) event.Event {
	d := event.RunStatusData{Status: to, Previous: from}
	if to == event.WaitingApproval {
		d.ExpiresAt = &at
	}
	return line(run, event.RunStatus, d)
}

func started(run, command string) event.Event {
	return line(run, event.RunStarted, event.RunStartedData{Agent: "a", CommandID: command, Attempt: 1})
}

func stepStarted(run string, n int) event.Event {
	return line(run, event.StepStarted, event.StepStartedData{Step: n, Model: "m"})
}

func stepCompleted(run string, n int) event.Event {
	return line(run, event.StepCompleted, event.StepCompletedData{Step: n, FinishReason: event.FinishStop, Usage: event.Usage{InputTokens: 10, OutputTokens: 2}})
}

func completed(run, message string, steps int) event.Event {
	return line(run, event.RunCompleted, event.RunCompletedData{FinishReason: event.FinishStop, Output: event.RunOutput{MessageID: message},
		Usage: event.Usage{InputTokens: 10 * int64(steps), OutputTokens: 2 * int64(steps), Steps: steps}})
}

func begun(run, id string, index int) event.Event {
	return line(run, event.MessageStarted, event.MessageStartedData{MessageID: id, Role: event.RoleAssistant, Index: index})
}

func delta(run, id, s string) event.Event {
	return line(run, event.TextDelta, event.TextDeltaData{MessageID: id, Delta: s})
}

func called(run, message, id string, index int, by event.Executor) event.Event {
	return line(run, event.ToolStarted, event.ToolStartedData{CallID: id, Name: "t", Index: index, MessageID: message, Executor: by})
}

func argsDelta(run, id, s string) event.Event {
	return line(run, event.ToolArgsDelta, event.ToolArgsDeltaData{CallID: id, Delta: s})
}

func args(run, id string, index int) event.Event {
	return line(run, event.ToolArgs, event.ToolArgsData{CallID: id, Name: "t", Index: index, Args: `{"a":1}`})
}

func running(run, id string, attempt int) event.Event {
	return line(run, event.ToolRunning, event.ToolRunningData{CallID: id, Attempt: attempt, IdempotencyKey: run + "/" + id})
}

func result(run, id string, index int) event.Event {
	return line(run, event.ToolCompleted, event.ToolCompletedData{CallID: id, Name: "t", Index: index, Args: `{"a":1}`, Content: []event.Part{text("ok")}})
}

func failed(run, id string, index int, code event.Code, outcome event.Outcome) event.Event {
	return line(run, event.ToolFailed, event.ToolFailedData{CallID: id, Name: "t", Index: index, Args: `{"a":1}`, Code: code, Outcome: outcome, Message: "no"})
}

func recovered(run string, attempt int, from event.Seq) event.Event {
	return line(run, event.RunRecovered, event.RunRecoveredData{Attempt: attempt, FromSeq: from})
}

// simple is a run of one step without tools.
func simple() []event.Event {
	return []event.Event{
		line("", event.SessionCreated, event.SessionCreatedData{Agent: "a"}),
		claim("w1", 1),
		started("r", "cmd_1"),
		line("r", event.MessageCompleted, closer("u", event.RoleUser, 0, text("hello"))),
		status("r", event.Running, event.Pending),
		stepStarted("r", 1),
		line("r", event.ReasoningStarted, event.ReasoningStartedData{ReasoningID: "k"}),
		line("r", event.ReasoningDelta, event.ReasoningDeltaData{ReasoningID: "k", Delta: "Well, "}),
		line("r", event.ReasoningDelta, event.ReasoningDeltaData{ReasoningID: "k", Delta: "hello."}),
		line("r", event.ReasoningCompleted, event.ReasoningCompletedData{ReasoningID: "k", Text: "Well, hello.", Signature: "sig"}),
		begun("r", "m", 1),
		delta("r", "m", "Good "),
		delta("r", "m", "day."),
		line("r", event.MessageCompleted, closer("m", event.RoleAssistant, 1,
			event.Part{Type: event.PartReasoning, ReasoningID: "k", Text: "Well, hello.", Signature: "sig"}, text("Good day."))),
		stepCompleted("r", 1),
		completed("r", "m", 1),
		release("w1", ""),
	}
}

// tools is a run whose worker is lost while two calls run, one of which may run
// again, and with an artifact and an answer that is taken back.
func tools() []event.Event {
	return []event.Event{
		line("", event.SessionCreated, event.SessionCreatedData{Agent: "a"}),
		claim("w1", 1),
		started("r", "cmd_1"),
		line("r", event.MessageCompleted, closer("u", event.RoleUser, 0, text("do it"))),
		status("r", event.Running, event.Pending),
		stepStarted("r", 1),
		begun("r", "gone", 1),
		delta("r", "gone", "I w"),
		called("r", "gone", "c0", 0, event.ByWorker),
		line("r", event.MessageDiscarded, event.MessageDiscardedData{MessageID: "gone", Reason: "model_error", Retry: 1}),
		begun("r", "m", 1),
		delta("r", "m", "Two: "),
		called("r", "m", "c1", 0, event.ByWorker),
		argsDelta("r", "c1", `{"a"`),
		argsDelta("r", "c1", `:1}`),
		called("r", "m", "c2", 1, event.ByWorker),
		argsDelta("r", "c2", `{"a":1}`),
		args("r", "c1", 0),
		args("r", "c2", 1),
		line("r", event.MessageCompleted, closer("m", event.RoleAssistant, 1, text("Two: "), callPart("c1"), callPart("c2"))),
		stepCompleted("r", 1),
		status("r", event.WaitingTool, event.Running),
		running("r", "c1", 1),
		running("r", "c2", 1),
		line("r", event.ToolProgress, event.ToolProgressData{CallID: "c2", Progress: event.Progress{Progress: 1, Total: 2}}),
		claim("w2", 2),
		recovered("r", 2, 25),
		running("r", "c1", 2),
		failed("r", "c2", 1, event.CodeInterrupted, event.OutcomeUnknown),
		line("r", event.ArtifactStarted, event.ArtifactStartedData{ArtifactID: "f", CallID: "c1", Name: "n", MediaType: "text/plain"}),
		line("r", event.ArtifactProgress, event.ArtifactProgressData{ArtifactID: "f", Bytes: 3}),
		line("r", event.ArtifactCompleted, event.ArtifactCompletedData{ArtifactID: "f", CallID: "c1", Name: "n", MediaType: "text/plain", Bytes: 5, SHA256: sum("hello"), URL: "/artifacts/f"}),
		result("r", "c1", 0),
		status("r", event.Running, event.WaitingTool),
		stepStarted("r", 2),
		begun("r", "m2", 2),
		delta("r", "m2", "Done."),
		line("r", event.MessageCompleted, closer("m2", event.RoleAssistant, 2, text("Done."))),
		stepCompleted("r", 2),
		line("r", event.StateSnapshot, event.StateSnapshotData{State: []byte(`{"n":1}`)}),
		line("r", event.StateDelta, event.StateDeltaData{Patch: []byte(`[{"op":"replace","path":"/n","value":2}]`)}),
		line("r", event.ActivitySnapshot, event.ActivityData{ActivityID: "v", Kind: "k", Content: []byte(`{"n":1}`)}),
		line("r", event.ActivityDelta, event.ActivityDeltaData{ActivityID: "v", Patch: []byte(`[{"op":"remove","path":"/n"}]`)}),
		completed("r", "m2", 2),
		release("w2", ""),
	}
}

// waits is a run that is parked for an approval, decided twice, then for the
// client's tool, while others are queued, cancelled and handed over.
func waits() []event.Event {
	list := []event.Event{
		line("", event.SessionCreated, event.SessionCreatedData{Agent: "a"}),
		claim("w1", 1),
		started("r", "cmd_1"),
		line("r", event.MessageCompleted, closer("old", event.RoleAssistant, 0, callPart("past"))),
		called("r", "old", "past", 0, event.ByClient),
		result("r", "past", 0),
		line("r", event.MessageCompleted, closer("u", event.RoleUser, 1, text("do it"))),
		status("r", event.Running, event.Pending),
		stepStarted("r", 1),
		begun("r", "m", 2),
		called("r", "m", "c1", 0, event.ByWorker),
		called("r", "m", "c2", 1, event.ByWorker),
		called("r", "m", "c3", 2, event.ByClient),
		args("r", "c1", 0), args("r", "c2", 1), args("r", "c3", 2),
		line("r", event.MessageCompleted, closer("m", event.RoleAssistant, 2, callPart("c1"), callPart("c2"), callPart("c3"))),
		stepCompleted("r", 1),
		line("r", event.ApprovalRequested, event.ApprovalRequestedData{CallID: "c1", ArgsSHA256: sum(`{"a":1}`), ExpiresAt: at}),
		line("r", event.ApprovalRequested, event.ApprovalRequestedData{CallID: "c2", ArgsSHA256: sum(`{"a":1}`), ExpiresAt: at}),
		status("r", event.WaitingApproval, event.Running),
		line("q", event.RunQueued, event.RunQueuedData{Agent: "a", CommandID: "cmd_2"}),
		line("x", event.RunQueued, event.RunQueuedData{Agent: "a", CommandID: "cmd_3"}),
		release("w1", ""),
		claim("w1", 2),
		line("r", event.ApprovalResolved, event.ApprovalResolvedData{CallID: "c2", Decision: "deny", By: "somebody"}),
		failed("r", "c2", 1, event.CodeForbidden, event.OutcomeDenied),
		line("x", event.RunCancelled, event.RunCancelledData{By: "client"}),
		line("x", event.CommandIgnored, event.CommandIgnoredData{CommandID: "cmd_4", Kind: "cancel", Reason: "over"}),
		release("w1", "drain"),
		claim("w2", 3),
		recovered("r", 2, 30),
		line("r", event.ApprovalResolved, event.ApprovalResolvedData{CallID: "c1", Decision: "approve", By: "somebody"}),
		status("r", event.WaitingTool, event.WaitingApproval),
		running("r", "c1", 1),
		result("r", "c1", 0),
		result("r", "c3", 2),
		status("r", event.Running, event.WaitingTool),
		stepStarted("r", 2),
		begun("r", "m2", 3),
		delta("r", "m2", "Do"),
		line("r", event.MessageCompleted, closer("m2", event.RoleAssistant, 3, text("Do"))),
		line("r", event.StepCompleted, event.StepCompletedData{Step: 2, FinishReason: event.FinishStopped}),
		line("r", event.RunCancelled, event.RunCancelledData{By: "client"}),
		started("q", "cmd_2"),
		status("q", event.Running, event.Pending),
		line("q", event.RunFailed, event.RunFailedData{Code: event.CodeModelError, Message: "no"}),
		release("w2", ""),
	}
	return list
}

// nested is a run that asks a sub-agent.
func nested() []event.Event {
	child := line("s", event.RunStarted, event.RunStartedData{Agent: "b", Attempt: 1, ParentRunID: "r", ParentCallID: "c1"})
	list := []event.Event{
		line("", event.SessionCreated, event.SessionCreatedData{Agent: "a"}),
		claim("w1", 1),
		started("r", "cmd_1"),
		line("r", event.MessageCompleted, closer("u", event.RoleUser, 0, text("do it"))),
		status("r", event.Running, event.Pending),
		stepStarted("r", 1),
		begun("r", "m", 1),
		called("r", "m", "c1", 0, event.ByWorker),
		args("r", "c1", 0),
		line("r", event.MessageCompleted, closer("m", event.RoleAssistant, 1, callPart("c1"))),
		stepCompleted("r", 1),
		status("r", event.WaitingTool, event.Running),
		running("r", "c1", 1),
		child,
		status("s", event.Running, event.Pending),
		stepStarted("s", 1),
		begun("s", "m1", 2),
		delta("s", "m1", "Yes."),
		line("s", event.MessageCompleted, closer("m1", event.RoleAssistant, 2, text("Yes."))),
		stepCompleted("s", 1),
		completed("s", "m1", 1),
		result("r", "c1", 0),
		status("r", event.Running, event.WaitingTool),
		stepStarted("r", 2),
		begun("r", "m2", 3),
		delta("r", "m2", "It says yes."),
		line("r", event.MessageCompleted, closer("m2", event.RoleAssistant, 3, text("It says yes."))),
		stepCompleted("r", 2),
		completed("r", "m2", 2),
		release("w1", ""),
	}
	for i, e := range list {
		if e.RunID == "s" {
			list[i].Agent = "b"
		}
	}
	return list
}

// golden is the log that fixes the shapes.
func golden(t *testing.T) []event.Event {
	t.Helper()
	data, err := os.ReadFile("../event/testdata/events.ndjson")
	if err != nil {
		t.Fatal(err)
	}
	events, err := eventlog.Frame{Data: data}.Events()
	if err != nil {
		t.Fatal(err)
	}
	for i := range events {
		events[i].Seq, events[i].SessionID = event.Seq(i+1), "ses_1"
	}
	return events
}

func stories(t *testing.T) map[string][]event.Event {
	return map[string][]event.Event{"simple": simple(), "tools": tools(), "waits": waits(), "nested": nested(), "golden": golden(t)}
}

// framed cuts a log into frames of up to n events, as writers do: a claim begins
// a frame of a new writer.
func framed(list []event.Event, n int) []eventlog.Frame {
	var frames []eventlog.Frame
	writer, number := 0, 0
	for i, e := range list {
		first := i == 0
		if e.Type == event.SessionClaimed && i > 1 || first {
			writer, number, first = writer+1, 0, true
		}
		if last := len(frames) - 1; first || len(frames) > 0 && int(frames[last].Last-frames[last].First)+1 >= max(n, 2) {
			number++
			f := eventlog.Frame{Key: key, Pos: uint64(10 * (len(frames) + 1)), First: e.Seq, ID: fmt.Sprintf("w_%d-%d", writer, number)}
			if last >= 0 {
				f.Prev = frames[last].Pos
			}
			frames = append(frames, f)
		}
		f := &frames[len(frames)-1]
		f.Last, f.Data = e.Seq, e.AppendLine(f.Data)
	}
	return frames
}

var key = eventlog.Key{Tenant: "acme", Session: "ses_1"}
