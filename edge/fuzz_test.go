package edge

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/runlog-dev/runlog/edge/dialect/native"
	"github.com/runlog-dev/runlog/edge/stream"
	"github.com/runlog-dev/runlog/event"
)

// Whatever a first message says, it is refused or comes to parameters that a URL
// could have had, which are read as those of a URL are.
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
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/v1/sessions/s/events?"+q.Encode(), nil)
		r = r.WithContext(context.WithValue(r.Context(), socketKey{}, true))
		req, err := new(Server).streamRequest(r, &call{}, native.Dialect{})
		if err != nil {
			if p := toProblem(err); p.Status < 400 || p.Status > 499 {
				t.Errorf("%s: %v", raw, err)
			}
			return
		}
		if want, err := stream.ParsePosition(q.Get("after")); err != nil || req.After != want || req.Transport != (stream.WebSocket{}) {
			t.Errorf("%s came to %+v", raw, req)
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
