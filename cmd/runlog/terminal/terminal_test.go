package terminal

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/clients/go/edgetest"
	"github.com/runlog-dev/runlog/event"
)

var update = flag.Bool("update", false, "write the golden files anew")

// A buffer is written by a command while a test looks on.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// A session is one command with its surroundings.
type session struct {
	env            Env
	stdout, stderr buffer
	interrupts     chan os.Signal
}

func newSession(edge *edgetest.Edge) *session {
	s := &session{interrupts: make(chan os.Signal)}
	vars := map[string]string{"RUNLOG_SERVER": edge.URL}
	s.env = Env{
		Stdin: strings.NewReader(""), Stdout: &s.stdout, Stderr: &s.stderr,
		Getenv:     func(name string) string { return vars[name] },
		Now:        func() time.Time { return time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC) },
		Interrupts: s.interrupts,
	}
	return s
}

// run carries out a command and returns its exit code.
func (s *session) run(t *testing.T, args ...string) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	exit, handled := s.env.Run(ctx, args)
	if !handled {
		t.Fatalf("%q was not handled", args)
	}
	return exit
}

// golden compares output with a file of testdata, the server's address aside.
func golden(t *testing.T, edge *edgetest.Edge, name, got string) {
	t.Helper()
	got = strings.ReplaceAll(got, edge.URL, "http://edge")
	got = strings.ReplaceAll(got, "\x1b", "␛")
	file := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s (-update writes it anew)\ngot\n%s\nwant\n%s", file, got, want)
	}
}

func goldenEdge(t *testing.T) *edgetest.Edge {
	edge := edgetest.New(t, edgetest.Golden(t))
	edge.Snapshot = edgetest.GoldenFile(t, "snapshot.json")
	return edge
}

// What each command prints of the golden run.
func TestGoldenOutput(t *testing.T) {
	const run, trace = "run_01k9example", "4bf92f3577b34da6a3ce929d0e0e4736"
	for name, c := range map[string]struct {
		args     []string
		terminal bool
		noColor  bool
	}{
		"run":              {args: []string{"run", "Weather in 北京, and save a note."}},
		"run_terminal":     {args: []string{"run", "Weather in 北京, and save a note."}, terminal: true},
		"run_nocolor":      {args: []string{"run", "Weather in 北京, and save a note."}, terminal: true, noColor: true},
		"run_json":         {args: []string{"run", "--json", "hi"}, terminal: true},
		"attach":           {args: []string{"attach", run}},
		"attach_after":     {args: []string{"attach", run, "--after", "12"}},
		"attach_over":      {args: []string{"attach", run, "--after", "42"}},
		"attach_snapshot":  {args: []string{"attach", "ses_01k9example", "--snapshot", "--no-follow"}},
		"attach_session":   {args: []string{"attach", "ses_01k9example", "--no-follow", "--json"}},
		"runs":             {args: []string{"runs", "--agent", "demo"}},
		"runs_json":        {args: []string{"runs", "--json", "--limit", "1"}},
		"trace":            {args: []string{"trace", trace}},
		"trace_deltas":     {args: []string{"trace", trace, "--deltas"}, terminal: true},
		"trace_json":       {args: []string{"trace", trace, "--json"}},
		"cancel":           {args: []string{"cancel", run, "--reason", "enough", "--wait"}},
		"artifact_to_pipe": {args: []string{"artifact", "get", "art_1", "-o", "-"}},
	} {
		t.Run(name, func(t *testing.T) {
			edge := goldenEdge(t)
			s := newSession(edge)
			s.env.Terminal = c.terminal
			if c.noColor {
				base := s.env.Getenv
				s.env.Getenv = func(name string) string {
					if name == "NO_COLOR" {
						return "1"
					}
					return base(name)
				}
			}
			if exit := s.run(t, c.args...); exit != ExitOK || s.stderr.String() != "" {
				t.Fatalf("exit %d, stderr %q", exit, s.stderr.String())
			}
			golden(t, edge, name, s.stdout.String())
			if !c.terminal && strings.Contains(s.stdout.String(), "\x1b") {
				t.Errorf("a pipe got control sequences: %q", s.stdout.String())
			}
			if strings.HasSuffix(name, "_json") {
				jsonLines(t, s.stdout.String())
			}
		})
	}
}

// jsonLines fails unless each line is one JSON object.
func jsonLines(t *testing.T, out string) {
	t.Helper()
	for line := range strings.Lines(out) {
		var object map[string]json.RawMessage
		if err := json.Unmarshal([]byte(line), &object); err != nil {
			t.Errorf("%v in %q", err, line)
		}
	}
}

// The output does not depend on where connections broke.
func TestCutsLeaveNoTrace(t *testing.T) {
	edge := goldenEdge(t)
	edge.Fault = func(n int, _ edgetest.Request) edgetest.Fault {
		return edgetest.Fault{Cut: n < 3, After: 9, Inside: 20 * n, Clean: n == 1}
	}
	s := newSession(edge)
	if exit := s.run(t, "run", "hi"); exit != ExitOK {
		t.Fatalf("exit %d: %s", exit, s.stderr.String())
	}
	golden(t, edge, "run", s.stdout.String())
	if n := strings.Count(s.stderr.String(), "trying again"); n != 3 {
		t.Errorf("the viewer was told %d times of 3 cuts: %s", n, s.stderr.String())
	}
}

func TestExitCodesFollowTheRun(t *testing.T) {
	for data, want := range map[string]struct {
		exit int
		line string
	}{
		`"run.failed","data":{"code":"model_error","message":"no\u001b[2J model","retryable":true}`: {ExitFailed, "failed: model_error: no\uFFFD[2J model (may succeed when tried again)"},
		`"run.cancelled","data":{"by":"ann","reason":"enough"}`:                                     {ExitCancelled, "cancelled by ann: enough"},
		`"run.completed","data":{"finish_reason":"length"}`:                                         {ExitOK, "completed (length)"},
	} {
		log := append(edgetest.Golden(t)[:3], parse(t, `{"v":1,"seq":4,"id":"ses_01k9example-4","session_id":"ses_01k9example","run_id":"run_01k9example","time":"2026-11-30T12:00:03Z","type":`+data+`}`))
		edge := edgetest.New(t, log)
		for _, args := range [][]string{{"run", "hi"}, {"attach", "run_01k9example"}, {"attach", "run_01k9example", "--after", "4"}} {
			s := newSession(edge)
			if exit := s.run(t, args...); exit != want.exit {
				t.Errorf("%s after %q: exit %d, want %d", data, args, exit, want.exit)
			}
			if out := s.stdout.String(); len(args) < 3 && !strings.Contains(out, want.line) {
				t.Errorf("no %q in\n%s", want.line, out)
			}
		}
	}
}

func parse(t *testing.T, line string) event.Event {
	t.Helper()
	e, err := event.Decode([]byte(line))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestUsage(t *testing.T) {
	edge := goldenEdge(t)
	for _, args := range [][]string{
		{"run"}, {"run", ""}, {"run", "a", "b"}, {"run", "--agnet", "demo", "hi"}, {"run", "hi", "--agent"},
		{"attach"}, {"attach", "r", "--after", "-1"}, {"attach", "r", "--after", "1", "--snapshot"},
		{"runs", "--limit", "0"}, {"runs", "x"}, {"trace"}, {"cancel"}, {"artifact", "get"}, {"artifact", "put", "x"},
		{"artifact", "get", "x", "--json", "-o", "-"},
	} {
		s := newSession(edge)
		if exit := s.run(t, args...); exit != ExitUsage || !strings.Contains(s.stderr.String(), "usage: runlog "+args[0]) || s.stdout.String() != "" {
			t.Errorf("%q: exit %d\n%s", args, exit, s.stderr.String())
		}
	}
	if n := len(edge.Requests()); n != 0 {
		t.Errorf("bad command lines caused %d requests", n)
	}
	for _, args := range [][]string{nil, {"dev"}, {"Run"}, {""}} {
		if _, handled := newSession(edge).env.Run(t.Context(), args); handled {
			t.Errorf("%q was taken for a terminal command", args)
		}
	}
}

func TestHelp(t *testing.T) {
	edge := goldenEdge(t)
	for _, c := range Commands {
		s := newSession(edge)
		if exit := s.run(t, c.Name, "--help"); exit != ExitOK || !strings.Contains(s.stdout.String(), "RUNLOG_SERVER") {
			t.Errorf("%s: exit %d\n%s", c.Name, exit, s.stdout.String())
		}
	}
}

// Flags may stand anywhere; after -- nothing is a flag.
func TestWhereFlagsStand(t *testing.T) {
	for _, args := range [][]string{
		{"run", "--agent", "a", "--session", "s", "--", "--hi"},
		{"run", "--agent=a", "--session=s", "--", "--hi"},
		{"run", "--session", "s", "-agent", "a", "--", "--hi"},
	} {
		edge := goldenEdge(t)
		s := newSession(edge)
		s.run(t, args...)
		if r := edge.Requests(); len(r) == 0 || r[0].Body != `{"agent":"a","session_id":"s","input":"--hi"}` {
			t.Errorf("%q sent %+v\n%s", args, r, s.stderr.String())
		}
	}
}

func TestInputFromFile(t *testing.T) {
	edge := goldenEdge(t)
	file := filepath.Join(t.TempDir(), "in.txt")
	if err := os.WriteFile(file, []byte("from file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"run", "--file", file}, `"input":"from file\n"`},
		{[]string{"run", "look:", "--file", file}, `"input":"look:\n\nfrom file\n"`},
		{[]string{"run", "--file", "-"}, `"input":"from stdin"`},
	} {
		s := newSession(edge)
		s.env.Stdin = strings.NewReader("from stdin")
		before := len(edge.Requests())
		s.run(t, c.args...)
		if r := edge.Requests(); len(r) == before || !strings.Contains(r[before].Body, c.want) {
			t.Errorf("%q: no request with %s\n%s", c.args, c.want, s.stderr.String())
		}
	}
	s := newSession(edge)
	if exit := s.run(t, "run", "--file", file+".no"); exit != ExitFailed || !strings.Contains(s.stderr.String(), "no such file") {
		t.Errorf("exit %d: %s", exit, s.stderr.String())
	}
}

func TestErrorsNameTheRemedy(t *testing.T) {
	edge := goldenEdge(t)
	s := newSession(edge)
	if exit := s.run(t, "attach", "nothing"); exit != ExitFailed || !strings.Contains(s.stderr.String(), `neither a run nor a session "nothing"`) {
		t.Errorf("exit %d: %s", exit, s.stderr.String())
	}
	edge.Close()
	s = newSession(edge)
	if exit := s.run(t, "runs"); exit != ExitFailed || !strings.Contains(s.stderr.String(), "`runlog dev` starts one") {
		t.Errorf("exit %d: %s", exit, s.stderr.String())
	}
	s = newSession(edge)
	if exit := s.run(t, "runs", "--server", "ftp://x"); exit != ExitFailed || !strings.Contains(s.stderr.String(), "expected http://host:port") {
		t.Errorf("exit %d: %s", exit, s.stderr.String())
	}
}

func TestKeyAndServers(t *testing.T) {
	edge := goldenEdge(t)
	s := newSession(edge)
	down := httptestClosed(t)
	if exit := s.run(t, "runs", "--server", down+", "+strings.TrimPrefix(edge.URL, "http://"), "--key", "sk-1"); exit != ExitOK {
		t.Fatalf("exit %d: %s", exit, s.stderr.String())
	}
	if r := edge.Requests()[0]; r.Authorization != "Bearer sk-1" {
		t.Errorf("asked with %q", r.Authorization)
	}
}

func httptestClosed(t *testing.T) string {
	t.Helper()
	edge := edgetest.New(t, nil)
	edge.Close()
	return edge.URL
}

func TestArtifactNamesStayHere(t *testing.T) {
	edge := goldenEdge(t)
	dir := t.TempDir()
	t.Chdir(dir)
	s := newSession(edge)
	if exit := s.run(t, "artifact", "get", "art_1"); exit != ExitOK || s.stdout.String() != "note.md · 7 B · text/markdown\n" {
		t.Fatalf("exit %d: %s%s", exit, s.stdout.String(), s.stderr.String())
	}
	s = newSession(edge)
	if exit := s.run(t, "artifact", "get", "art_1"); exit != ExitFailed || !strings.Contains(s.stderr.String(), "name another file with -o") {
		t.Errorf("a second download: exit %d: %s", exit, s.stderr.String())
	}
	if exit := s.run(t, "artifact", "get", "art_1", "-o", "note.md", "--json"); exit != ExitOK {
		t.Errorf("with -o: exit %d: %s", exit, s.stderr.String())
	}
	names, _ := filepath.Glob(dir + "/*")
	hidden, _ := filepath.Glob(dir + "/.r*")
	if len(names) != 1 || len(hidden) != 0 {
		t.Errorf("left behind: %v %v", names, hidden)
	}
	got, err := os.ReadFile("note.md")
	if err != nil || string(got) != "# Note\n" {
		t.Errorf("%q, %v", got, err)
	}
}
