package worker

import (
	"testing"

	"github.com/runlog-dev/runlog/event"
)

// A message or call that the session holds is left out of a command, and so is one
// that the command itself has brought already: whoever wrote it, the log stays sound
// (the bench audits it).
func TestWhatAnIDNamesCountsOnce(t *testing.T) {
	b := newBench(t, 0)
	b.worker(says("hi"))
	said := func(id string, role event.Role, text string, calls ...event.PastCall) event.InputMessage {
		m := event.InputMessage{MessageID: id, Role: role, Calls: calls}
		if text != "" {
			m.Parts = []event.Part{event.TextPart(text)}
		}
		return m
	}
	call := func(id, args string) event.PastCall {
		return event.PastCall{CallID: id, Name: "f", Args: args, Content: []event.Part{event.TextPart(args)}}
	}
	invoke := func(runID string, list ...event.InputMessage) {
		t.Helper()
		b.submit(event.Command{Kind: event.Invoke, RunID: runID, TraceID: "t1", Agent: "a", Messages: list})
		b.ended(runID)
	}
	invoke("run_1", said("m1", event.RoleUser, "first"), said("m1", event.RoleUser, "second"),
		said("m2", event.RoleAssistant, "", call("c", "1"), call("c", "2"), call("d", "3")),
		said("m3", event.RoleAssistant, "", call("c", "4")),
		said("m4", event.RoleUser, "go on"))
	invoke("run_2", said("m5", event.RoleAssistant, "", call("d", "5"), call("e", "6")), said("m6", event.RoleAssistant, "", call("e", "7")), said("m7", event.RoleUser, "more"))
	s, _ := b.ended("run_2")
	if m := s.MessageByID("m1"); m == nil || m.Parts[0].Text != "first" {
		t.Errorf("m1 is %s", event.Encode(m))
	}
	if s.MessageByID("m3") != nil || s.MessageByID("m6") != nil {
		t.Error("a message with nothing new is there")
	}
	for id, args := range map[string]string{"c": "1", "d": "3", "e": "6"} {
		if c := s.Call(id); c == nil || c.Args != args {
			t.Errorf("call %s is %s, want the arguments %s", id, event.Encode(c), args)
		}
	}
	if len(s.ToolCalls) != 3 {
		t.Errorf("%d calls", len(s.ToolCalls))
	}
}
