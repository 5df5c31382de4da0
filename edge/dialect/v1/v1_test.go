package v1_test

import (
	"testing"

	"github.com/runlog-dev/runlog/edge/dialect/dialecttest"
	"github.com/runlog-dev/runlog/edge/dialect/v1"
)

func TestTranscripts(t *testing.T) { dialecttest.Run(t, v1.Dialect{}, dialecttest.Options{}) }
