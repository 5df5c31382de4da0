package plain_test

import (
	"testing"

	"github.com/runlog-dev/runlog/edge/dialect/dialecttest"
	"github.com/runlog-dev/runlog/edge/dialect/plain"
)

func TestTranscripts(t *testing.T) { dialecttest.Run(t, plain.Dialect{}, dialecttest.Options{}) }
