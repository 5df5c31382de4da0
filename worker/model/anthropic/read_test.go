package anthropic

import (
	"bytes"
	"testing"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/internal/wire"
	"github.com/runlog-dev/runlog/worker/model"
	"github.com/runlog-dev/runlog/worker/model/modeltest"
)

// readAll feeds events to a reader and returns what it makes of them.
func readAll(t *testing.T, events ...string) (said string, res model.Result, err error) {
	t.Helper()
	call := wire.New(model.Endpoint{Name: "m", IdleTimeout: 1e9, StartTimeout: 1e9}).Begin(t.Context())
	defer call.Close()
	calls := 0
	r := newReader(wire.NewAnswer(model.Request{Session: event.NewSession("s")}, func(c model.Chunk) error {
		if c.Kind == model.CallStart {
			calls++
		}
		if c.Kind == model.CallArgs && (c.Index < 0 || c.Index >= calls) {
			t.Fatalf("arguments of call %d, %d have begun", c.Index, calls)
		}
		said += string("trscA"[c.Kind]) + ":" + c.CallID + c.Name + c.Text + c.Signature + " "
		return nil
	}), call)
	for _, e := range events {
		if err := r.read([]byte(e)); err != nil {
			return said, res, err
		}
	}
	res, err = r.end()
	return said, res, err
}

var ending = []string{`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":3}}`, `{"type":"message_stop"}`}

func TestOddEvents(t *testing.T) {
	for name, c := range map[string]struct {
		events []string
		want   string
	}{
		"input with the start":     {[]string{`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"x","name":"f","input":{"a":1}}}`, `{"type":"content_block_stop","index":0}`}, `c:xf A:{"a":1} `},
		"a call that is not ended": {[]string{`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"x","name":"f","input":{}}}`}, `c:xf A:{} `},
		"text with the start":      {[]string{`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"a"}}`, `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"b"}}`}, "t:a t:b "},
		"a delta of no block":      {[]string{`{"type":"content_block_delta","index":7,"delta":{"type":"text_delta","text":"b"}}`}, ""},
		"thought without text":     {[]string{`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":"sig"}}`, `{"type":"content_block_stop","index":0}`}, "s:sig "},
		"redacted":                 {[]string{`{"type":"content_block_start","index":0,"content_block":{"type":"redacted_thinking","data":"opaque"}}`, `{"type":"content_block_stop","index":0}`}, "s:redacted:opaque "},
		"a server's own tool":      {[]string{`{"type":"content_block_start","index":0,"content_block":{"type":"server_tool_use","id":"x","name":"web","input":{}}}`, `{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{}"}}`, `{"type":"content_block_stop","index":0}`}, ""},
		"unknown":                  {[]string{`{"type":"tomorrow"}`}, ""},
	} {
		said, _, err := readAll(t, append(c.events, ending...)...)
		if err != nil || said != c.want {
			t.Errorf("%s: %q, %v; want %q", name, said, err, c.want)
		}
	}
}

// Without message_stop, or with one that gives no reason, nothing is whole.
func TestEndings(t *testing.T) {
	for _, events := range [][]string{{}, ending[:1], ending[1:]} {
		if _, res, err := readAll(t, events...); err == nil {
			t.Errorf("%q is success: %+v", events, res)
		}
	}
}

// What a model thought goes through the log and back as it came.
func TestThinkingMakesTheRoundTrip(t *testing.T) {
	s := modeltest.Start(modeltest.Step{Reasoning: "signed thought", Signature: "c2ln", Redacted: "b3BhcXVl", Text: "hello"})
	defer s.Close()
	m, err := New(model.Endpoint{BaseURL: s.Anthropic() + "/v1/", Name: "m"})
	if err != nil {
		t.Fatal(err)
	}
	var parts []event.Part
	thought := event.Part{Type: event.PartReasoning}
	_, err = m.Stream(t.Context(), model.Request{Session: event.NewSession("s")}, func(c model.Chunk) error {
		switch c.Kind {
		case model.Reasoning:
			thought.Text += c.Text
		case model.ReasoningEnd:
			thought.Signature = c.Signature
			parts, thought = append(parts, thought), event.Part{Type: event.PartReasoning}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	session := event.NewSession("s")
	for i, p := range [][]event.Part{{event.TextPart("hi")}, append(parts, event.TextPart("hello")), {event.TextPart("go on")}} {
		e := event.New(event.MessageCompleted, event.MessageCompletedData{MessageID: string(rune('a' + i)), Role: []event.Role{event.RoleUser, event.RoleAssistant}[i%2], Parts: p})
		e.Seq, e.SessionID = event.Seq(i+1), "s"
		if err := session.Apply(e); err != nil {
			t.Fatal(err)
		}
	}
	_, messages := session.AnthropicMessages("")
	want := `{"type":"thinking","thinking":"signed thought","signature":"c2ln"},{"type":"redacted_thinking","data":"b3BhcXVl"}`
	if !bytes.Contains(messages, []byte(want)) {
		t.Errorf("request %s lacks %s", messages, want)
	}
}

func FuzzEvents(f *testing.F) {
	f.Add([]byte(ending[0] + "\n" + ending[1]))
	f.Add([]byte(`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"x","name":"f","input":[]}}` + "\n" + `{"type":"content_block_stop"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var events []string
		for line := range bytes.Lines(body) {
			events = append(events, string(line))
		}
		_, res, err := readAll(t, events...)
		if err == nil && res.FinishReason == "" {
			t.Errorf("success without a finish reason for %q", body)
		}
	})
}

func TestUsageThatCannotBe(t *testing.T) {
	for said, want := range map[string]event.Usage{
		`{"input_tokens":-3,"output_tokens":-1,"cache_read_input_tokens":-1}`:                {},
		`{"input_tokens":9223372036854775807,"cache_read_input_tokens":9223372036854775807}`: {InputTokens: event.MaxTokens, CachedInputTokens: event.MaxTokens},
	} {
		_, res, err := readAll(t, `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":`+said+`}`, `{"type":"message_stop"}`)
		if err != nil || res.Usage != want {
			t.Errorf("%s: %+v, %v", said, res.Usage, err)
		}
	}
}
