package modeltest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

const (
	chat = `{"model":"test","stream":true,"messages":[{"role":"user","content":"hi"}]}`
	turn = `{"model":"test","stream":true,"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"a","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"r"}]}`
)

func post(t *testing.T, ctx context.Context, url, body string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Anthropic-Version", "2023-06-01")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

func said(t *testing.T, s *Server, body string) string {
	t.Helper()
	b, err := io.ReadAll(post(t, t.Context(), s.OpenAI()+"/chat/completions", body).Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func start(t *testing.T, script Script) *Server {
	t.Helper()
	s := Serve(script, "127.0.0.1:0")
	t.Cleanup(s.Close)
	return s
}

func TestStepsByRequestAndByTurn(t *testing.T) {
	steps := []Step{{Text: "first"}, {Text: "second"}}
	s := start(t, Script{Steps: steps})
	for _, want := range []string{"first", "second", "no step 3"} {
		if got := said(t, s, chat); !strings.Contains(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	s = start(t, Script{Steps: steps, By: "turn"})
	for body, want := range map[string]string{chat: "first", turn: "second"} {
		for range 2 {
			if got := said(t, s, body); !strings.Contains(got, want) {
				t.Errorf("got %s, want %s", got, want)
			}
		}
	}
	s = start(t, Script{Steps: steps, Loop: true})
	for range 4 {
		said(t, s, chat)
	}
	if got := s.Requests()[3].Step; got != 1 {
		t.Errorf("fourth request got step %d", got)
	}
}

func TestRequestsThatBreakTheProtocolAreRefused(t *testing.T) {
	s := start(t, Script{Steps: []Step{{Text: "a"}}, Loop: true})
	use := `{"type":"tool_use","id":"c","name":"f","input":{}}`
	hi := `{"role":"user","content":[{"type":"text","text":"hi"}]}`
	for body, anthropic := range map[string]bool{
		`{`: false, `{"model":"test","stream":true,"messages":[]}`: false,
		strings.Replace(chat, "true", "false", 1):                                                                            false,
		strings.Replace(turn, `"tool_call_id":"c"`, `"tool_call_id":"d"`, 1):                                                 false,
		strings.Replace(turn, `"arguments":"{}"`, `"arguments":"{"`, 1):                                                      false,
		strings.Replace(turn, `{"role":"tool","tool_call_id":"c","content":"r"}`, `{"role":"user","content":"x"}`, 1):        false,
		`{"model":"test","stream":true,"messages":[` + hi + `]}`:                                                             true, // no max_tokens
		`{"model":"test","stream":true,"max_tokens":9,"messages":[` + hi + `,` + hi + `]}`:                                   true,
		`{"model":"test","stream":true,"max_tokens":9,"messages":[` + hi + `,{"role":"assistant","content":[` + use + `]}]}`: true,
		`{"model":"test","stream":true,"max_tokens":9,"messages":[{"role":"user","content":[{"type":"text","text":" "}]}]}`:  true,
	} {
		url := s.OpenAI() + "/chat/completions"
		if anthropic {
			url = s.Anthropic() + "/v1/messages"
		}
		if res := post(t, t.Context(), url, body); res.StatusCode != http.StatusBadRequest {
			t.Errorf("%s is answered %d", body, res.StatusCode)
		}
	}
}

// The server knows who went, and when.
func TestDisconnectsAreSeen(t *testing.T) {
	s := start(t, Script{Steps: []Step{{Text: "some text", Fault: FaultStall, After: 1}, {Text: "b"}}})
	ctx, cancel := context.WithCancel(t.Context())
	res := post(t, ctx, s.OpenAI()+"/chat/completions", chat)
	if _, err := bufio.NewReader(res.Body).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	req, err := s.Wait(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	went := time.Now()
	cancel()
	<-req.Done()
	if dropped, at := req.Dropped(); !dropped || at.Before(went) {
		t.Errorf("dropped %v at %s, the client went at %s", dropped, at, went)
	}
	said(t, s, chat)
	second := s.Requests()[1]
	<-second.Done()
	if dropped, _ := second.Dropped(); dropped {
		t.Error("a whole answer counts as dropped")
	}
}

func TestOneByteAWrite(t *testing.T) {
	s := start(t, Script{Steps: []Step{{Text: "北京", Pace: Pace{Bytes: 1}}}})
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, err = fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(chat), chat)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(raw), "\r\n\r\n")
	if !strings.HasPrefix(body, "1\r\nd\r\n1\r\na\r\n1\r\nt\r\n") {
		t.Errorf("the body is sent as %q", body)
	}
}

func TestCutAndEnd(t *testing.T) {
	for fault, whole := range map[string]bool{FaultCut: false, FaultEnd: true} {
		s := start(t, Script{Steps: []Step{{Text: "some text", Fault: fault, After: 1}}})
		b, err := io.ReadAll(post(t, t.Context(), s.OpenAI()+"/chat/completions", chat).Body)
		if (err == nil) != whole || (err != nil && !errors.Is(err, io.ErrUnexpectedEOF)) {
			t.Errorf("%s: %v after %q", fault, err, b)
		}
		if strings.Contains(string(b), "DONE") || !strings.Contains(string(b), "some tex") {
			t.Errorf("%s: %q", fault, b)
		}
	}
}

func TestParseSaysWhere(t *testing.T) {
	s, err := Parse([]byte("by: turn\nsteps:\n  - text: a\n    pace: {delay: 20ms, bytes: 1}\n    refuse: {status: 429, retry_after: \"1\"}\n"))
	if err != nil || s.Steps[0].Pace.Delay != 20*time.Millisecond || s.Steps[0].Refuse.Status != 429 {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := Parse([]byte("steps:\n  - txet: a\n")); err == nil || !strings.Contains(err.Error(), "[2:5]") {
		t.Errorf("error %v", err)
	}
}
