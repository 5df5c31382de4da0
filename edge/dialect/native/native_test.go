package native_test

import (
	"testing"

	"github.com/runlog-dev/runlog/edge/dialect/dialecttest"
	"github.com/runlog-dev/runlog/edge/dialect/native"
)

func TestTranscripts(t *testing.T) { dialecttest.Run(t, native.Dialect{}, dialecttest.Options{}) }
