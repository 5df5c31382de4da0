package mcp_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/tool"
	"github.com/runlog-dev/runlog/worker/tool/mcp"
)

// patience bounds what must happen soon, on a loaded machine under -race.
const patience = 20 * time.Second

// open starts the test binary in a role as a server over stdio.
func open(t *testing.T, role string, change ...func(*mcp.Options)) *mcp.Server {
	t.Helper()
	opt := mcp.Options{Name: role, Command: []string{os.Args[0]}, Env: map[string]string{roleEnv: role, "GORACE": "atexit_sleep_ms=0"}}
	for _, f := range change {
		f(&opt)
	}
	s := mcp.Open(opt)
	t.Cleanup(func() { s.Close() })
	return s
}

func find(t *testing.T, s *mcp.Server, name string) tool.Tool {
	t.Helper()
	tools, err := s.Tools(t.Context())
	if err != nil {
		t.Fatalf("list tools: %v", err)
	}
	for _, tl := range tools {
		if tl.Spec().Name == name {
			return tl
		}
	}
	t.Fatalf("no tool %q in %v", name, names(tools))
	return nil
}

func names(tools []tool.Tool) (out []string) {
	for _, tl := range tools {
		out = append(out, tl.Spec().Name)
	}
	return out
}

// do calls a tool that must answer.
func do(t *testing.T, s *mcp.Server, name, args string) tool.Result {
	t.Helper()
	res, err := find(t, s, name).Call(t.Context(), tool.Call{CallID: "call_1", Args: args})
	if err != nil {
		t.Fatalf("call %s: %v", name, err)
	}
	return res
}

func textOf(res tool.Result) string {
	var b strings.Builder
	for _, p := range res.Content {
		b.WriteString(p.Text)
	}
	return b.String()
}

// An ear hears what servers say on stderr, through the debug log.
type ear struct{ lines chan string }

func listen(opt *mcp.Options) *ear {
	e := &ear{lines: make(chan string, 1000)}
	opt.Log = slog.New(e)
	return e
}

func (e *ear) Enabled(context.Context, slog.Level) bool { return true }
func (e *ear) WithAttrs([]slog.Attr) slog.Handler       { return e }
func (e *ear) WithGroup(string) slog.Handler            { return e }
func (e *ear) Handle(_ context.Context, r slog.Record) error {
	line := r.Message
	r.Attrs(func(a slog.Attr) bool { line += " " + a.Key + "=" + a.Value.String(); return true })
	select {
	case e.lines <- line:
	default:
	}
	return nil
}

// await returns the next line that has part in it.
func (e *ear) await(t *testing.T, part string) string {
	t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case line := <-e.lines:
			if strings.Contains(line, part) {
				return line
			}
		case <-deadline:
			t.Fatalf("never logged: %q", part)
		}
	}
}

// results of calls made in the background.
type answer struct {
	res  tool.Result
	err  error
	took time.Duration
}

func start(ctx context.Context, tl tool.Tool, call tool.Call) <-chan answer {
	ch := make(chan answer, 1)
	go func() {
		begin := time.Now()
		res, err := tl.Call(ctx, call)
		ch <- answer{res, err, time.Since(begin)}
	}()
	return ch
}

func await(t *testing.T, ch <-chan answer) answer {
	t.Helper()
	select {
	case a := <-ch:
		return a
	case <-time.After(patience):
		t.Fatal("the call never returned")
		return answer{}
	}
}

// shelf keeps artifacts in memory.
type shelf struct {
	mu    sync.Mutex
	files map[string]string
}

func (s *shelf) create(_ context.Context, name, mediaType string) (tool.ArtifactWriter, error) {
	return &volume{shelf: s, part: event.Part{Type: event.PartFile, ArtifactID: "art_" + name, Name: name, MediaType: mediaType}}, nil
}

type volume struct {
	bytes.Buffer
	shelf *shelf
	part  event.Part
}

func (v *volume) Commit(context.Context) (event.Part, error) {
	v.shelf.mu.Lock()
	defer v.shelf.mu.Unlock()
	if v.shelf.files == nil {
		v.shelf.files = map[string]string{}
	}
	v.shelf.files[v.part.Name] = v.String()
	switch {
	case strings.HasPrefix(v.part.MediaType, "image/"):
		v.part.Type = event.PartImage
	case strings.HasPrefix(v.part.MediaType, "audio/"):
		v.part.Type = event.PartAudio
	}
	v.part.Bytes = int64(v.Len())
	return v.part, nil
}

func (v *volume) Abort() {}

func mustBe(t *testing.T, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Fatalf("error is %v, want one that is %v", err, target)
		}
	}
}
