package openai_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/model"
	"github.com/runlog-dev/runlog/worker/model/modeltest"
	"github.com/runlog-dev/runlog/worker/model/openai"
)

// stream asks a server that plays the steps and returns what it said.
func stream(t *testing.T, s *modeltest.Server, e model.Endpoint) (text, reasoning string, calls []string, res model.Result) {
	t.Helper()
	e.BaseURL, e.Name = s.OpenAI(), "test"
	m, err := openai.New(e)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var ids []string
	res, err = m.Stream(ctx, model.Request{Session: event.NewSession("s"), MaxTokens: 9}, func(c model.Chunk) error {
		switch c.Kind {
		case model.Text:
			text += c.Text
		case model.Reasoning:
			reasoning += c.Text
		case model.CallStart:
			ids, calls = append(ids, c.CallID), append(calls, c.CallID+" "+c.Name+" ")
		case model.CallArgs:
			calls[c.Index] += c.Text
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return text, reasoning, calls, res
}

func serve(t *testing.T, steps ...modeltest.Step) *modeltest.Server {
	t.Helper()
	s := modeltest.Start(steps...)
	t.Cleanup(s.Close)
	return s
}

// Servers differ in how they number, name and cut parallel calls.
func TestToolCallsOfManyServers(t *testing.T) {
	calls := []modeltest.Call{{Name: "first", Args: `{"a":"a long enough argument","n":1}`}, {Name: "second", Args: `{"b":{"c":[1,2,3]}}`}, {Name: "second", Args: `{"b":2}`}}
	for name, quirks := range map[string]string{
		"by the book":             "",
		"interleaved":             "interleave",
		"id and name repeated":    "repeat_id",
		"interleaved, repeated":   "interleave repeat_id",
		"no index":                "omit_index",
		"no index, repeated id":   "omit_index repeat_id",
		"all have index 0":        "zero_index",
		"index 0, repeated id":    "zero_index repeat_id",
		"whole":                   "whole_calls",
		"whole, no index":         "whole_calls omit_index",
		"whole, no index, no id":  "whole_calls omit_index no_id",
		"whole, index 0":          "whole_calls zero_index",
		"whole, index 0, no id":   "whole_calls zero_index no_id",
		"whole, objects":          "whole_calls object_args",
		"no id":                   "no_id",
		"no id, names repeated":   "no_id repeat_id",
		"no id, no index":         "no_id omit_index",
		"interleaved, no id":      "interleave no_id",
		"interleaved, no index":   "interleave omit_index repeat_id",
		"interleaved, no id, rep": "interleave no_id repeat_id",
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, modeltest.Step{Calls: calls, Quirks: strings.Fields(quirks)})
			_, _, got, res := stream(t, s, model.Endpoint{})
			var want []string
			for i, c := range calls {
				id := fmt.Sprintf("call_%d", i+1)
				if strings.Contains(quirks, "no_id") {
					id = ""
				}
				want = append(want, id+" "+c.Name+" "+c.Args)
			}
			if strings.Join(got, "\n") != strings.Join(want, "\n") || res.FinishReason != event.FinishToolCalls {
				t.Errorf("finish %q, calls\n%s\nwant\n%s", res.FinishReason, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
}

func TestReasoningByAnyName(t *testing.T) {
	for _, quirk := range []string{"", modeltest.PlainReasoning, modeltest.BothReasoning} {
		s := serve(t, modeltest.Step{Reasoning: "let me think about it", Text: "done", Quirks: []string{quirk}})
		if text, reasoning, _, _ := stream(t, s, model.Endpoint{}); reasoning != "let me think about it" || text != "done" {
			t.Errorf("%q: reasoning %q, text %q", quirk, reasoning, text)
		}
	}
}

func TestRefusalIsTextWithAReason(t *testing.T) {
	s := serve(t, modeltest.Step{Refusal: "I will not do that."})
	if text, _, _, res := stream(t, s, model.Endpoint{}); text != "I will not do that." || res.FinishReason != event.FinishFilter {
		t.Errorf("text %q, finish %q", text, res.FinishReason)
	}
}

// A server that refuses a member is asked again without it.
func TestRefusedMembersAreLeftOut(t *testing.T) {
	both := modeltest.Step{Text: "a", Quirks: []string{modeltest.NoStreamOption, modeltest.WantsNewLimit}}
	s := serve(t, both, both, both)
	if text, _, _, _ := stream(t, s, model.Endpoint{}); text != "a" {
		t.Fatalf("text %q", text)
	}
	list := s.Requests()
	var last map[string]json.RawMessage
	if err := json.Unmarshal(list[len(list)-1].Body, &last); err != nil {
		t.Fatal(err)
	}
	if len(list) != 3 || last["stream_options"] != nil || last["max_tokens"] != nil || string(last["max_completion_tokens"]) != "9" {
		t.Errorf("%d requests, the last one is %s", len(list), list[len(list)-1].Body)
	}
}

// A finish reason makes the answer whole, even if the stream is then cut or
// stays open.
func TestAFinishedAnswerNeedsNoEnd(t *testing.T) {
	for _, fault := range []string{modeltest.FaultCut, modeltest.FaultStall, modeltest.FaultEnd} {
		s := serve(t, modeltest.Step{Text: "0123456789abcdef", Fault: fault, After: 99})
		if text, _, _, res := stream(t, s, model.Endpoint{IdleTimeout: 500 * time.Millisecond}); text != "0123456789abcdef" || res.FinishReason != event.FinishStop {
			t.Errorf("%s: text %q, finish %q", fault, text, res.FinishReason)
		}
	}
}
