package openai_test

import (
	"encoding/json"
	"testing"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/edge/dialect/dialecttest"
	"github.com/runlog-dev/runlog/edge/dialect/openai"
	"github.com/runlog-dev/runlog/edge/dialect/scenarios"
)

func TestTranscripts(t *testing.T) {
	dialecttest.Run(t, openai.Responses{}, dialecttest.Options{Variant: "responses"})
}

func TestChatTranscripts(t *testing.T) {
	dialecttest.Run(t, openai.Chat{Usage: true}, dialecttest.Options{Variant: "chat", Plain: true})
}

// What a completion comes to has nothing of what was discarded.
func TestWholeCompletions(t *testing.T) {
	for name, want := range map[string]string{"takeover": "One. Two.", "discarded": "Here it is.", "tools": "Let me look.\n\nSunny, and you are free."} {
		sc, _ := scenarios.Named(name)
		c := openai.NewCompletion(openai.Chat{Whole: true})
		for _, e := range sc.Log() {
			c.Next(e, nil, dialect.Client)
		}
		var got struct {
			Choices []struct {
				Message struct{ Content string }
			}
		}
		if err := json.Unmarshal(c.JSON(), &got); err != nil || got.Choices[0].Message.Content != want {
			t.Errorf("%s: %v %s, want %q", name, err, c.JSON(), want)
		}
	}
}

// Told anew from a fold, runs come to the same.
func TestRetold(t *testing.T) {
	for _, sc := range scenarios.All() {
		if sc.LogOnly {
			continue
		}
		fold, err := scenarios.Fold(sc.Log())
		if err != nil {
			t.Fatal(err)
		}
		live, again := openai.NewCompletion(openai.Chat{Whole: true}), openai.NewCompletion(openai.Chat{Run: scenarios.RunID, Whole: true})
		for _, e := range sc.Log() {
			live.Next(e, nil, dialect.Client)
		}
		again.Snapshot(dialect.Snapshot, fold, dialect.Client)
		if sc.Name != "client-tool" && string(live.JSON()) != string(again.JSON()) {
			t.Errorf("%s:\n%s\n%s", sc.Name, live.JSON(), again.JSON())
		}
	}
}

// A snapshot is a response too: it comes to the same items, under numbers that do
// not fall and that what follows goes on from.
func TestRetoldResponses(t *testing.T) {
	type response struct {
		Status string
		Output []json.RawMessage
	}
	for _, sc := range scenarios.All() {
		if sc.LogOnly || sc.Name == "client-tool" || sc.Name == "approval" { // two responses, of which it tells one
			continue
		}
		fold, err := scenarios.Fold(sc.Log())
		if err != nil {
			t.Fatal(err)
		}
		live, again := openai.NewResponse(openai.Responses{}), openai.NewResponse(openai.Responses{})
		for _, e := range sc.Log() {
			live.Next(e, nil, dialect.Client)
		}
		last := int64(fold.Seq) * openai.Stride
		for _, m := range again.Snapshot(dialect.Reset, fold, dialect.Client) {
			var d struct {
				N int64 `json:"sequence_number"`
			}
			if err := json.Unmarshal(m.Data, &d); err != nil || d.N < last || d.N >= (int64(fold.Seq)+1)*openai.Stride {
				t.Errorf("%s: number %d after %d, %v", sc.Name, d.N, last, err)
			}
			last = d.N
		}
		var want, got response
		if json.Unmarshal(live.JSON(), &want) != nil || json.Unmarshal(again.JSON(), &got) != nil || want.Status != got.Status || len(want.Output) != len(got.Output) {
			t.Errorf("%s:\n%s\n%s", sc.Name, live.JSON(), again.JSON())
		}
	}
}

// Clients resume by number: numbers rise, and lie in the range of their event.
func TestNumbersRise(t *testing.T) {
	for _, sc := range scenarios.All() {
		last := int64(-1)
		for _, m := range dialecttest.Encode(t, openai.Responses{}, sc.Log(), nil) {
			var d struct {
				N int64 `json:"sequence_number"`
			}
			if err := json.Unmarshal(m.Data, &d); err != nil {
				t.Fatal(err)
			}
			if d.N <= last || d.N/openai.Stride != int64(m.Of.Seq) { //nolint:gosec // small
				t.Errorf("%s: %d after %d in event %d", sc.Name, d.N, last, m.Of.Seq)
			}
			last = d.N
		}
	}
}
