package redact

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"testing/slogtest"
	"time"
)

type typedID string

type config struct {
	Name     string
	Password string `json:"password"`
	Nested   *config
}

type opaque struct{}

func (o opaque) LogValue() slog.Value {
	return slog.GroupValue(slog.String("inner", "my hunter2-hunter2"), slog.String("token", "t"))
}

type badError struct{ text *string }

func (b badError) Error() string { return *b.text }

func TestHandler(t *testing.T) {
	r := New(Options{Secrets: []string{"hunter2-hunter2"}})
	u, err := url.Parse("https://x/?q=hunter2-hunter2")
	if err != nil {
		t.Fatal(err)
	}
	log := func(l *slog.Logger) {
		l = l.With("bound", "hunter2-hunter2", "password", 987654321).WithGroup("g")
		l.Error("says hunter2-hunter2",
			"str", "a hunter2-hunter2 b", "err", fmt.Errorf("wrap: %w", errors.New("hunter2-hunter2")), "url", u, "valuer", opaque{},
			slog.Group("credentials", "user", "bob"), slog.Group("sub", "x", "hunter2-hunter2", "apiKey", []int{1}),
			"struct", config{Name: "hunter2-hunter2", Password: "pw", Nested: &config{Password: "pw2"}},
			"map", map[string]any{"secret": 1, "n": json.Number("9007199254740993")}, "bytes", []byte("hunter2-hunter2"),
			"raw", json.RawMessage(`{"token":"pw3"}`), "bad", badError{}, "chan", make(chan int), "id", typedID("ses_1"),
			"hunter2-hunter2", 1, "dur", time.Second, "nil", nil, "nilptr", (*config)(nil), "input_tokens", 5)
		l.WithGroup("secrets").Info("in a hidden group", "user", "carol", "n", 1)
	}
	for name, build := range map[string]func(*bytes.Buffer) slog.Handler{
		"text": func(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(b, nil) },
		"json": func(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(b, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			log(slog.New(r.Handler(build(&b))))
			for _, leak := range []string{"hunter2", "pw", "bob", "carol", "987654321"} {
				if strings.Contains(b.String(), leak) {
					t.Errorf("%q is in %s", leak, b.String())
				}
			}
			for _, stay := range []string{"says [redacted]", "a [redacted] b", "wrap: [redacted]", "https://x/?q=[redacted]", "my [redacted]", "9007199254740993", "ses_1", "PANIC", "input_tokens"} {
				if !strings.Contains(b.String(), stay) {
					t.Errorf("%q is not in %s", stay, b.String())
				}
			}
			if name == "json" {
				checkJSONLine(t, b.Bytes())
			}
		})
	}
}

func checkJSONLine(t *testing.T, b []byte) {
	t.Helper()
	line, _, _ := bytes.Cut(b, []byte("\n"))
	var got struct {
		Password string
		G        struct {
			Credentials string
			Struct      struct{ Name, Password string }
			Raw         map[string]string
			ID          string
			Tokens      int `json:"input_tokens"`
		}
	}
	if err := json.Unmarshal(line, &got); err != nil {
		t.Fatalf("%v: %s", err, line)
	}
	if got.Password != Mark || got.G.Credentials != Mark || got.G.Struct.Password != Mark || got.G.Struct.Name != Mark ||
		got.G.Raw["token"] != Mark || got.G.ID != "ses_1" || got.G.Tokens != 5 {
		t.Errorf("got %+v from %s", got, line)
	}
}

// TestHandlerIsAHandler runs the checks of the standard library.
func TestHandlerIsAHandler(t *testing.T) {
	var b bytes.Buffer
	h := New(Options{}).Handler(slog.NewJSONHandler(&b, nil))
	err := slogtest.TestHandler(h, func() (all []map[string]any) {
		for line := range bytes.Lines(b.Bytes()) {
			m := map[string]any{}
			if err := json.Unmarshal(line, &m); err != nil {
				t.Fatal(err)
			}
			all = append(all, m)
		}
		return all
	})
	if err != nil {
		t.Error(err)
	}
}

func TestHandlerKeepsLevel(t *testing.T) {
	var b bytes.Buffer
	l := slog.New(New(Options{}).Handler(slog.NewTextHandler(&b, &slog.HandlerOptions{AddSource: true, Level: slog.LevelWarn})))
	l.Info("hidden")
	l.Warn("shown")
	if s := b.String(); strings.Contains(s, "hidden") || !strings.Contains(s, "shown") || !strings.Contains(s, "log_test.go") {
		t.Errorf("got %s", s)
	}
}
