package aisdk_test

import (
	"encoding/json"
	"testing"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/edge/dialect/aisdk"
	"github.com/runlog-dev/runlog/edge/dialect/dialecttest"
	"github.com/runlog-dev/runlog/edge/dialect/scenarios"
)

func TestTranscripts(t *testing.T) {
	dialecttest.Run(t, aisdk.Dialect{}, dialecttest.Options{Plain: true})
}

// A snapshot tells the run as a stream would: from its start, every part opened
// before it goes on.
func TestRetold(t *testing.T) {
	for _, sc := range scenarios.All() {
		fold, err := scenarios.Fold(sc.Log())
		if err != nil {
			t.Fatal(err)
		}
		open := map[string]bool{}
		list := aisdk.Dialect{}.Snapshot(dialect.Snapshot, fold, dialect.Client)
		for i, m := range list {
			var c struct{ Type, ID, ToolCallID string }
			if string(m.Data) == "[DONE]" && i == len(list)-1 {
				continue
			}
			if err := json.Unmarshal(m.Data, &c); err != nil || (i == 0) != (c.Type == "start") {
				t.Fatalf("%s: chunk %d: %s %v", sc.Name, i, m.Data, err)
			}
			switch c.Type {
			case "text-start", "reasoning-start", "tool-input-start":
				open[c.ID+c.ToolCallID] = true
			case "text-delta", "reasoning-delta", "text-end", "reasoning-end", "tool-input-available", "tool-output-available", "tool-output-error":
				if !open[c.ID+c.ToolCallID] {
					t.Errorf("%s: chunk %d goes on with what has not begun: %s", sc.Name, i, m.Data)
				}
			}
		}
	}
}
