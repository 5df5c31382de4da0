package v1_test

import (
	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
	"testing"

	"github.com/runlog-dev/runlog/edge/dialect/dialecttest"
	"github.com/runlog-dev/runlog/edge/dialect/v1"
)

func TestTranscripts(t *testing.T) { dialecttest.Run(t, v1.Dialect{}, dialecttest.Options{}) }

func BenchmarkTextDelta(b *testing.B) {
	e := event.New(event.TextDelta, event.TextDeltaData{MessageID: "msg_01k9example", Delta: " world and more"})
	b.ReportAllocs()
	for b.Loop() {
		if len((v1.Dialect{}).Event(e, nil, dialect.Client)) != 1 {
			b.Fatal("not told")
		}
	}
}
