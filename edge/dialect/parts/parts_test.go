package parts_test

import (
	"testing"

	"github.com/runlog-dev/runlog/edge/dialect/dialecttest"
	"github.com/runlog-dev/runlog/edge/dialect/parts"
)

func TestTranscripts(t *testing.T) { dialecttest.Run(t, parts.Dialect{}, dialecttest.Options{}) }
