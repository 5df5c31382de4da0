package aisdk_test

import (
	"testing"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/edge/dialect/aisdk"
	"github.com/runlog-dev/runlog/edge/dialect/dialecttest"
	"github.com/runlog-dev/runlog/edge/dialect/scenarios"
	"github.com/runlog-dev/runlog/event"
)

func TestTranscripts(t *testing.T) {
	dialecttest.Run(t, aisdk.Dialect{}, dialecttest.Options{Plain: true})
}

func BenchmarkTextDelta(b *testing.B) {
	x := aisdk.Dialect{}.Begin()
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
