package agents_test

import (
	"testing"

	"github.com/runlog-dev/runlog/edge/dialect/agents"
	"github.com/runlog-dev/runlog/edge/dialect/dialecttest"
)

func TestTranscripts(t *testing.T) { dialecttest.Run(t, agents.Dialect{}, dialecttest.Options{}) }
