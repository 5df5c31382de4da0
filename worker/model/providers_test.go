package model_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/model"
	"github.com/runlog-dev/runlog/worker/model/anthropic"
	"github.com/runlog-dev/runlog/worker/model/modeltest"
	"github.com/runlog-dev/runlog/worker/model/openai"
)

// A provider under test: both are held to one suite.
type provider struct {
	name string
	url  func(*modeltest.Server) string
	new  func(model.Endpoint) (model.Model, error)
}

var providers = []provider{
	{"openai", (*modeltest.Server).OpenAI, func(e model.Endpoint) (model.Model, error) { return openai.New(e) }},
	{"anthropic", (*modeltest.Server).Anthropic, func(e model.Endpoint) (model.Model, error) { return anthropic.New(e) }},
}

const key = "sk-very-secret-key-0123456789"

// each runs a test for both providers against a server that plays the steps.
func each(t *testing.T, steps []modeltest.Step, test func(t *testing.T, p provider, s *modeltest.Server)) {
	t.Helper()
	for _, p := range providers {
		t.Run(p.name, func(t *testing.T) {
			s := modeltest.Start(steps...)
			t.Cleanup(s.Close)
			test(t, p, s)
		})
	}
}

func (p provider) model(t *testing.T, s *modeltest.Server, change ...func(*model.Endpoint)) model.Model {
	t.Helper()
	e := model.Endpoint{BaseURL: p.url(s), APIKey: key, Name: "test", IdleTimeout: 20 * time.Second}
	for _, c := range change {
		c(&e)
	}
	m, err := p.new(e)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// heard is an answer put together again.
type heard struct {
	text, reasoning string
	signatures      []string
	ids, names      []string
	args            []string
	kinds           string // one letter per chunk, runs of the same one joined
}

func (h *heard) take(c model.Chunk) error {
	letter := string("trscA"[c.Kind])
	if !strings.HasSuffix(h.kinds, letter) || c.Kind == model.CallStart {
		h.kinds += letter
	}
	switch c.Kind {
	case model.Text:
		h.text += c.Text
	case model.Reasoning:
		h.reasoning += c.Text
	case model.ReasoningEnd:
		h.signatures = append(h.signatures, c.Signature)
	case model.CallStart:
		if c.Index != len(h.names) {
			return fmt.Errorf("call %d begins as number %d", c.Index, len(h.names))
		}
		h.ids, h.names, h.args = append(h.ids, c.CallID), append(h.names, c.Name), append(h.args, "")
	case model.CallArgs:
		h.args[c.Index] += c.Text
	}
	return nil
}

// request continues a conversation that has one finished call.
func request() model.Request {
	s := event.NewSession("s")
	for i, e := range []event.Event{
		event.New(event.RunStarted, event.RunStartedData{Agent: "a"}),
		event.New(event.MessageCompleted, event.MessageCompletedData{MessageID: "m1", Role: event.RoleUser, Parts: []event.Part{event.TextPart("hi")}}),
		event.New(event.MessageStarted, event.MessageStartedData{MessageID: "m2", Role: event.RoleAssistant}),
		event.New(event.ToolStarted, event.ToolStartedData{CallID: "call_1", Name: "look.up", MessageID: "m2"}),
		event.New(event.MessageCompleted, event.MessageCompletedData{MessageID: "m2", Role: event.RoleAssistant, Parts: []event.Part{{Type: event.PartToolCall, CallID: "call_1"}}}),
		event.New(event.ToolCompleted, event.ToolCompletedData{CallID: "call_1", Name: "look.up", Args: "{}", Content: []event.Part{event.TextPart("42")}}),
	} {
		e.Seq, e.SessionID, e.RunID = event.Seq(i+1), "s", "run"
		if err := s.Apply(e); err != nil {
			panic(err)
		}
	}
	return model.Request{Session: s, RunID: "run", System: "be brief", Tools: []model.ToolSpec{{Name: "look.up", Description: "looks up"}, {Name: "plain"}}}
}

func ask(t *testing.T, m model.Model) (heard, model.Result, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var h heard
	res, err := m.Stream(ctx, request(), h.take)
	return h, res, err
}

func failure(t *testing.T, m model.Model) *model.Error {
	t.Helper()
	_, res, err := ask(t, m)
	var e *model.Error
	if !errors.As(err, &e) {
		t.Fatalf("got result %+v, error %v; want a *model.Error", res, err)
	}
	if strings.Contains(err.Error(), key) {
		t.Errorf("the key is in %q", err)
	}
	return e
}

const spoken = "Grüße 北京 🌤\u2028 <b>&amp;</b>\n\ndata: x\n"

func TestAnswersArriveWhole(t *testing.T) {
	whole := modeltest.Step{Reasoning: "hm 🤔 so", Signature: "sig==", Text: spoken, Usage: modeltest.Usage{Input: 100, Output: 20, Reasoning: 5, Cached: 30},
		Calls: []modeltest.Call{{ID: "c_a", Name: event.WireName("look.up"), Args: `{"q":"北京","n":9007199254740993}`}, {ID: "c_b", Name: "plain", Args: ""}}}
	for name, change := range map[string]func(*modeltest.Step){
		"events":   func(*modeltest.Step) {},
		"bytes":    func(s *modeltest.Step) { s.Pace.Bytes, s.Pace.Runes = 1, 1 },
		"crlf":     func(s *modeltest.Step) { s.Quirks = []string{modeltest.CRLF, modeltest.Pings} },
		"no usage": func(s *modeltest.Step) { s.Quirks = []string{modeltest.NoUsage, modeltest.NoDone} },
	} {
		t.Run(name, func(t *testing.T) {
			step := whole
			change(&step)
			each(t, []modeltest.Step{step}, func(t *testing.T, p provider, s *modeltest.Server) {
				h, res, err := ask(t, p.model(t, s))
				if err != nil {
					t.Fatal(err)
				}
				if h.text != spoken || h.reasoning != "hm 🤔 so" || h.kinds != "rstcAcA" {
					t.Errorf("text %q, reasoning %q, order %s", h.text, h.reasoning, h.kinds)
				}
				if fmt.Sprint(h.ids, h.names, h.args) != `[c_a c_b] [look.up plain] [{"q":"北京","n":9007199254740993} {}]` {
					t.Errorf("calls %q %q %q", h.ids, h.names, h.args)
				}
				if p.name == "anthropic" && fmt.Sprint(h.signatures) != "[sig==]" {
					t.Errorf("signatures %q", h.signatures)
				}
				checkResult(t, p, name, res)
			})
		})
	}
}

func checkResult(t *testing.T, p provider, name string, res model.Result) {
	t.Helper()
	want := event.Usage{InputTokens: 100, OutputTokens: 20, ReasoningTokens: 5, CachedInputTokens: 30}
	if p.name == "anthropic" {
		want.InputTokens = 130 // the cached ones are counted apart
	} else if name == "no usage" {
		want = event.Usage{}
	}
	if res.FinishReason != event.FinishToolCalls || res.Usage != want {
		t.Errorf("result %+v, want usage %+v", res, want)
	}
}

func TestFinishReasons(t *testing.T) {
	cut := []modeltest.Call{{Name: "plain", Args: `{"a":`}}
	for name, c := range map[string]struct {
		step      modeltest.Step
		anthropic string // its word for the same
		want      event.FinishReason
	}{
		"stop":             {modeltest.Step{Text: "a"}, "", event.FinishStop},
		"calls":            {modeltest.Step{Calls: []modeltest.Call{{Name: "plain"}}}, "", event.FinishToolCalls},
		"length":           {modeltest.Step{Text: "a", Finish: "length"}, "max_tokens", event.FinishLength},
		"length in a call": {modeltest.Step{Calls: cut, Finish: "length"}, "max_tokens", event.FinishLength},
		"filter":           {modeltest.Step{Text: "a", Finish: "content_filter"}, "refusal", event.FinishFilter},
		"calls as stop":    {modeltest.Step{Calls: []modeltest.Call{{Name: "plain"}}, Finish: "stop"}, "end_turn", event.FinishToolCalls},
	} {
		t.Run(name, func(t *testing.T) {
			for _, p := range providers {
				step := c.step
				if p.name == "anthropic" && c.anthropic != "" {
					step.Finish = c.anthropic
				}
				s := modeltest.Start(step)
				h, res, err := ask(t, p.model(t, s))
				s.Close()
				if err != nil || res.FinishReason != c.want {
					t.Errorf("%s: %q, %v, want %q", p.name, res.FinishReason, err, c.want)
				}
				if name == "length in a call" && h.args[0] != `{"a":` {
					t.Errorf("%s: cut arguments came as %q", p.name, h.args[0])
				}
			}
		})
	}
}

// Cancel reaches the server's socket while the stream is silent.
func TestCancelClosesTheSocket(t *testing.T) {
	each(t, []modeltest.Step{{Text: spoken, Fault: modeltest.FaultStall, After: 1}}, func(t *testing.T, p provider, s *modeltest.Server) {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := p.model(t, s).Stream(ctx, request(), func(model.Chunk) error { cancel(); return nil })
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want context.Canceled", err)
		}
		req := s.Requests()[0]
		<-req.Done()
		if dropped, _ := req.Dropped(); !dropped {
			t.Error("the server did not see the client go")
		}
	})
}

func TestCancelBeforeTheAnswerBegins(t *testing.T) {
	each(t, []modeltest.Step{{Fault: modeltest.FaultDeaf}}, func(t *testing.T, p provider, s *modeltest.Server) {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			_, _ = s.Wait(ctx, 1)
			cancel()
		}()
		if _, err := p.model(t, s).Stream(ctx, request(), func(model.Chunk) error { return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want context.Canceled", err)
		}
		<-s.Requests()[0].Done()
	})
}

func TestAnErrorOfEmitEndsTheStream(t *testing.T) {
	mine := errors.New("fenced")
	each(t, []modeltest.Step{{Text: spoken, Fault: modeltest.FaultStall}}, func(t *testing.T, p provider, s *modeltest.Server) {
		chunks := 0
		_, err := p.model(t, s).Stream(t.Context(), request(), func(model.Chunk) error { chunks++; return mine })
		if err != mine || chunks != 1 { //nolint:errorlint // as it is
			t.Errorf("error %v after %d chunks, want the emitter's own after 1", err, chunks)
		}
		<-s.Requests()[0].Done()
	})
}

// The caller's own slowness is not the server's silence.
func TestASlowReaderIsNoStall(t *testing.T) {
	each(t, []modeltest.Step{{Text: spoken}}, func(t *testing.T, p provider, s *modeltest.Server) {
		m := p.model(t, s, func(e *model.Endpoint) { e.IdleTimeout = 400 * time.Millisecond })
		slow := sync.OnceFunc(func() { <-time.After(time.Second) })
		_, err := m.Stream(t.Context(), request(), func(model.Chunk) error { slow(); return nil })
		if err != nil {
			t.Error(err)
		}
	})
}

// What goes over the wire: the request as configured, no key of the environment.
func TestRequests(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "sk-of-the-environment")
	t.Setenv("ANTHROPIC_API_KEY", "sk-of-the-environment")
	t.Setenv("OPENAI_BASE_URL", "http://127.0.0.1:1")
	t.Setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:1")
	each(t, []modeltest.Step{{Text: "a"}, {Text: "a"}}, func(t *testing.T, p provider, s *modeltest.Server) {
		half := 0.5
		m := p.model(t, s, func(e *model.Endpoint) {
			e.Temperature, e.MaxTokens, e.Headers, e.Extra = &half, 77, map[string]string{"X-Team": "a"}, map[string]any{"top_p": 0.25}
		})
		keyless := p.model(t, s, func(e *model.Endpoint) { e.APIKey = "" })
		for _, m := range []model.Model{m, keyless} {
			if _, _, err := ask(t, m); err != nil {
				t.Fatal(err)
			}
		}
		first, second := s.Requests()[0], s.Requests()[1]
		if got := fmt.Sprint(first.Header, second.Header); !strings.Contains(got, key) || strings.Contains(got, "environment") || first.Header.Get("X-Team") != "a" {
			t.Errorf("headers %v", got)
		}
		if got := fmt.Sprint(second.Header); strings.Contains(got, key) || second.Header.Get("Authorization")+second.Header.Get("X-Api-Key") != "" {
			t.Errorf("a key without key: %v", got)
		}
		var body struct {
			Temperature float64 `json:"temperature"`
			TopP        float64 `json:"top_p"`
			MaxTokens   int     `json:"max_tokens"`
			Tools       []json.RawMessage
		}
		if err := json.Unmarshal(first.Body, &body); err != nil {
			t.Fatal(err)
		}
		if body.Temperature != 0.5 || body.TopP != 0.25 || body.MaxTokens != 77 || len(body.Tools) != 2 || !strings.Contains(string(first.Body), "be brief") {
			t.Errorf("body %s", first.Body)
		}
	})
}

// An id that the session already has would be taken for the old call.
func TestTakenIDsAreNotGivenOn(t *testing.T) {
	calls := []modeltest.Call{{ID: "call_1", Name: "plain"}, {ID: "new", Name: "plain"}, {ID: "new", Name: "plain"}, {ID: "with space", Name: "plain"}}
	each(t, []modeltest.Step{{Calls: calls}}, func(t *testing.T, p provider, s *modeltest.Server) {
		h, _, err := ask(t, p.model(t, s))
		if err != nil || len(h.ids) < 3 || h.ids[0] != "" || h.ids[1] != "new" || h.ids[len(h.ids)-1] != "" {
			t.Errorf("ids %q, %v", h.ids, err)
		}
		for _, a := range h.args {
			if a != "{}" {
				t.Errorf("arguments %q", h.args)
			}
		}
	})
}

func TestEndpointsAreChecked(t *testing.T) {
	for _, p := range providers {
		for _, e := range []model.Endpoint{{}, {Name: "m", BaseURL: "localhost:11434/v1"}, {Name: "m", BaseURL: "::"}, {Name: "m", BaseURL: "ftp://x"}} {
			if _, err := p.new(e); err == nil {
				t.Errorf("%s takes %+v", p.name, e)
			}
		}
		if _, err := p.new(model.Endpoint{Name: "m"}); err != nil {
			t.Errorf("%s: %v", p.name, err)
		}
	}
}
