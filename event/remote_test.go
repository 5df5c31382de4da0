package event

import (
	"encoding/json"
	"testing"
)

// A run whose agent lives elsewhere and that brings its workers down is no better
// for the results that are taken back each time.
func TestResultsFromElsewhereAreNoProgress(t *testing.T) {
	s := NewSession("s")
	add := func(kind Type, data any) {
		e := New(kind, data)
		e.Seq, e.SessionID, e.RunID, e.Internal = s.Seq+1, "s", "r", kind == Custom
		if err := s.Apply(e); err != nil {
			t.Fatal(err)
		}
	}
	add(RunStarted, RunStartedData{Agent: "a", Attempt: 1})
	add(StateSnapshot, StateSnapshotData{State: json.RawMessage(`{"before":1}`)})
	add(StepStarted, StepStartedData{Step: 1})
	add(Custom, CustomData{Name: RemoteEvent, Value: Encode(RemoteMark{Leg: 1})})
	for claims := 1; claims <= 3; claims++ {
		add(SessionClaimed, SessionClaimedData{Worker: "w", Attempt: claims})
		add(MessageStarted, MessageStartedData{MessageID: "m", Role: RoleAssistant})
		add(ToolStarted, ToolStartedData{CallID: "c", Name: "f", MessageID: "m", Executor: ByRemote})
		add(MessageCompleted, MessageCompletedData{MessageID: "m", Role: RoleAssistant, Parts: []Part{{Type: PartToolCall, CallID: "c"}}})
		add(ToolCompleted, ToolCompletedData{CallID: "c", Name: "f", Content: []Part{}})
		add(StateSnapshot, StateSnapshotData{State: json.RawMessage(`{"after":1}`)})
		if r := s.Run("r"); s.Book.Claims != claims || r.Book.Answer != "m" || len(r.Book.Remote.Said) != 1 || string(r.Book.Remote.State) != `{"before":1}` {
			t.Fatalf("after %d claims the fold is %s", claims, s.Encode())
		}
		add(MessageDiscarded, MessageDiscardedData{MessageID: "m", Reason: TakenOver})
		if r := s.Run("r"); len(s.Messages) != 0 || len(s.ToolCalls) != 0 || r.Book.Answer != "" || len(r.Book.Remote.Said) != 0 || len(r.Book.Remote.Gone) != claims {
			t.Fatalf("taken back, the fold is %s", s.Encode())
		}
	}
	add(StepCompleted, StepCompletedData{Step: 1})
	add(RunCompleted, RunCompletedData{FinishReason: FinishStop})
	if s.Run("r").Book.Remote != nil {
		t.Errorf("an ended run keeps %+v", s.Run("r").Book.Remote)
	}
}

// Nobody else's event is taken for a mark.
func TestAMarkIsInternal(t *testing.T) {
	s := NewSession("s")
	for i, e := range []Event{New(RunStarted, RunStartedData{Agent: "a"}), New(Custom, CustomData{Name: RemoteEvent, Value: Encode(RemoteMark{Leg: 9})})} {
		e.Seq, e.SessionID, e.RunID = Seq(i+1), "s", "r"
		if err := s.Apply(e); err != nil {
			t.Fatal(err)
		}
	}
	if s.Run("r").Book.Remote != nil {
		t.Error("it was")
	}
}
