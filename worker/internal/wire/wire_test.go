package wire

import (
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/model"
)

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name, value string
		want        time.Duration
	}{
		{"Retry-After", "3", 3 * time.Second},
		{"Retry-After", "0.5", 500 * time.Millisecond},
		{"Retry-After", "-1", 0},
		{"Retry-After", "soon", 0},
		{"Retry-After", "Mon, 30 Nov 2026 12:01:00 GMT", time.Minute},
		{"Retry-After", "Mon, 30 Nov 2026 11:00:00 GMT", 0},
		{"Retry-After-Ms", "250", 250 * time.Millisecond},
		{"Retry-After-Ms", "x", 0},
		{"Retry-After", "NaN", 0},
		{"Retry-After", "1e300", maxRetryAfter},
	} {
		h := http.Header{}
		h.Set(c.name, c.value)
		if got := RetryAfter(h, now); got != c.want {
			t.Errorf("%s: %s is %s, want %s", c.name, c.value, got, c.want)
		}
	}
}

// No message holds the key or a header that may be one.
func TestSecretsAreHidden(t *testing.T) {
	c := New(model.Endpoint{APIKey: "sk-1234567890", Headers: map[string]string{"Authorization": "Bearer tok-abcdefgh"}})
	if got := c.hide("bad key sk-1234567890 or tok-abcdefgh"); got != "bad key [key] or [secret]" {
		t.Errorf("hidden: %q", got)
	}
	e := model.Endpoint{APIKey: "sk-1234567890", BaseURL: "https://user:pass@host/v1?key=k", Name: "m"}
	if got := e.String() + e.LogValue().String(); strings.Contains(got, "sk-") || strings.Contains(got, "pass") || strings.Contains(got, "key=") {
		t.Errorf("endpoint is printed as %q", got)
	}
}

func get(t *testing.T, e model.Endpoint) *model.Error {
	t.Helper()
	e.IdleTimeout, e.StartTimeout = 10*time.Second, 10*time.Second
	c := New(e)
	call := c.Begin(t.Context())
	defer call.Close()
	req, err := http.NewRequestWithContext(call.Context(), http.MethodPost, e.BaseURL, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Client().Do(req)
	var got *model.Error
	if !errors.As(call.Fail(err), &got) {
		t.Fatalf("error %v", err)
	}
	return got
}

func TestNoConnection(t *testing.T) {
	tls := httptest.NewUnstartedServer(http.NotFoundHandler())
	tls.Config.ErrorLog = log.New(io.Discard, "", 0)
	tls.StartTLS()
	defer tls.Close()
	if e := get(t, model.Endpoint{BaseURL: tls.URL}); e.Retryable || !strings.Contains(e.Message, "certificate") {
		t.Errorf("an unknown certificate is %+v", e)
	}
	call := New(model.Endpoint{BaseURL: "http://nowhere/?key=secret", StartTimeout: time.Minute}).Begin(t.Context())
	defer call.Close()
	var e *model.Error
	dns := &url.Error{Op: "Post", URL: "http://nowhere/?key=secret", Err: &net.DNSError{Err: "no such host", Name: "nowhere"}}
	if !errors.As(call.Fail(dns), &e) || !e.Retryable || e.Code != event.CodeUnavailable || strings.Contains(e.Error(), "secret") || !strings.Contains(e.Message, "nowhere") {
		t.Errorf("an unknown host is %+v", e)
	}
}

// A page of megabytes is not read whole for its status.
func TestErrorBodiesAreBounded(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		for range 200 {
			_, _ = w.Write([]byte(strings.Repeat("x ", 16<<10)))
		}
	}))
	defer s.Close()
	if e := get(t, model.Endpoint{BaseURL: s.URL}); len(e.Message) > 2*maxSaid {
		t.Errorf("message of %d bytes", len(e.Message))
	}
}

func TestReadError(t *testing.T) {
	for body, want := range map[string]string{
		`{"error":{"message":"a","type":"b","code":null}}`:    "a",
		`{"type":"error","error":{"type":"x","message":"a"}}`: "a",
		`{"error":"a"}`:          "a",
		`{"message":"a"}`:        "a",
		`{"detail":"a"}`:         "a",
		`{"detail":[{"msg":1}]}`: `[{"msg":1}]`,
		`{"error":null}`:         "",
		`{}`:                     "",
		`[1]`:                    "[1]",
		"plain\n text":           "plain text",
		"<html>x</html>":         "",
		"\xff":                   "�",
	} {
		if got, _ := readError([]byte(body)); got != want {
			t.Errorf("readError(%s) = %q, want %q", body, got, want)
		}
	}
}
