package event

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/runlog-dev/runlog/event/refusal"
)

// Every prefix of every lawful log gives requests that both providers take.
func TestEveryPrefixBuildsValidRequests(t *testing.T) {
	for seed := range uint64(80) {
		l := lawfulLog(seeded(seed), 90)
		if err := checkPrefixes(l.events); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	if err := checkPrefixes(golden(t)); err != nil {
		t.Fatalf("golden log: %v", err)
	}
}

func FuzzRequests(f *testing.F) {
	f.Add([]byte("\x01\x02\x03\x04"), "be brief")
	f.Add(bytes.Repeat([]byte{7, 3, 1, 250, 16}, 60), "")
	f.Fuzz(func(t *testing.T, data []byte, system string) {
		c := bytesChoices(data)
		l := lawfulLog(&c, min(len(data)/3+3, 120))
		if err := checkPrefixes(l.events); err != nil {
			t.Fatal(err)
		}
		checkViews(t, l.s, system)
	})
}

// checkPrefixes folds the events one by one and checks both requests each time.
func checkPrefixes(events []Event) error {
	s := NewSession(events[0].SessionID)
	for _, e := range events {
		if err := s.Apply(e); err != nil {
			return err
		}
		before := now(s)
		body := s.OpenAIMessages("be brief")
		if err := refusal.Chat(body); err != nil {
			return fmt.Errorf("openai after %s %d: %w\n%s", e.Type, e.Seq, err, body)
		}
		sys, body := s.AnthropicMessages("be brief")
		if err := refusal.Messages(body); err != nil || sys == "" {
			return fmt.Errorf("anthropic after %s %d: system %q, %w\n%s", e.Type, e.Seq, sys, err, body)
		}
		if after := now(s); after != before {
			return fmt.Errorf("building a request after %d changed the session:\n%s\nfrom\n%s", e.Seq, after, before)
		}
	}
	return nil
}

// now is the session as text after every fifth event: enough to see that
// building a request does not change it.
func now(s *Session) string {
	if s.Seq%5 > 0 {
		return ""
	}
	return string(Encode(s))
}

// checkViews builds what is not a request: it must be JSON and never panic.
func checkViews(t *testing.T, s *Session, system string) {
	t.Helper()
	for _, v := range []View{{System: system}, {Transcript: true}, {Public: true, Transcript: true, Reasoning: true}, {Public: true}} {
		_, messages := s.AnthropicView(v)
		for _, body := range [][]byte{s.OpenAIView(v), messages} {
			if !json.Valid(body) {
				t.Fatalf("view %+v is not JSON: %s", v, body)
			}
		}
	}
}

// told folds events and returns what both providers are told, as text.
func told(t *testing.T, events ...Event) (openai, anthropic string) {
	t.Helper()
	s := folded(t, events...)
	sys, messages := s.AnthropicMessages("")
	return string(s.OpenAIMessages("")), sys + string(messages)
}

func folded(t *testing.T, events ...Event) *Session {
	t.Helper()
	s := NewSession("s")
	for i, e := range events {
		e.Seq, e.SessionID, e.RunID = Seq(i+1), "s", "run"
		if err := s.Apply(e); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func user(text string) Event {
	return New(MessageCompleted, MessageCompletedData{MessageID: "u" + text, Role: RoleUser, Parts: []Part{TextPart(text)}})
}

// calling is an assistant's message with one call.
func calling(id, name, args string) []Event {
	return []Event{
		New(MessageStarted, MessageStartedData{MessageID: "m" + id, Role: RoleAssistant}),
		New(ToolStarted, ToolStartedData{CallID: id, Name: name, MessageID: "m" + id, Executor: ByWorker}),
		New(ToolArgs, ToolArgsData{CallID: id, Name: name, Args: args}),
		New(MessageCompleted, MessageCompletedData{MessageID: "m" + id, Role: RoleAssistant, Parts: []Part{{Type: PartToolCall, CallID: id}}}),
	}
}

func TestWhatAModelIsToldOfACall(t *testing.T) {
	running := New(ToolRunning, ToolRunningData{CallID: "c1", Attempt: 1})
	done := ToolCompletedData{CallID: "c1", Name: "big", Args: "{}", Content: []Part{TextPart("head")}, Truncated: true,
		Artifact: &Part{Type: PartFile, ArtifactID: "art_7", Bytes: 3 << 20}}
	for name, c := range map[string]struct {
		args string
		then []Event
		want []string
		ok   bool
	}{
		"pending":   {"{}", nil, []string{"Not run"}, false},
		"running":   {"{}", []Event{running}, []string{"Interrupted", "outcome is unknown"}, false},
		"truncated": {"{}", []Event{running, New(ToolCompleted, done)}, []string{"head", "first 4 of 3145728 bytes", "art_7", "read_artifact"}, true},
		"failed":    {"{}", []Event{New(ToolFailed, ToolFailedData{CallID: "c1", Code: CodeToolError, Message: "disk full", Outcome: OutcomeFailed})}, []string{"Error (tool_error): disk full"}, false},
		"unknown":   {"{}", []Event{New(ToolFailed, ToolFailedData{CallID: "c1", Code: CodeInterrupted, Outcome: OutcomeUnknown})}, []string{"may or may not", "interrupted"}, false},
		"empty":     {"{}", []Event{New(ToolCompleted, ToolCompletedData{CallID: "c1"})}, []string{"(no output)"}, true},
		"file": {"{}", []Event{New(ToolCompleted, ToolCompletedData{CallID: "c1", Content: []Part{{Type: PartFile, Name: "n.md", MediaType: "text/markdown", Bytes: 7, ArtifactID: "art_1", URL: "/artifacts/art_1"}}})},
			[]string{`[file \"n.md\", text/markdown, 7 bytes, artifact art_1, /artifacts/art_1]`}, true},
		"bad args": {`{"a":`, []Event{New(ToolFailed, ToolFailedData{CallID: "c1", Args: `{"a":`, Code: CodeBadRequest, Message: "not JSON"})}, []string{"not JSON", `were: {\"a\":]`}, false},
	} {
		t.Run(name, func(t *testing.T) {
			events := append([]Event{user("hi")}, calling("c1", "big", c.args)...)
			openai, anthropic := told(t, append(events, c.then...)...)
			for _, want := range c.want {
				if !strings.Contains(openai, want) || !strings.Contains(anthropic, want) {
					t.Errorf("missing %q in\n%s\n%s", want, openai, anthropic)
				}
			}
			if strings.Contains(anthropic, `"is_error":true`) == c.ok {
				t.Errorf("is_error is wrong in %s", anthropic)
			}
		})
	}
}

func TestNumbersAndOrderOfArgumentsSurvive(t *testing.T) {
	args := `{"z":9007199254740993,"a":1.0}`
	openai, anthropic := told(t, append([]Event{user("hi")}, calling("c1", "f", args)...)...)
	if !strings.Contains(openai, `{\"z\":9007199254740993,\"a\":1.0}`) || !strings.Contains(anthropic, args) {
		t.Errorf("arguments changed:\n%s\n%s", openai, anthropic)
	}
}

// A user who speaks while tools run does not come between call and result.
func TestSteeringStandsBehindTheResults(t *testing.T) {
	events := append([]Event{user("hi")}, calling("c1", "f", "{}")...)
	events = append(events, user("stop that"), New(ToolCompleted, ToolCompletedData{CallID: "c1", Content: []Part{TextPart("done")}}))
	openai, anthropic := told(t, events...)
	for _, got := range []string{openai, anthropic} {
		if strings.Index(got, "done") > strings.Index(got, "stop that") {
			t.Errorf("result does not follow its call: %s", got)
		}
	}
}

func TestAnAttemptInProgressIsLeftOut(t *testing.T) {
	openai, anthropic := told(t, user("hi"),
		New(MessageStarted, MessageStartedData{MessageID: "m", Role: RoleAssistant}),
		New(TextDelta, TextDeltaData{MessageID: "m", Delta: "half a thou"}),
		New(ToolStarted, ToolStartedData{CallID: "c", Name: "f", MessageID: "m"}))
	if strings.Contains(openai+anthropic, "half a thou") || strings.Contains(openai+anthropic, `"f"`) {
		t.Errorf("the attempt is there:\n%s\n%s", openai, anthropic)
	}
}

func TestSystemMessagesJoinThePrompt(t *testing.T) {
	s := folded(t, New(MessageCompleted, MessageCompletedData{MessageID: "m", Role: RoleSystem, Parts: []Part{TextPart("in French")}}), user("hi"))
	sys, _ := s.AnthropicMessages("be brief")
	if sys != "be brief\n\nin French" {
		t.Errorf("system prompt is %q", sys)
	}
}

func TestThinkingGoesBackOnlySigned(t *testing.T) {
	events := []Event{user("hi"), New(MessageCompleted, MessageCompletedData{MessageID: "m", Role: RoleAssistant, Parts: []Part{
		{Type: PartReasoning, Text: "unsigned thought"}, {Type: PartReasoning, Text: "signed thought", Signature: "sig"},
		{Type: PartReasoning, Signature: RedactedThinking + "opaque"}, TextPart("answer")}}), user("more")}
	openai, anthropic := told(t, events...)
	if strings.Contains(openai, "thought") || strings.Contains(anthropic, "unsigned") {
		t.Errorf("reasoning leaks:\n%s\n%s", openai, anthropic)
	}
	for _, want := range []string{`{"type":"thinking","thinking":"signed thought","signature":"sig"}`, `{"type":"redacted_thinking","data":"opaque"}`} {
		if !strings.Contains(anthropic, want) {
			t.Errorf("missing %s in %s", want, anthropic)
		}
	}
	with := string(folded(t, events...).OpenAIView(View{Reasoning: true}))
	if !strings.Contains(with, `"reasoning_content":"unsigned thought\n\nsigned thought"`) {
		t.Errorf("reasoning is missing in %s", with)
	}
}

func TestTranscriptIsTheLogAsItStands(t *testing.T) {
	events := append([]Event{user("one"), user("two")}, calling("call/1 ü", "a.b", `{"x": 1}`)...)
	s := folded(t, events...)
	want := `[{"role":"user","content":"one"},{"role":"user","content":"two"},` +
		`{"role":"assistant","content":null,"tool_calls":[{"id":"call/1 ü","type":"function","function":{"name":"a.b","arguments":"{\"x\": 1}"}}]}]`
	if got := string(s.OpenAIView(View{Transcript: true})); got != want {
		t.Errorf("transcript is\n%s\nwant\n%s", got, want)
	}
}

func TestSubagentsAreNotTheirParentsConversation(t *testing.T) {
	s := NewSession("s")
	for i, e := range []Event{
		New(RunStarted, RunStartedData{Agent: "a"}), user("parent"),
		New(RunStarted, RunStartedData{Agent: "b", ParentRunID: "run"}), user("child"),
	} {
		e.Seq, e.SessionID, e.RunID = Seq(i+1), "s", []string{"run", "run", "sub", "sub"}[i]
		if err := s.Apply(e); err != nil {
			t.Fatal(err)
		}
	}
	if got := string(s.OpenAIView(View{RunID: "run"})); got != `[{"role":"user","content":"parent"}]` {
		t.Errorf("parent sees %s", got)
	}
	if got := string(s.OpenAIView(View{RunID: "sub"})); got != `[{"role":"user","content":"child"}]` {
		t.Errorf("child sees %s", got)
	}
}

func TestWireNames(t *testing.T) {
	for _, same := range []string{"lookup", "a-b_C9", strings.Repeat("x", 64)} {
		if got := WireName(same); got != same {
			t.Errorf("WireName(%q) = %q", same, got)
		}
	}
	seen := map[string]string{}
	for _, odd := range []string{"a.b", "a_b", "a:b", "", "北京", "上海", strings.Repeat("x", 65), strings.Repeat("x", 66)} {
		got := WireName(odd)
		if !regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`).MatchString(got) || seen[got] != "" {
			t.Errorf("WireName(%q) = %q, also of %q", odd, got, seen[got])
		}
		seen[got] = odd
	}
}

// A text that the user interrupted is part of what was said; the call that was
// being written with it is not.
func TestACutAnswerThatWasAnsweredStays(t *testing.T) {
	openai, anthropic := told(t, user("hi"),
		New(MessageStarted, MessageStartedData{MessageID: "m", Role: RoleAssistant}),
		New(TextDelta, TextDeltaData{MessageID: "m", Delta: "half a "}),
		New(TextDelta, TextDeltaData{MessageID: "m", Delta: "thought"}),
		New(ToolStarted, ToolStartedData{CallID: "c", Name: "lookup", MessageID: "m"}),
		user("wait"))
	for _, got := range []string{openai, anthropic} {
		if !strings.Contains(got, "half a thought") || strings.Contains(got, "lookup") {
			t.Errorf("cut answer is told as %s", got)
		}
	}
	growing := folded(t, user("hi"), New(MessageStarted, MessageStartedData{MessageID: "m", Role: RoleAssistant}),
		New(TextDelta, TextDeltaData{MessageID: "m", Delta: "so "}), New(TextDelta, TextDeltaData{MessageID: "m", Delta: "far"}))
	if got := string(growing.OpenAIView(View{Transcript: true})); !strings.Contains(got, `"content":"so far"`) {
		t.Errorf("transcript of a growing text is %s", got)
	}
}

// What a message says of its calls and what the calls say of their message
// need not agree in a log that was cut.
func TestOrphans(t *testing.T) {
	completed := func(parts ...Part) Event {
		return New(MessageCompleted, MessageCompletedData{MessageID: "m", Role: RoleAssistant, Parts: parts})
	}
	openai, _ := told(t, user("hi"), completed(TextPart("a"), Part{Type: PartToolCall, CallID: "nobody"}), user("b"))
	if strings.Contains(openai, "nobody") {
		t.Errorf("a part without call is told: %s", openai)
	}
	openai, _ = told(t, user("hi"), completed(TextPart("a")),
		New(ToolStarted, ToolStartedData{CallID: "c", Name: "lookup", MessageID: "m"}), New(ToolCompleted, ToolCompletedData{CallID: "c", Content: []Part{TextPart("it ran")}}))
	if !strings.Contains(openai, "it ran") {
		t.Errorf("a call that ran is not told: %s", openai)
	}
	openai, _ = told(t, user("hi"), New(ToolCompleted, ToolCompletedData{CallID: "c", Content: []Part{TextPart("of nobody")}}))
	if strings.Contains(openai, "of nobody") {
		t.Errorf("a result without message is told: %s", openai)
	}
}

func TestPairSurrogates(t *testing.T) {
	for in, want := range map[string]string{
		`\ud83d\ude00`: `\ud83d\ude00`, `\uD83D\uDE00`: `\uD83D\uDE00`, `\\ud83d`: `\\ud83d`, `\\\ud83d`: `\\\ufffd`,
		`\ude00\ud83d`: `\ufffd\ufffd`, `\ud83d\ud83d\ude00`: `\ufffd\ud83d\ude00`, `\u00e9 \ud7ff \ue000`: `\u00e9 \ud7ff \ue000`, `\ud83d`: `\ufffd`, `\ud8`: `\ud8`,
	} {
		if got := pairSurrogates(in); got != want {
			t.Errorf("pairSurrogates(%s) = %s, want %s", in, got, want)
		}
	}
}

func TestAModelGetsTheHeadOfACutResult(t *testing.T) {
	c := &ToolCall{Status: Completed, Truncated: true, Content: []Part{TextPart(strings.Repeat("漢", 30_000)), TextPart("tail")},
		Artifact: &Part{ArtifactID: "art_7", Bytes: 3 << 20}}
	got := c.result()
	if len(got) > modelHead+400 || strings.Contains(got, "tail") || !utf8.ValidString(got) {
		t.Errorf("the model gets %d bytes: …%s", len(got), got[len(got)-300:])
	}
	if want := "offset 32766."; !strings.Contains(got, want) {
		t.Errorf("the note does not say %q: …%s", want, got[len(got)-300:])
	}
}
