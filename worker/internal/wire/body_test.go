package wire

import (
	"encoding/json"
	"testing"
)

func TestBody(t *testing.T) {
	for want, rest := range map[string]map[string]any{
		`{"messages":[{"a": 1.0}]}`:                     {},
		`{"model":"m","top":1,"messages":[{"a": 1.0}]}`: {"top": 1, "model": "m"},
		`{"messages":"mine","model":"m"}`:               {"model": "m", "messages": "mine"},
	} {
		if got := string(Body(rest, "messages", json.RawMessage(`[{"a": 1.0}]`))); got != want || !json.Valid([]byte(got)) {
			t.Errorf("%v becomes %s, want %s", rest, got, want)
		}
	}
}
