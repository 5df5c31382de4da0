package event

import (
	"runtime"
	"testing"
)

// What a fold allocates for a growing text, thought or argument is in proportion
// to its deltas: an answer of twice the length does not cost four times as much.
func TestGrowingTextsCostWhatTheyHold(t *testing.T) {
	open := []Event{
		New(MessageStarted, MessageStartedData{MessageID: "m", Role: RoleAssistant}),
		New(ReasoningStarted, ReasoningStartedData{ReasoningID: "r"}),
		New(ToolStarted, ToolStartedData{CallID: "c", Name: "x", MessageID: "m"}),
	}
	const piece = "and so on and on "
	for _, delta := range []Event{
		New(TextDelta, TextDeltaData{MessageID: "m", Delta: piece}),
		New(ReasoningDelta, ReasoningDeltaData{ReasoningID: "r", Delta: piece}),
		New(ToolArgsDelta, ToolArgsDeltaData{CallID: "c", Delta: piece}),
	} {
		once, twice := allocated(t, open, delta, 5000), allocated(t, open, delta, 10_000)
		if twice > 3*once {
			t.Errorf("%s: %d bytes for 5,000 deltas, %d for twice as many", delta.Type, once, twice)
		}
	}
}

// allocated is what folding n deltas allocates, in bytes.
func allocated(t *testing.T, open []Event, delta Event, n int) uint64 {
	t.Helper()
	s := NewSession("s")
	apply := func(e Event) {
		e.Seq = s.Seq + 1
		if err := s.Apply(e); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range open {
		apply(e)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range n {
		apply(delta)
	}
	runtime.ReadMemStats(&after)
	sofar := s.TextSoFar("m") + s.Call("c").ArgsSoFar()
	if got := len(s.View().Encode()); got < n*len("and so on and on ") || sofar != s.TextSoFar("m")+s.Call("c").Args {
		t.Fatalf("the fold has %d bytes, and so far %q", got, sofar)
	}
	return after.TotalAlloc - before.TotalAlloc
}
