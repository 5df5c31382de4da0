package agui_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/model"
	"github.com/runlog-dev/runlog/worker/remote"
	"github.com/runlog-dev/runlog/worker/remote/agui"
)

func agentAt(t *testing.T, handler http.HandlerFunc, more ...func(*agui.Options)) *agui.Agent {
	t.Helper()
	srv := httptest.NewServer(handler)
	t.Cleanup(srv.Close)
	o := agui.Options{URL: srv.URL}
	for _, f := range more {
		f(&o)
	}
	a := agui.New(o)
	t.Cleanup(func() { _ = a.Close() })
	return a
}

// sends answers with these events, one byte at a time.
func sends(events ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		for _, e := range events {
			for _, b := range []byte("data: " + e + "\n\n") {
				_, _ = w.Write([]byte{b})
				w.(http.Flusher).Flush()
			}
		}
	}
}

func apply(s *event.Session, run string, list ...event.Event) {
	for _, e := range list {
		e.Seq, e.SessionID, e.RunID = s.Seq+1, s.SessionID, run
		if err := s.Apply(e); err != nil {
			panic(err)
		}
	}
}

func task() remote.Task {
	s := event.NewSession("ses_1")
	apply(s, "run_1",
		event.New(event.RunStarted, event.RunStartedData{Agent: "a", Attempt: 1}),
		event.New(event.MessageCompleted, event.MessageCompletedData{MessageID: "u1", Role: event.RoleUser, Parts: []event.Part{event.TextPart("hello"),
			{Type: event.PartImage, Name: "cat.png", MediaType: "image/png", URL: "/artifacts/art_1"}}}))
	return remote.Task{Session: s, Tenant: "t", RunID: "run_1", Agent: "a", Leg: 1, Key: "run_1/leg-1", Retry: 1}
}

func hear(ctx context.Context, a *agui.Agent, t remote.Task) (list []remote.Saying, err error) {
	err = a.Run(ctx, t, func(s remote.Saying) error { list = append(list, s); return nil })
	return list, err
}

const (
	began = `{"type":"RUN_STARTED","threadId":"ses_1","runId":"run_1"}`
	ended = `{"type":"RUN_FINISHED","threadId":"ses_1","runId":"run_1"}`
)

func TestEveryEvent(t *testing.T) {
	a := agentAt(t, func(w http.ResponseWriter, r *http.Request) {
		sends(began,
			`{"type":"STEP_STARTED","stepName":"s"}`,
			`{"type":"REASONING_START","messageId":"r"}`, `{"type":"REASONING_MESSAGE_START","messageId":"r","role":"reasoning"}`,
			`{"type":"REASONING_MESSAGE_CONTENT","messageId":"r","delta":"hm"}`, `{"type":"REASONING_MESSAGE_END","messageId":"r"}`, `{"type":"REASONING_END","messageId":"r"}`,
			`{"type":"TEXT_MESSAGE_START","messageId":"m1","role":"assistant"}`, `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m1","delta":"Hi \ud83c\udf24"}`, `{"type":"TEXT_MESSAGE_END","messageId":"m1"}`,
			`{"type":"TOOL_CALL_START","toolCallId":"c1","toolCallName":"f","parentMessageId":"m1"}`, `{"type":"TOOL_CALL_ARGS","toolCallId":"c1","delta":"{}"}`, `{"type":"TOOL_CALL_END","toolCallId":"c1"}`,
			`{"type":"TOOL_CALL_START","toolCallId":"c2","toolCallName":"g"}`, `{"type":"TOOL_CALL_END","toolCallId":"c2"}`,
			`{"type":"TOOL_CALL_RESULT","messageId":"t1","toolCallId":"c1","content":"yes","role":"tool"}`,
			`{"type":"TOOL_CALL_RESULT","messageId":"t2","toolCallId":"c2","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`,
			`{"type":"TOOL_CALL_CHUNK","toolCallId":"c3","toolCallName":"h","delta":"{\"a\":"}`, `{"type":"TOOL_CALL_CHUNK","delta":"1}"}`,
			`{"type":"TEXT_MESSAGE_CHUNK","messageId":"m2","delta":"one "}`, `{"type":"TEXT_MESSAGE_CHUNK","delta":"two"}`,
			`{"type":"THINKING_START"}`, `{"type":"THINKING_TEXT_MESSAGE_START"}`, `{"type":"THINKING_TEXT_MESSAGE_CONTENT","delta":"old"}`, `{"type":"THINKING_TEXT_MESSAGE_END"}`, `{"type":"THINKING_END"}`,
			`{"type":"STATE_SNAPSHOT","snapshot":{"n":9007199254740993}}`, `{"type":"STATE_DELTA","delta":[]}`,
			`{"type":"ACTIVITY_SNAPSHOT","messageId":"x","activityType":"k","content":{}}`, `{"type":"ACTIVITY_SNAPSHOT","messageId":"x","activityType":"k","content":{},"replace":false}`, `{"type":"ACTIVITY_DELTA","messageId":"x","activityType":"k","patch":[]}`,
			`{"type":"CUSTOM","name":"n","value":1}`, `{"type":"CUSTOM","name":"remote","value":{"leg":7}}`, `{"type":"RAW","event":{}}`, `{"type":"NOT_YET_KNOWN"}`,
			`{"type":"TEXT_MESSAGE_START","messageId":"inner","subagentRunId":"s"}`,
			`{"type":"TEXT_MESSAGE_START","messageId":"u9","role":"user"}`, `{"type":"TEXT_MESSAGE_CONTENT","messageId":"u9","delta":"echo"}`,
			`{"type":"MESSAGES_SNAPSHOT","messages":[{"id":"u1","role":"user","content":"hello"},{"id":"m1","role":"assistant","content":"Hi"},{"id":"m3","role":"assistant","content":"unstreamed","toolCalls":[{"id":"c4","type":"function","function":{"name":"z","arguments":"{}"}}]},{"id":"t4","role":"tool","toolCallId":"c4","content":"four"}]}`,
			`{"type":"RUN_FINISHED","threadId":"ses_1","runId":"run_1","usage":[{"inputTokens":3,"outputTokens":4},{"inputTokens":1,"outputTokens":1}],"outcome":{"type":"interrupt","interrupts":[{"id":"i1","reason":"tool_call","toolCallId":"c3","expiresAt":"2100-01-02T03:04:05Z"},{"id":"i2","reason":"input_required","message":"how many?"}]}}`,
		)(w, r)
	})
	list, err := hear(t.Context(), a, task())
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, s := range list {
		fmt.Fprintf(&got, "%T %s\n", s, event.Encode(s))
	}
	want, err := os.ReadFile("testdata/events.txt")
	if os.Getenv("UPDATE") != "" {
		want = []byte(got.String())
		err = os.WriteFile("testdata/events.txt", want, 0o600)
	}
	if err != nil || got.String() != string(want) {
		t.Errorf("%v; the sayings are\n%s", err, got.String())
	}
}

func TestLineEndsAndComments(t *testing.T) {
	a := agentAt(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, ": hello\r\n\r\nid: 7\r\nevent: x\r\ndata:"+began+"\r\n\r\n:ping\n\ndata: {\"type\":\ndata: \"CUSTOM\",\"name\":\"n\"}\n\nretry: 5\n\ndata: "+ended+"\n\n")
	})
	if list, err := hear(t.Context(), a, task()); err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
}

// A call that is told again before it has its result is one call; after that it is
// another one, of a server that numbers the calls of each answer. What RUN_FINISHED
// calls the run does not matter: adapters of frameworks put their own id there.
func TestCallsThatAreToldAgain(t *testing.T) {
	call := []string{`{"type":"TOOL_CALL_START","toolCallId":"c","toolCallName":"f"}`, `{"type":"TOOL_CALL_ARGS","toolCallId":"c","delta":"{}"}`, `{"type":"TOOL_CALL_END","toolCallId":"c"}`}
	result := `{"type":"TOOL_CALL_RESULT","messageId":"t","toolCallId":"c","content":"yes"}`
	a := agentAt(t, sends(slices.Concat([]string{began}, call, call, []string{result}, call, []string{result, `{"type":"RUN_FINISHED","threadId":"ses_1","runId":"another"}`})...))
	var told []string
	open := false
	err := a.Run(t.Context(), task(), func(s remote.Saying) error {
		if _, again := s.(remote.Call); again && open {
			return remote.ErrMisfit // as the log has it
		} else if again {
			open = true
		}
		if _, end := s.(remote.Result); end {
			open = false
		}
		told = append(told, strings.TrimPrefix(fmt.Sprintf("%T", s), "remote."))
		return nil
	})
	if got := strings.Join(told, " "); err != nil || got != "Call Args Raw Raw Result Call Args Result" {
		t.Errorf("%v, %s", err, got)
	}
}

func TestWhatIsNoSuccess(t *testing.T) {
	text := `{"type":"TEXT_MESSAGE_START","messageId":"m1"}`
	status := func(code int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			w.Header().Set("Location", "http://127.0.0.1:1/")
			http.Error(w, body, code)
		}
	}
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		want    string
		code    event.Code
		retry   bool
	}{
		"no end":  {sends(began, text), "without RUN_FINISHED", event.CodeModelTruncated, true},
		"nothing": {sends(), "without RUN_FINISHED", event.CodeModelTruncated, true},
		"half an event": {func(w http.ResponseWriter, r *http.Request) {
			sends(began)(w, r)
			_, _ = io.WriteString(w, "data: "+ended)
		}, "without RUN_FINISHED", event.CodeModelTruncated, true},
		"aborted":       {func(w http.ResponseWriter, r *http.Request) { sends(began, text)(w, r); panic(http.ErrAbortHandler) }, "without RUN_FINISHED", event.CodeModelTruncated, true},
		"error":         {sends(began, `{"type":"RUN_ERROR","message":"no luck","code":"E1"}`), "the agent failed (E1): no luck", event.CodeModelError, false},
		"error at once": {sends(`{"type":"RUN_ERROR","message":"no luck","metadata":{"retryable":true}}`), "no luck", event.CodeModelError, true},
		"no start":      {sends(text), "the first event is TEXT_MESSAGE_START", event.CodeModelError, false},
		"two starts":    {sends(began, began), "RUN_STARTED in the middle", event.CodeModelError, false},
		"no JSON":       {sends(began, `[DONE]`), "no JSON object with a type: [DONE]", event.CodeModelError, false},
		"no type":       {sends(began, `{}`), "no JSON object with a type", event.CodeModelError, false},
		"text of none":  {sends(began, `{"type":"TEXT_MESSAGE_CONTENT","messageId":"x","delta":"a"}`), `message "x", which is not open`, event.CodeModelError, false},
		"nameless call": {sends(began, `{"type":"TOOL_CALL_START","toolCallId":"x"}`), "no toolCallName", event.CodeModelError, false},
		"a call twice":  {sends(began, `{"type":"TOOL_CALL_START","toolCallId":"x","toolCallName":"f"}`, `{"type":"TOOL_CALL_START","toolCallId":"x","toolCallName":"f"}`), `call "x", which has not ended`, event.CodeModelError, false},
		"not UTF-8":     {sends(began, "{\"type\":\"CUSTOM\",\"name\":\"caf\xe9\"}"), "an event is not UTF-8", event.CodeModelError, false},
		"cancelled":     {sends(began, `{"type":"RUN_FINISHED","outcome":{"type":"cancelled"}}`), "has cancelled", event.CodeModelError, false},
		"huge event":    {sends(began, `{"type":"CUSTOM","name":"`), "", "", false},
		"no stream": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"a":1}`)
		}, `with "application/json", not with text/event-stream: check agui.url; it says: {"a":1}`, event.CodeModelError, false},
		"busy":           {status(429, "slow down"), "answered 429; it says: slow down", event.CodeUnavailable, true},
		"broken":         {status(502, "<html>"), "answered 502", event.CodeUnavailable, true},
		"forbidden":      {status(401, ""), "check agui.headers", event.CodeModelError, false},
		"not found":      {status(404, ""), "check agui.url", event.CodeModelError, false},
		"bad request":    {status(422, "extra forbidden"), "answered 422; it says: extra forbidden", event.CodeModelError, false},
		"sent elsewhere": {status(307, ""), "redirects are not followed", event.CodeModelError, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "huge event" {
				c.handler, c.want, c.code = func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "text/event-stream")
					_, _ = io.WriteString(w, "data: "+strings.Repeat("x", 9<<20))
				}, "more than 8 MiB", event.CodeModelError
			}
			_, err := hear(t.Context(), agentAt(t, c.handler), task())
			f := fault(t, err)
			if !strings.Contains(f.Message, c.want) || f.Code != c.code || f.Retryable != c.retry {
				t.Errorf("%+v, want %q", f, c.want)
			}
			if name == "busy" && f.RetryAfter != 7*time.Second {
				t.Errorf("it waits %s", f.RetryAfter)
			}
		})
	}
	_, err := hear(t.Context(), agui.New(agui.Options{URL: "http://user:hush@127.0.0.1:1/?key=hush"}), task())
	if f := fault(t, err); f.Code != event.CodeUnavailable || !f.Retryable || strings.Contains(f.Error(), "hush") {
		t.Errorf("%v", f)
	}
}

func fault(t *testing.T, err error) *model.Error {
	t.Helper()
	var fault *model.Error
	if !errors.As(err, &fault) {
		t.Fatalf("err is %v, want a *model.Error", err)
	}
	return fault
}

func TestSilence(t *testing.T) {
	hangs := func(events ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if events != nil {
				sends(events...)(w, r)
			}
			_, _ = io.Copy(io.Discard, r.Body) // the end of the client shows only after that
			<-r.Context().Done()
		}
	}
	short := func(o *agui.Options) { o.Start, o.Idle = 100*time.Millisecond, 100*time.Millisecond }
	for want, h := range map[string]http.HandlerFunc{"did not begin": hangs(), "in the middle": hangs(began)} {
		_, err := hear(t.Context(), agentAt(t, h, short), task())
		if f := fault(t, err); f.Code != event.CodeModelTimeout || !strings.Contains(f.Message, want) {
			t.Errorf("%v, want %q", f, want)
		}
	}
	// A log that takes its time is not the server's silence.
	n := 0
	a := agentAt(t, sends(began, `{"type":"CUSTOM","name":"a"}`, ended), short)
	if err := a.Run(t.Context(), task(), func(remote.Saying) error { n++; time.Sleep(300 * time.Millisecond); return nil }); err != nil || n != 1 {
		t.Errorf("%d, %v", n, err)
	}
}

func TestCancelClosesTheSocket(t *testing.T) {
	closed := make(chan struct{})
	a := agentAt(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		sends(began, `{"type":"CUSTOM","name":"a"}`)(w, r)
		<-r.Context().Done()
		close(closed)
	})
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	err := a.Run(ctx, task(), func(remote.Saying) error { cancel(enough); return nil })
	if !errors.Is(err, enough) {
		t.Errorf("err is %v", err)
	}
	<-closed
}

func TestAnErrorOfTheLogIsReturnedAsItIs(t *testing.T) {
	fenced := errors.New("fenced")
	err := agentAt(t, sends(began, `{"type":"CUSTOM","name":"a"}`, ended)).Run(t.Context(), task(), func(remote.Saying) error { return fenced })
	if !errors.Is(err, fenced) {
		t.Errorf("err is %v", err)
	}
}

// What does not fit is kept for auditors: clients of AG-UI only warn of it.
func TestMisfitsAreKept(t *testing.T) {
	var raws int
	err := agentAt(t, sends(began, `{"type":"STATE_DELTA","delta":[{"op":"remove","path":"/x"}]}`, ended)).Run(t.Context(), task(), func(s remote.Saying) error {
		if _, ok := s.(remote.Raw); ok {
			raws++
			return nil
		}
		return fmt.Errorf("patch: %w", remote.ErrMisfit)
	})
	if err != nil || raws != 1 {
		t.Errorf("%d, %v", raws, err)
	}
}

// The conversation as the server's own client would send it.
func TestInput(t *testing.T) {
	bodies := make(chan []byte, 1)
	headers := make(chan http.Header, 1)
	record := func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		bodies <- b
		headers <- r.Header
		sends(began, ended)(w, r)
	}
	tk := task()
	s := tk.Session
	call := func(id, name string, by event.Executor) []event.Event {
		return []event.Event{event.New(event.ToolStarted, event.ToolStartedData{CallID: id, Name: name, MessageID: "m1", Executor: by}),
			event.New(event.ToolArgs, event.ToolArgsData{CallID: id, Name: name, Args: `{"n":1}`})}
	}
	apply(s, "run_1", event.New(event.StateSnapshot, event.StateSnapshotData{State: json.RawMessage(`{"n":1}`)}),
		event.New(event.MessageStarted, event.MessageStartedData{MessageID: "m1", Role: event.RoleAssistant}))
	apply(s, "run_1", call("c1", "f", event.ByRemote)...)
	apply(s, "run_1", call("c2", "g", event.ByRemote)...)
	apply(s, "run_1", call("c3", "locate", event.ByClient)...)
	apply(s, "run_1", call("i2", "interrupt", event.ByClient)...)
	apply(s, "run_1", event.New(event.MessageCompleted, event.MessageCompletedData{MessageID: "m1", Role: event.RoleAssistant, Parts: []event.Part{
		{Type: event.PartReasoning, ReasoningID: "r", Text: "hm"}, event.TextPart("May I?"), {Type: event.PartToolCall, CallID: "c1"}, {Type: event.PartToolCall, CallID: "c2"},
		{Type: event.PartToolCall, CallID: "c3"}, {Type: event.PartToolCall, CallID: "i2"}}}),
		event.New(event.ToolFailed, event.ToolFailedData{CallID: "c2", Name: "g", Args: "{}", Code: event.CodeForbidden, Outcome: event.OutcomeDenied, Message: "denied by ann"}),
		event.New(event.ToolCompleted, event.ToolCompletedData{CallID: "c3", Name: "locate", Args: `{"n":1}`, Content: []event.Part{event.TextPart("here")}}))
	apply(s, "run_2", event.New(event.RunStarted, event.RunStartedData{Agent: "b", Attempt: 1, ParentRunID: "run_1"}),
		event.New(event.MessageCompleted, event.MessageCompletedData{MessageID: "hidden", Role: event.RoleUser, Parts: []event.Part{event.TextPart("between agents")}}))
	tk.Leg, tk.Key, tk.Tools = 2, "run_1/leg-2", []event.ClientTool{{Name: "locate", Description: "where"}}
	tk.Answers = []remote.Answer{{ID: "i1", CallID: "c1", Approval: true, Approved: true}, {ID: "i0", CallID: "c2", Approval: true, Reason: "no"},
		{ID: "i2", Content: []event.Part{event.TextPart("three")}}, {ID: "i3", Content: []event.Part{event.TextPart(`{"n":3}`)}}, {ID: "i4", Expired: true}}
	a := agentAt(t, record, func(o *agui.Options) {
		o.Headers, o.Forwarded, o.Context = map[string]string{"Authorization": "Bearer x"}, []byte(`{"k":1}`), []agui.Context{{Description: "d", Value: "v"}}
	})
	if _, err := hear(t.Context(), a, tk); err != nil {
		t.Fatal(err)
	}
	const want = `{"threadId":"ses_1","runId":"run_1-2","protocolVersion":"1.0","state":{"n":1},"messages":[` +
		`{"id":"u1","role":"user","content":"hello[image \"cat.png\", image/png, /artifacts/art_1]"},` +
		`{"id":"m1","role":"assistant","content":"May I?","toolCalls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"n\":1}"}},` +
		`{"id":"c2","type":"function","function":{"name":"g","arguments":"{}"}},{"id":"c3","type":"function","function":{"name":"locate","arguments":"{\"n\":1}"}}]},` +
		`{"id":"c2-result","role":"tool","content":"denied by ann","toolCallId":"c2","error":"denied by ann"},{"id":"c3-result","role":"tool","content":"here","toolCallId":"c3"}],` +
		`"tools":[{"name":"locate","description":"where","parameters":{}}],"context":[{"description":"d","value":"v"}],"forwardedProps":{"k":1},` +
		`"resume":[{"interruptId":"i1","status":"resolved","payload":{"approved":true}},{"interruptId":"i0","status":"resolved","payload":{"approved":false,"reason":"no"}},` +
		`{"interruptId":"i2","status":"resolved","payload":"three"},{"interruptId":"i3","status":"resolved","payload":{"n":3}},{"interruptId":"i4","status":"cancelled"}]}`
	if got := string(<-bodies); got != want {
		t.Errorf("the input is\n%s\nwant\n%s", got, want)
	}
	if h := <-headers; h.Get("Authorization") != "Bearer x" || h.Get("Idempotency-Key") != "run_1/leg-2" || h.Get("Accept") != "text/event-stream" {
		t.Errorf("headers are %v", h)
	}
	plain := agentAt(t, record, func(o *agui.Options) { o.Protocol = "none" })
	if _, err := hear(t.Context(), plain, task()); err != nil {
		t.Fatal(err)
	}
	const small = `{"threadId":"ses_1","runId":"run_1","state":{},"messages":[{"id":"u1","role":"user","content":"hello[image \"cat.png\", image/png, /artifacts/art_1]"}],"tools":[],"context":[],"forwardedProps":{}}`
	if got := string(<-bodies); got != small {
		t.Errorf("the input is\n%s\nwant\n%s", got, small)
	}
}
