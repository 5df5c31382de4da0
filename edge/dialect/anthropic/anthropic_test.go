package anthropic_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/edge/dialect/anthropic"
	"github.com/runlog-dev/runlog/edge/dialect/dialecttest"
	"github.com/runlog-dev/runlog/edge/dialect/scenarios"
	"github.com/runlog-dev/runlog/event"
)

func TestTranscripts(t *testing.T) { dialecttest.Run(t, anthropic.Dialect{}, dialecttest.Options{}) }

type wire struct {
	Type    string
	Index   int
	Message struct{ Content []map[string]any }
	Block   map[string]any `json:"content_block"`
	Delta   struct {
		Type, Text, Thinking, Signature string
		Input                           string `json:"partial_json"`
		StopReason                      string `json:"stop_reason"`
	}
}

// What a client puts together of the stream is what the message is at its end.
func TestBlocksAddUp(t *testing.T) {
	for _, sc := range scenarios.All() {
		t.Run(sc.Name, func(t *testing.T) {
			m := anthropic.NewMessage(anthropic.Dialect{})
			var content []map[string]any
			open, over := false, 0
			for _, e := range sc.Log() {
				if e.RunID != scenarios.RunID {
					continue
				}
				for _, said := range m.Next(e, nil, dialect.Client) {
					var w wire
					if err := json.Unmarshal(said.Data, &w); err != nil || w.Type != said.Event {
						t.Fatalf("%v: %s %s", err, said.Event, said.Data)
					}
					switch w.Type {
					case "message_start": // another one, if the run goes on after it was parked
						content = nil
					case "content_block_start":
						if open || w.Index != len(content) {
							t.Errorf("block %d begins; %d are there, one open: %v", w.Index, len(content), open)
						}
						content, open = append(content, w.Block), true
					case "content_block_delta":
						if !open || w.Index != len(content)-1 {
							t.Errorf("delta of block %d", w.Index)
						}
						add(t, content[w.Index], w)
					case "content_block_stop":
						open = false
					case "message_stop", "error":
						over++
						if open {
							t.Error("it ends with a block open")
						}
						same(t, m, content)
					}
				}
			}
			if over < 1 || over > 2 || m.Over() != true || (m.Failed() != nil) != (sc.Ends == event.RunFailed) {
				t.Errorf("it ended %d times, failed: %v", over, m.Failed())
			}
		})
	}
}

func add(t *testing.T, block map[string]any, w wire) {
	t.Helper()
	switch w.Delta.Type {
	case "text_delta":
		block["text"] = block["text"].(string) + w.Delta.Text
	case "thinking_delta":
		block["thinking"] = block["thinking"].(string) + w.Delta.Thinking
	case "signature_delta":
		block["signature"] = w.Delta.Signature
	case "input_json_delta":
		block["input"] = json.RawMessage(w.Delta.Input)
	default:
		t.Errorf("delta of type %s", w.Delta.Type)
	}
}

func same(t *testing.T, m *anthropic.Message, content []map[string]any) {
	t.Helper()
	var made struct{ Content []any }
	decode(t, m.JSON(), &made)
	var got []any
	decode(t, event.Encode(content), &got)
	if len(got)+len(made.Content) > 0 && !reflect.DeepEqual(got, made.Content) {
		t.Errorf("streamed %s\nmade %s", event.Encode(got), event.Encode(made.Content))
	}
}

func decode(t *testing.T, data []byte, v any) {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := dec.Decode(v); err != nil {
		t.Fatal(err)
	}
}
