package native_test

import (
	"bytes"
	"testing"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/edge/dialect/dialecttest"
	"github.com/runlog-dev/runlog/edge/dialect/native"
	"github.com/runlog-dev/runlog/event"
)

func TestTranscripts(t *testing.T) { dialecttest.Run(t, native.Dialect{}, dialecttest.Options{}) }

// The native dialect hands on stored lines byte for byte.
func TestNativeKeepsTheStoredLine(t *testing.T) {
	line := []byte(`{"v":1,"seq":7,"id":"s-7","type":"x.y","time":"2026-11-30T12:00:00.000001Z","session_id":"s","later":true,"data":{"n":9007199254740993, "b":1.0}}`)
	e, err := event.Decode(line)
	if err != nil {
		t.Fatal(err)
	}
	got := native.Dialect{}.Event(e, line, dialect.Client)
	if len(got) != 1 || !bytes.Equal(got[0].Data, line) || got[0].Event != "x.y" {
		t.Errorf("%+v", got)
	}
}
