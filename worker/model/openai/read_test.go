package openai

import (
	"bytes"
	"testing"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/internal/wire"
	"github.com/runlog-dev/runlog/worker/model"
)

// readAll feeds chunks to a reader and returns what it makes of them: kinds as
// letters before their text.
func readAll(t *testing.T, chunks ...string) (said string, res model.Result, err error) {
	t.Helper()
	call := wire.New(model.Endpoint{Name: "m", IdleTimeout: 1e9, StartTimeout: 1e9}).Begin(t.Context())
	defer call.Close()
	calls := 0
	r := newReader(wire.NewAnswer(model.Request{Session: event.NewSession("s")}, func(c model.Chunk) error {
		if c.Kind == model.CallStart {
			if c.Index != calls {
				t.Fatalf("call %d begins as number %d", calls, c.Index)
			}
			calls++
		}
		if c.Kind == model.CallArgs && (c.Index < 0 || c.Index >= calls) {
			t.Fatalf("arguments of call %d, %d have begun", c.Index, calls)
		}
		said += string("trscA"[c.Kind]) + ":" + c.CallID + c.Name + c.Text + " "
		return nil
	}), call)
	for _, c := range chunks {
		if err := r.read([]byte(c)); err != nil {
			return said, res, err
		}
	}
	res, err = r.end()
	return said, res, err
}

const stop = `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`

func TestOddChunks(t *testing.T) {
	for name, c := range map[string]struct {
		chunk, want string
	}{
		"content as a list":      {`{"choices":[{"delta":{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":"so"}]}}]}`, "r:hm s: t:so "},
		"nulls":                  {`{"choices":[{"delta":{"role":"assistant","content":null,"reasoning":null,"tool_calls":null,"function_call":null}}],"usage":null}`, ""},
		"reasoning as an object": {`{"choices":[{"delta":{"reasoning":{"effort":"high"},"content":"a"}}]}`, "t:a "},
		"another choice":         {`{"choices":[{"index":1,"delta":{"content":"b"},"finish_reason":"length"},{"index":0,"delta":{"content":"a"}}]}`, "t:a "},
		"function_call":          {`{"choices":[{"delta":{"function_call":{"name":"f","arguments":"{}"}}}]}`, "c:f A:{} "},
		"a name that comes late": {`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"x","function":{"arguments":"{\"a\""}},{"index":0,"function":{"name":"f","arguments":":1}"}}]}}]}`, `c:xf A:{"a":1} `},
		"no name at all":         {`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"x","function":{"arguments":"{}"}}]}}]}`, "c:x A:{} "},
		"no choices":             {`{"id":"x"}`, ""},
	} {
		said, _, err := readAll(t, c.chunk, stop)
		if err != nil || said != c.want {
			t.Errorf("%s: %q, %v; want %q", name, said, err, c.want)
		}
	}
	if _, _, err := readAll(t, `{"choices":"no"}`, stop); err == nil {
		t.Error("a chunk that is none is taken")
	}
}

func FuzzChunks(f *testing.F) {
	f.Add([]byte(stop))
	f.Add([]byte(`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"x","function":{"name":"f","arguments":"{"}},{"function":{"name":"g"}},{"index":-1,"id":"x"}]}}]}` + "\n" + stop))
	f.Fuzz(func(t *testing.T, body []byte) {
		var chunks []string
		for line := range bytes.Lines(body) {
			chunks = append(chunks, string(line))
		}
		_, res, err := readAll(t, chunks...)
		if err == nil && res.FinishReason == "" {
			t.Errorf("success without a finish reason for %q", body)
		}
	})
}

func TestUsageThatCannotBe(t *testing.T) {
	for said, want := range map[string]event.Usage{
		`{"prompt_tokens":-3,"completion_tokens":-1,"prompt_tokens_details":{"cached_tokens":-1}}`: {},
		`{"prompt_tokens":9223372036854775807,"completion_tokens":1}`:                              {InputTokens: event.MaxTokens, OutputTokens: 1},
	} {
		if _, res, err := readAll(t, stop, `{"choices":[],"usage":`+said+`}`); err != nil || res.Usage != want {
			t.Errorf("%s: %+v, %v", said, res.Usage, err)
		}
	}
}
