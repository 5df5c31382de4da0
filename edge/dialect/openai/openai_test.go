package openai_test

import (
	"encoding/json"
	"testing"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/edge/dialect/dialecttest"
	"github.com/runlog-dev/runlog/edge/dialect/openai"
	"github.com/runlog-dev/runlog/edge/dialect/scenarios"
	"github.com/runlog-dev/runlog/event"
)

func TestTranscripts(t *testing.T) {
	dialecttest.Run(t, openai.Responses{}, dialecttest.Options{Variant: "responses"})
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

func BenchmarkTextDelta(b *testing.B) {
	x := openai.Responses{}.Begin()
	e := event.New(event.TextDelta, event.TextDeltaData{MessageID: "msg_01jt3a7c4k9e2v5x8q1w6r0y3z", Delta: "Hello, world, "})
	e.Seq, e.RunID = 41, scenarios.RunID
	x.Next(e, nil, dialect.Client)
	b.ReportAllocs()
	for b.Loop() {
		if len(x.Next(e, nil, dialect.Client)) != 1 {
			b.Fatal("not one message")
		}
	}
}
