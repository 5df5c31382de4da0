package modeltest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/runlog-dev/runlog/event/refusal"
)

// asked is what the server needs to know of a request.
type asked struct {
	turn int // assistant's messages since the user's last words
	body map[string]json.RawMessage
}

// check refuses what the real servers refuse.
func check(p Protocol, h http.Header, body []byte) (asked, error) {
	var a asked
	if err := json.Unmarshal(body, &a.body); err != nil {
		return a, fmt.Errorf("the body is not JSON: %w", err)
	}
	if string(a.body["stream"]) != "true" {
		return a, errors.New("this server only streams: set stream")
	}
	if len(a.body["model"]) < 3 {
		return a, errors.New("model is missing")
	}
	refuses := refusal.Chat
	if p == Anthropic {
		refuses = refusal.Messages
		if h.Get("Anthropic-Version") == "" || len(a.body["max_tokens"]) == 0 {
			return a, errors.New("anthropic-version or max_tokens is missing")
		}
	}
	if err := refuses(a.body["messages"]); err != nil {
		return a, fmt.Errorf("messages: %w", err)
	}
	a.turn = turnOf(a.body["messages"])
	return a, nil
}

// refused says why a server with the step's quirks does not take the request.
func (a asked) refused(s *Step) string {
	switch {
	case s.has(NoStreamOption) && a.body["stream_options"] != nil:
		return "Unrecognized request argument supplied: stream_options"
	case s.has(WantsNewLimit) && a.body["max_tokens"] != nil:
		return "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
	}
	return ""
}

// turnOf counts the assistant's messages since the user's last words, in either
// protocol.
func turnOf(messages []byte) (n int) {
	var all []struct {
		Role    string
		Content json.RawMessage
	}
	_ = json.Unmarshal(messages, &all) // it was read before
	for _, m := range all {
		switch {
		case m.Role == "assistant":
			n++
		case m.Role == "user" && hasWords(m.Content):
			n = 0
		}
	}
	return n
}

// hasWords tells words from results, which the Messages API has the user give too.
func hasWords(content json.RawMessage) bool {
	var blocks []struct{ Type string }
	if json.Unmarshal(content, &blocks) != nil {
		return true // a text
	}
	return slices.ContainsFunc(blocks, func(b struct{ Type string }) bool { return b.Type == "text" })
}
