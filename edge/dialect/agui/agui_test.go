package agui_test

import (
	"testing"

	"github.com/runlog-dev/runlog/edge/dialect/agui"
	"github.com/runlog-dev/runlog/edge/dialect/dialecttest"
	"github.com/runlog-dev/runlog/edge/dialect/scenarios"
	"github.com/runlog-dev/runlog/event"
)

func ofRun(e event.Event) bool { return e.RunID == scenarios.RunID }

func TestTranscripts(t *testing.T) {
	t.Run("session", func(t *testing.T) { dialecttest.Run(t, agui.Dialect{}, dialecttest.Options{}) })
	t.Run("run", func(t *testing.T) {
		dialecttest.Run(t, agui.Dialect{Run: scenarios.RunID, Old: true}, dialecttest.Options{Variant: "old-run", Mine: ofRun})
	})
}
