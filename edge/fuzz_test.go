package edge

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/runlog-dev/runlog/edge/stream"
	"github.com/runlog-dev/runlog/event"
)

// Whatever a first message says, it is refused or comes to parameters that a URL
// could have had.
func FuzzFirstMessage(f *testing.F) {
	for _, seed := range []string{`{}`, `{"after":"41.0","snapshot":true}`, `{"after":41,"catchup":"merged"}`, `{"after":null}`, `{"after":{"a":"\u2028"}}`, `[1]`, `{"follow":false,"include":"internal"}`} {
		f.Add(seed)
	}
	known := []string{"after", "snapshot", "follow", "dialect", "catchup", "include"}
	f.Fuzz(func(t *testing.T, raw string) {
		var o opening
		if decode([]byte(raw), &o) != nil {
			return
		}
		q := url.Values{}
		o.into(q)
		for name, values := range q {
			if !slices.Contains(known, name) || len(values) != 1 || values[0] == "" {
				t.Errorf("%s: %q", name, values)
			}
		}
		if at, err := stream.ParsePosition(q.Get("after")); err == nil && at.String() == "" {
			t.Errorf("%s came to %v", raw, at)
		}
	})
}

// A command becomes a body that is JSON or is refused; what approve and deny
// decide cannot be turned by their body.
func FuzzSocketCommand(f *testing.F) {
	for _, seed := range []string{`{"id":"1","do":"approve"}`, `{"id":"1","do":"deny","body":{"decision":"approve","reason":"x"}}`, `{"id":"1","do":"deny","body":{"decision":"a","decision":"approve"}}`, `{"do":"cancel","body":7}`, `{"id":"1","do":"approve","body":null}`, `{`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		var cmd socketCommand
		if decode([]byte(raw), &cmd) != nil {
			return
		}
		body, err := cmd.body()
		if err != nil || cmd.Do != "approve" && cmd.Do != "deny" {
			return
		}
		var d decisionRequest
		if err := json.Unmarshal(body, &d); err == nil && d.Decision != event.Decision(cmd.Do) {
			t.Errorf("%s decides %s", raw, d.Decision)
		}
		if strings.Count(string(body), "\n") > 0 {
			t.Errorf("%q", body)
		}
	})
}
