package event

import (
	"strings"
	"testing"

	"github.com/runlog-dev/runlog/event/refusal"
)

// Whatever is cut, the request is one that providers take; it is as small as Fit
// says, the same for the same log, and the log's own cut gives it again.
func TestWhateverIsCutTheRequestIsValid(t *testing.T) {
	cut := 0
	for seed := range uint64(60) {
		l := lawfulLog(seeded(seed), 150)
		whole := len(l.s.OpenAIView(View{RunID: l.run, Reasoning: true}))
		for _, share := range []int{100, 80, 50, 20, 1} {
			limit := whole * share / 100
			c, size := l.s.Fit(View{RunID: l.run}, limit)
			again, _ := l.s.Fit(View{RunID: l.run}, limit)
			if c != again || share == 100 && c != (Cut{}) {
				t.Fatalf("seed %d: cut %+v, then %+v", seed, c, again)
			}
			if c == (Cut{}) {
				continue
			}
			cut++
			v := View{RunID: l.run, Cut: &c}
			if err := refusal.Chat(l.s.OpenAIView(v)); err != nil {
				t.Fatalf("seed %d, cut to %d%%: %v\n%s", seed, share, err, l.s.OpenAIView(v))
			}
			_, messages := l.s.AnthropicView(v)
			if err := refusal.Messages(messages); err != nil {
				t.Fatalf("seed %d, cut to %d%%: %v\n%s", seed, share, err, messages)
			}
			if n := len(l.s.OpenAIView(View{RunID: l.run, Cut: &c, Reasoning: true})); n != size || n > whole+len(wordCut)+50 {
				t.Errorf("seed %d: it has %d bytes, Fit said %d, the whole has %d", seed, n, size, whole)
			}
			if l.run == "" {
				continue // the cut is told of a run
			}
			e := New(Custom, CustomData{Name: CutEvent, Value: Encode(c)})
			e.Seq, e.RunID, e.Internal = l.s.Seq+1, l.run, true
			told := l.s.Clone()
			if err := told.Apply(e); err != nil {
				t.Fatal(err)
			}
			if got := told.OpenAIView(View{RunID: l.run}); string(got) != string(l.s.OpenAIView(v)) {
				t.Errorf("seed %d: the log's cut gives another request", seed)
			}
		}
	}
	if cut < 50 {
		t.Errorf("only %d requests were cut: the test tests little", cut)
	}
}

// A client cannot make the worker forget: only internal events cut.
func TestAPublicEventCutsNothing(t *testing.T) {
	s := NewSession("s")
	for _, e := range []Event{
		{Type: RunStarted, Data: Encode(RunStartedData{Agent: "a"})},
		{Type: MessageCompleted, Data: Encode(MessageCompletedData{MessageID: "m", Role: RoleUser, Parts: []Part{TextPart("remember")}})},
		{Type: Custom, Data: Encode(CustomData{Name: CutEvent, Value: Encode(Cut{Turns: "m"})})},
	} {
		e.Seq, e.RunID = s.Seq+1, "r"
		if err := s.Apply(e); err != nil {
			t.Fatal(err)
		}
	}
	if got := string(s.OpenAIView(View{RunID: "r"})); !strings.Contains(got, "remember") {
		t.Errorf("the request is %s", got)
	}
}
