package scripted

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/model"
)

// A world is a session that an agent loop writes, with tools that answer.
type world struct {
	t     *testing.T
	s     *event.Session
	model model.Model
	tools func(name, args string) event.ToolCompletedData
	ids   int
}

func play(t *testing.T, script string) *world {
	t.Helper()
	parsed, err := Parse([]byte(script))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, s: event.NewSession("s"), model: New(parsed)}
	w.tools = func(name, args string) event.ToolCompletedData {
		return event.ToolCompletedData{Content: []event.Part{event.TextPart(name + " says " + args)}}
	}
	return w
}

func (w *world) add(e event.Event) {
	w.t.Helper()
	e.Seq, e.SessionID, e.RunID = w.s.Seq+1, "s", "run"
	if err := w.s.Apply(e); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) user(text string) {
	w.ids++
	w.add(event.New(event.MessageCompleted, event.MessageCompletedData{MessageID: fmt.Sprint("u", w.ids), Role: event.RoleUser, Parts: []event.Part{event.TextPart(text)}}))
}

func (w *world) start(input string) {
	w.add(event.New(event.RunStarted, event.RunStartedData{Agent: "a"}))
	w.user(input)
}

// answer is one answer put together.
type answer struct {
	reasoning, text string
	names, args     []string
	chunks          int
	result          model.Result
}

func (w *world) ask(ctx context.Context, attempt int) (answer, error) {
	var a answer
	res, err := w.model.Stream(ctx, model.Request{Session: w.s, RunID: "run", System: "sys", Attempt: attempt, Tools: []model.ToolSpec{{Name: "lookup"}}}, func(c model.Chunk) error {
		a.chunks++
		switch c.Kind {
		case model.Reasoning:
			a.reasoning += c.Text
		case model.Text:
			a.text += c.Text
		case model.CallStart:
			if c.Index != len(a.names) {
				return fmt.Errorf("call %d begins as %d", c.Index, len(a.names))
			}
			a.names, a.args = append(a.names, c.Name), append(a.args, "")
		case model.CallArgs:
			a.args[c.Index] += c.Text
		}
		return nil
	})
	a.result = res
	return a, err
}

func (w *world) must(attempt int) answer {
	w.t.Helper()
	a, err := w.ask(w.t.Context(), attempt)
	if err != nil {
		w.t.Fatal(err)
	}
	return a
}

// step plays one step and logs it as the agent loop does: its tools answer.
func (w *world) step() answer {
	w.t.Helper()
	step := w.s.Run("run").Book.Step + 1
	w.add(event.New(event.StepStarted, event.StepStartedData{Step: step}))
	a := w.must(1)
	id := fmt.Sprint("m", step)
	parts := []event.Part{event.TextPart(a.text)}
	w.add(event.New(event.MessageStarted, event.MessageStartedData{MessageID: id, Role: event.RoleAssistant}))
	for i, name := range a.names {
		call := fmt.Sprint("c", step, i)
		parts = append(parts, event.Part{Type: event.PartToolCall, CallID: call})
		w.add(event.New(event.ToolStarted, event.ToolStartedData{CallID: call, Name: name, MessageID: id, Executor: event.ByWorker}))
	}
	w.add(event.New(event.MessageCompleted, event.MessageCompletedData{MessageID: id, Role: event.RoleAssistant, Parts: parts}))
	w.add(event.New(event.StepCompleted, event.StepCompletedData{Step: step}))
	for i, name := range a.names {
		d := w.tools(name, a.args[i])
		d.CallID, d.Name, d.Args = fmt.Sprint("c", step, i), name, a.args[i]
		w.add(event.New(event.ToolCompleted, d))
	}
	return a
}

func TestStepsAnswerFromResults(t *testing.T) {
	w := play(t, `
steps:
  - reasoning: "Of {{.Input}}."
    text: "Looking. "
    calls:
      - {name: lookup, args: {key: "{{.Input}}", n: 9007199254740993, deep: [true, null, {z: "{{.Step}}", a: 1.5}]}}
      - {name: count, args: '{"n": {{len .Results}}}'}
      - {name: bare}
      - {name: left_out, if: "{{if eq .Step 2}}yes{{end}}"}
  - text: "{{.Step}}: {{(.Result \"lookup\").Text}} | {{(.Result \"count\").Args.n}} | {{len .Results}} | {{(.Result \"other\").Missing}}"
`)
	w.start(`a "quoted" 北京`)
	a := w.step()
	if a.reasoning != `Of a "quoted" 北京.` || a.text != "Looking. " || a.result.FinishReason != event.FinishToolCalls {
		t.Errorf("first answer %+v", a)
	}
	want := []string{`{"key":"a \"quoted\" 北京","n":9007199254740993,"deep":[true,null,{"z":"1","a":1.5}]}`, `{"n": 0}`, `{}`}
	if !reflect.DeepEqual(a.args, want) || strings.Join(a.names, " ") != "lookup count bare" {
		t.Errorf("calls %q %q", a.names, a.args)
	}
	b := w.step()
	if b.text != "2: lookup says "+want[0]+" | 0 | 3 | true" || b.result.FinishReason != event.FinishStop {
		t.Errorf("second answer %q, %q", b.text, b.result.FinishReason)
	}
	if u := a.result.Usage; u.InputTokens == 0 || u.ReasoningTokens == 0 || u.OutputTokens <= u.ReasoningTokens {
		t.Errorf("usage %+v", u)
	}
	_, err := w.ask(t.Context(), 1)
	var e *model.Error
	if !errors.As(err, &e) || e.Retryable || !strings.Contains(e.Message, "has 2 steps") {
		t.Errorf("after the last step: %v", err)
	}
}

const story = `
branches:
  - when: (?i)\bfail\b
    steps: [{text: "failing"}]
  - when: loop
    loop: true
    steps: [{text: "one", calls: [{name: a}]}, {text: "again {{.Step}}", calls: [{name: a}]}]
steps:
  - {text: "first of {{.Input}}", calls: [{name: a}, {name: b}]}
  - {text: "second of {{.Input}}, said {{.Said}}"}
`

func TestTheInputChoosesTheBranch(t *testing.T) {
	for input, want := range map[string]string{"please FAIL now": "failing", "loop": "one", "failure": "first of failure"} {
		w := play(t, story)
		w.start(input)
		if got := w.must(1).text; got != want {
			t.Errorf("%q is answered by %q, want %q", input, got, want)
		}
	}
	w := play(t, story)
	w.start("loop")
	w.step()
	w.step()
	if got := w.step().text; got != "again 3" {
		t.Errorf("third step of a loop says %q", got)
	}
}

// Steering in the middle of a run does not change its story; history that came
// with the input is not taken for it.
func TestTheInputIsWhatBeganTheRun(t *testing.T) {
	w := play(t, story)
	w.add(event.New(event.RunStarted, event.RunStartedData{Agent: "a"}))
	w.user("old fail")
	w.add(event.New(event.MessageCompleted, event.MessageCompletedData{MessageID: "h", Role: event.RoleAssistant, Parts: []event.Part{event.TextPart("old answer")}}))
	w.user("new")
	if a := w.step(); a.text != "first of new" {
		t.Fatalf("first answer %q", a.text)
	}
	w.user("fail and loop")
	if a := w.step(); a.text != "second of new, said fail and loop" {
		t.Errorf("after steering %q", a.text)
	}
}

// Whoever plays, at whatever point of the log, says the same: nothing is kept
// between answers.
func TestATakeoverGoesOnAtTheRightPlace(t *testing.T) {
	w := play(t, story)
	w.start("this")
	w.step()
	want := w.must(1)
	script, err := Parse([]byte(story))
	if err != nil {
		t.Fatal(err)
	}
	w.model, w.s = New(script), w.s.Clone()
	w.add(event.New(event.RunRecovered, event.RunRecoveredData{Attempt: 2}))
	w.add(event.New(event.StepStarted, event.StepStartedData{Step: 2}))
	for range 3 {
		w.add(event.New(event.MessageStarted, event.MessageStartedData{MessageID: "lost", Role: event.RoleAssistant}))
		w.add(event.New(event.MessageDiscarded, event.MessageDiscardedData{MessageID: "lost"}))
		if got := w.must(1); got.text != want.text || got.chunks != want.chunks {
			t.Errorf("after a takeover %q, want %q", got.text, want.text)
		}
	}
}

func TestFailures(t *testing.T) {
	for name, c := range map[string]struct {
		fail  string
		code  event.Code
		retry bool
		says  string
	}{
		"error":     {`{kind: error, after: 2, code: unavailable, message: busy, retry_after: 3s}`, event.CodeUnavailable, true, "busy"},
		"for good":  {`{kind: error, retryable: false}`, event.CodeModelError, false, "fails"},
		"truncated": {`{kind: truncate, attempts: [1, 3], after: 2}`, event.CodeModelTruncated, true, "fails"},
		"refused":   {`{kind: refuse}`, event.CodeModelRefused, false, "fails"},
		"stalled":   {`{kind: stall, stall: 1h, after: 2}`, event.CodeModelTimeout, true, "fails"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := play(t, "steps: [{text: 'one two three', fail: "+c.fail+"}]")
				w.start("x")
				a, err := w.ask(t.Context(), 1)
				var e *model.Error
				if !errors.As(err, &e) || e.Code != c.code || e.Retryable != c.retry || !strings.Contains(e.Message, c.says) {
					t.Fatalf("got %v, want %s", err, c.code)
				}
				if strings.Contains(c.fail, "after: 2") != (a.text == "one two") {
					t.Errorf("said %q before", a.text)
				}
				if name == "error" && e.RetryAfter != 3*time.Second {
					t.Errorf("retry after %s", e.RetryAfter)
				}
				if name == "truncated" {
					if b := w.must(2); b.text != "one two three" {
						t.Errorf("second attempt %q", b.text)
					}
				}
			})
		})
	}
}

func TestRateAndDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := play(t, "rate: 20\nsteps: [{delay: 2s, text: '{{range 1200}}word {{end}}'}, {rate: 0, text: at once}]")
		w.start("x")
		began := time.Now()
		w.step()
		if took := time.Since(began); took < 61*time.Second || took > 63*time.Second {
			t.Errorf("1200 tokens at 20/s after 2s took %s", took)
		}
		began = time.Now()
		if w.step(); time.Since(began) != 0 {
			t.Errorf("a step without rate took %s", time.Since(began))
		}
	})
}

func TestCancelInterruptsTheClock(t *testing.T) {
	for _, script := range []string{"steps: [{delay: 1h, text: a}]", "rate: 0.001\nsteps: [{text: a b c}]", "steps: [{fail: {kind: stall}}]"} {
		synctest.Test(t, func(t *testing.T) {
			w := play(t, script)
			w.start("x")
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			began := time.Now()
			if _, err := w.ask(ctx, 1); !errors.Is(err, context.Canceled) || time.Since(began) != time.Second {
				t.Errorf("%s: %v after %s", script, err, time.Since(began))
			}
		})
	}
}

func TestInterleavedCalls(t *testing.T) {
	w := play(t, "steps: [{interleave: true, calls: [{name: a, args: {x: a long argument}}, {name: b}, {name: c, args: {y: another long one}}]}]")
	w.start("x")
	if a := w.must(1); strings.Join(a.args, "") != `{"x":"a long argument"}{}{"y":"another long one"}` {
		t.Errorf("arguments %q", a.args)
	}
}

func TestTokensJoinToTheText(t *testing.T) {
	for _, text := range []string{"", " ", "a", "one two\n\nthree  four ", "北京今天天气很好所以我们去公园散步吧", strings.Repeat("x", 100), "🌤🌤🌤🌤🌤🌤🌤🌤🌤🌤🌤🌤🌤🌤"} {
		var joined string
		for _, c := range tokens(model.Text, text) {
			if c.Text == "" || len([]rune(c.Text)) > maxToken {
				t.Errorf("token %q of %q", c.Text, text)
			}
			joined += c.Text
		}
		if joined != text {
			t.Errorf("tokens of %q join to %q", text, joined)
		}
	}
	if n := len(tokens(model.Text, "I count to five and write")); n != 6 {
		t.Errorf("six words are %d tokens", n)
	}
}

func TestATemplateThatFailsIsToldOfTheStep(t *testing.T) {
	for _, text := range []string{`{{index .Results 7}}`, `{{.Nothing}}`, `{{range 3000000}}too much{{end}}`} {
		w := play(t, "steps: [{text: '"+text+"'}]")
		w.start("x")
		_, err := w.ask(t.Context(), 1)
		var e *model.Error
		if !errors.As(err, &e) || e.Retryable || !strings.Contains(e.Message, "step 1") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// The demo tells its story with results, and with tools that fail.
func TestDemo(t *testing.T) {
	file := func(args string) event.ToolCompletedData {
		var in struct{ Name, Content string }
		_ = json.Unmarshal([]byte(args), &in)
		return event.ToolCompletedData{Content: []event.Part{{Type: event.PartFile, ArtifactID: "art_1", Name: in.Name, Bytes: int64(len(in.Content)), URL: "/artifacts/art_1"}}}
	}
	tools := func(name, args string) event.ToolCompletedData {
		switch name {
		case "write_artifact":
			return file(args)
		case "big":
			return event.ToolCompletedData{Content: []event.Part{event.TextPart("head of it")}, Truncated: true,
				Artifact: &event.Part{Type: event.PartFile, ArtifactID: "art_2", Bytes: 3000000, URL: "/artifacts/art_2"}}
		}
		return event.ToolCompletedData{Content: []event.Part{event.TextPart(name + " was called with " + args)}}
	}
	for input, c := range map[string]struct{ calls, says string }{
		"hello there":      {"count_slowly write_artifact", "You said “hello there”.\nThe count says: count_slowly was called with {\"n\":5,\"delay_ms\":400}\nYour note is /artifacts/art_1 (70 bytes)."},
		"show me big":      {"big read_artifact", `I got 10 bytes of 3000000; the whole is /artifacts/art_2. It goes on like this: “read_artifact was called with {"artifact_id": "art_2", "offset": 10, "limit": 200}”`},
		"please fail":      {"fail", "did not fail"},
		"look up mars":     {"lookup", `I looked it up: lookup was called with {"key":"mars"}`},
		"a long one":       {"", "100. This line is number 100, nothing is missing before it.\n\nThat was all of it."},
		"ünïcode “quotes”": {"count_slowly write_artifact", "You said “ünïcode “quotes””."},
	} {
		t.Run(input, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := play(t, string(demo(t)))
				w.tools = tools
				w.start(input)
				var names []string
				a := w.step()
				for len(a.names) > 0 {
					names = append(names, a.names...)
					a = w.step()
				}
				if strings.Join(names, " ") != c.calls || !strings.Contains(a.text, c.says) {
					t.Errorf("calls %q, answer %q; want %q, %q", names, a.text, c.calls, c.says)
				}
			})
		})
	}
}
