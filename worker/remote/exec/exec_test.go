package exec_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/model"
	"github.com/runlog-dev/runlog/worker/remote"
	"github.com/runlog-dev/runlog/worker/remote/exec"
)

// shell is an agent that is a shell script.
func shell(script string, more ...func(*exec.Options)) *exec.Agent {
	o := exec.Options{Command: []string{"/bin/sh", "-c", script}, Grace: 200 * time.Millisecond}
	for _, f := range more {
		f(&o)
	}
	return exec.New(o)
}

func task() remote.Task {
	s := event.NewSession("ses_1")
	for i, e := range []event.Event{
		event.New(event.RunStarted, event.RunStartedData{Agent: "a", Attempt: 1}),
		event.New(event.MessageCompleted, event.MessageCompletedData{MessageID: "u1", Role: event.RoleUser, Parts: []event.Part{event.TextPart("hello")}}),
		event.New(event.StateSnapshot, event.StateSnapshotData{State: json.RawMessage(`{"n":9007199254740993}`)}),
	} {
		e.Seq, e.SessionID, e.RunID = event.Seq(i+1), "ses_1", "run_1"
		if err := s.Apply(e); err != nil {
			panic(err)
		}
	}
	return remote.Task{Session: s, Tenant: "t", RunID: "run_1", TraceID: "tr_1", Agent: "a", Leg: 1, Key: "run_1/leg-1", Retry: 1}
}

// hear runs the agent and gathers what it says.
func hear(ctx context.Context, a *exec.Agent, t remote.Task) (list []remote.Saying, err error) {
	err = a.Run(ctx, t, func(s remote.Saying) error { list = append(list, s); return nil })
	return list, err
}

func fault(t *testing.T, err error) *model.Error {
	t.Helper()
	var fault *model.Error
	if !errors.As(err, &fault) {
		t.Fatalf("err is %v, want a *model.Error", err)
	}
	return fault
}

func TestEveryWord(t *testing.T) {
	a := shell(`cat >/dev/null; cat <<'X'
{"type":"reasoning.delta","delta":"hm"}
{"type":"reasoning.completed"}

{"type":"text.delta","delta":"Hi \ud83c\udf24"}
{"type":"message.completed"}
{"type":"tool.started","call_id":"c1","name":"f","args":{"n":9007199254740993}}
{"type":"tool.started","call_id":"c2","name":"g","args":"{\"a\":1}"}
{"type":"tool.started","call_id":"c3","name":"h"}
{"type":"tool.args.delta","call_id":"c3","delta":"{}"}
{"type":"tool.progress","call_id":"c1","progress":1,"total":2,"message":"half"}
{"type":"tool.completed","call_id":"c1","content":"yes"}
{"type":"tool.completed","call_id":"c2","content":[{"type":"json","value":{"x":1}}],"structured":{"x":1}}
{"type":"tool.failed","call_id":"c3","message":"no"}
{"type":"approval.requested","call_id":"c3"}
{"type":"state.snapshot","state":{"a":1}}
{"type":"state.delta","patch":[]}
{"type":"activity.snapshot","activity_id":"x","kind":"k","content":{}}
{"type":"activity.delta","activity_id":"x","patch":[]}
{"type":"artifact","name":"a.txt","text":"abc"}
{"type":"artifact","name":"b.bin","media_type":"image/png","base64":"AAE="}
{"type":"custom","name":"n","value":null}
{"type":"usage","input_tokens":1,"output_tokens":2,"cost_usd":0.5}
{"type":"checkpoint","value":7}
{"type":"run.completed"}
X`)
	list, err := hear(t.Context(), a, task())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range list {
		got = append(got, fmt.Sprintf("%T %s", s, event.Encode(s)))
	}
	want, err := os.ReadFile("testdata/words.txt")
	if os.Getenv("UPDATE") != "" {
		want = []byte(strings.Join(got, "\n") + "\n")
		err = os.WriteFile("testdata/words.txt", want, 0o600)
	}
	if err != nil || strings.Join(got, "\n")+"\n" != string(want) {
		t.Errorf("%v; the sayings are\n%s", err, strings.Join(got, "\n"))
	}
}

func TestWhatIsNoSuccess(t *testing.T) {
	text := `echo '{"type":"text.delta","delta":"so far"}'; `
	done := `echo '{"type":"run.completed"}'; `
	for name, c := range map[string]struct {
		script, want string
		code         event.Code
		retry        bool
	}{
		"exit code":           {text + done + "echo oops >&2; exit 3", `exit status 3, saying "oops"`, event.CodeModelError, false},
		"temporary":           {text + "exit 75", "exit status 75", event.CodeUnavailable, true},
		"killed":              {text + done + "kill -KILL $$", "signal: killed", event.CodeModelError, false},
		"no end":              {text, "ended after 1 lines without run.completed", event.CodeModelTruncated, false},
		"nothing":             {"", "without run.completed", event.CodeModelTruncated, false},
		"failed":              {text + `echo '{"type":"run.failed","message":"no luck","retryable":true}'`, "no luck", event.CodeModelError, true},
		"failed without why":  {`echo '{"type":"run.failed"}'`, "line 1 of the program's output is not as run.failed is: it needs message", event.CodeModelError, false},
		"no JSON":             {text + "echo; echo Traceback", "line 3 of the program's output is not a JSON object", event.CodeModelError, false},
		"half a line":         {text + `printf '{"type":"run.com'`, "line 2 of the program's output is not a JSON object", event.CodeModelError, false},
		"a list":              {"echo '[]'", "line 1 of the program's output is not a JSON object", event.CodeModelError, false},
		"unknown word":        {`echo '{"type":"text"}'`, `unknown type "text"; there are activity.delta`, event.CodeModelError, false},
		"misspelt":            {`echo '{"type":"text.delta","detla":"x"}'`, `unknown field "detla"`, event.CodeModelError, false},
		"not UTF-8":           {text + `printf '{"type":"text.delta","delta":"caf\351"}\n'`, "line 2 of the program's output is not UTF-8: byte 34 is 0xe9", event.CodeModelError, false},
		"a member twice":      {`echo '{"type":"text.delta","delta":"x","delta":"y"}'`, `has the member "delta" twice`, event.CodeModelError, false},
		"one in other case":   {`echo '{"type":"text.delta","delta":"x","Delta":"y"}'`, `has the member "Delta" twice`, event.CodeModelError, false},
		"one deeper":          {`echo '{"type":"state.snapshot","state":{"A":1,"a":[{"b":1,"b":2}]}}'`, `has the member "b" twice`, event.CodeModelError, false},
		"a call twice":        {`echo '{"type":"tool.started","call_id":"c","name":"f"}'; echo '{"type":"tool.completed","call_id":"c","content":""}'; echo '{"type":"tool.started","call_id":"c","name":"f"}'`, `line 3 of the program's output is not as tool.started is: the call_id "c" was started before`, event.CodeModelError, false},
		"no delta":            {`echo '{"type":"text.delta"}'`, "needs delta", event.CodeModelError, false},
		"wrong type":          {`echo '{"type":"text.delta","delta":1}'`, "line 1", event.CodeModelError, false},
		"no call id":          {`echo '{"type":"tool.started","name":"f"}'`, "needs call_id and name", event.CodeModelError, false},
		"bad content":         {`echo '{"type":"tool.completed","call_id":"c","content":7}'`, "a text or a list of parts", event.CodeModelError, false},
		"bad part":            {`echo '{"type":"tool.completed","call_id":"c","content":[{"type":"image"}]}'`, `a part of type "image"`, event.CodeModelError, false},
		"bad base64":          {`echo '{"type":"artifact","name":"a","base64":"*"}'`, "illegal base64", event.CodeModelError, false},
		"after the end":       {done + text, "line 2 of the program's output follows the end", event.CodeModelError, false},
		"a huge line":         {`printf '{"type":"text.delta","delta":"'; head -c 3000000 /dev/zero | tr '\0' x; echo '"}'`, "is longer than 1024 KiB", event.CodeModelError, false},
		"a huge line, no end": {`yes | tr -d '\n'`, "is longer than 1024 KiB", event.CodeModelError, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := hear(t.Context(), shell(c.script), task())
			if f := fault(t, err); !strings.Contains(f.Message, c.want) || f.Code != c.code || f.Retryable != c.retry {
				t.Errorf("%+v, want %q", f, c.want)
			}
		})
	}
	_, err := hear(t.Context(), exec.New(exec.Options{Command: []string{"/no/such/program"}}), task())
	if f := fault(t, err); f.Code != event.CodeUnavailable || f.Retryable {
		t.Errorf("%+v", f)
	}
}

func TestTheLastLineNeedsNoEnd(t *testing.T) {
	if _, err := hear(t.Context(), shell(`printf '{"type":"run.completed"}'`), task()); err != nil {
		t.Error(err)
	}
}

// What a program is asked, on its input and in its environment, of which it sees
// nothing else.
func TestInput(t *testing.T) {
	t.Setenv("SOME_SECRET_OF_THE_WORKER", "hush")
	dir := t.TempDir()
	a := shell("cat >in; env >env; pwd; exit 1", func(o *exec.Options) {
		o.Dir, o.Env, o.Config = dir, map[string]string{"TOKEN": "t"}, []byte(`{"temperature":0.5}`)
	})
	tk := task()
	tk.Leg, tk.Checkpoint = 2, json.RawMessage(`[1]`)
	tk.Tools = []event.ClientTool{{Name: "locate"}}
	tk.Answers = []remote.Answer{{ID: "i", CallID: "c", Approval: true, Approved: true, By: "ann"}, {ID: "j", CallID: "d", Approval: true, Reason: "no"}}
	ctx, cancel := context.WithDeadline(t.Context(), time.Date(2100, 1, 2, 3, 4, 5, 0, time.UTC))
	defer cancel()
	_, _ = hear(ctx, a, tk)
	const want = `{"v":1,"agent":"a","tenant":"t","session_id":"ses_1","run_id":"run_1","trace_id":"tr_1","leg":2,"idempotency_key":"run_1/leg-1","retry":1,` +
		`"deadline":"2100-01-02T03:04:05Z","input":"hello","messages":[{"role":"user","content":"hello"}],"tools":[{"name":"locate"}],"state":{"n":9007199254740993},` +
		`"answers":[{"call_id":"c","decision":"approve","by":"ann"},{"call_id":"d","decision":"deny","reason":"no"}],"checkpoint":[1],"config":{"temperature":0.5}}` + "\n"
	if got, err := os.ReadFile(filepath.Join(dir, "in")); string(got) != want {
		t.Errorf("%v; the input is\n%s\nwant\n%s", err, got, want)
	}
	env, _ := os.ReadFile(filepath.Join(dir, "env"))
	for _, v := range []string{"TOKEN=t", "RUNLOG_RUN_ID=run_1", "RUNLOG_SESSION_ID=ses_1", "RUNLOG_TRACE_ID=tr_1", "RUNLOG_IDEMPOTENCY_KEY=run_1/leg-1", "RUNLOG_DEADLINE=2100-01-02T03:04:05Z", "PATH="} {
		if !strings.Contains(string(env), v) {
			t.Errorf("%s is not in the environment: %s", v, env)
		}
	}
	if strings.Contains(string(env), "hush") {
		t.Errorf("the environment is %s", env)
	}
}

// A program that ignores its input, however long it is, is not waited for.
func TestInputThatNobodyReads(t *testing.T) {
	tk := task()
	tk.Checkpoint = event.Encode(strings.Repeat("x", 1<<20))
	if _, err := hear(t.Context(), shell(`echo '{"type":"run.completed"}'`), tk); err != nil {
		t.Error(err)
	}
}

// A cancel reaches the whole group: what minds SIGTERM may say why, what does not
// is killed after the grace.
func TestCancelEndsAllOfIt(t *testing.T) {
	for name, script := range map[string]string{
		"polite":   `trap 'echo bye >&2; exit 0' TERM; sleep 60 & echo "{\"type\":\"text.delta\",\"delta\":\"$$ $!\"}"; wait`,
		"stubborn": `trap '' TERM; sleep 60 & echo "{\"type\":\"text.delta\",\"delta\":\"$$ $!\"}"; while :; do sleep 60; done`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			enough := errors.New("enough")
			var pids string
			err := shell(script).Run(ctx, task(), func(s remote.Saying) error {
				pids = s.(remote.Text).Delta
				cancel(enough)
				return nil
			})
			if !errors.Is(err, enough) {
				t.Errorf("err is %v", err)
			}
			gone(t, pids)
		})
	}
}

// A program that has ended leaves nothing behind, whatever it has started.
func TestNoOrphans(t *testing.T) {
	list, err := hear(t.Context(), shell(`sleep 60 & echo "{\"type\":\"text.delta\",\"delta\":\"$!\"}"; echo '{"type":"run.completed"}'`), task())
	if err != nil {
		t.Fatal(err)
	}
	gone(t, list[0].(remote.Text).Delta)
}

// One that left the group and holds the output open does not hold up the run.
func TestAnEscapedChild(t *testing.T) {
	began := time.Now()
	list, err := hear(t.Context(), shell(`setsid sleep 30 & echo "{\"type\":\"text.delta\",\"delta\":\"$!\"}"; echo '{"type":"run.completed"}'`), task())
	if err != nil || time.Since(began) > 20*time.Second {
		t.Errorf("err is %v after %s", err, time.Since(began))
	}
	pid, _ := strconv.Atoi(list[0].(remote.Text).Delta)
	_ = syscall.Kill(pid, syscall.SIGKILL)
}

func gone(t *testing.T, pids string) {
	t.Helper()
	for _, f := range strings.Fields(pids) {
		pid, err := strconv.Atoi(f)
		if err != nil || pid < 2 {
			t.Fatalf("no pid: %q", f)
		}
		for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			if err != nil || strings.Contains(string(stat), ") Z ") {
				break
			}
			if time.Now().After(deadline) {
				t.Errorf("process %d is still there", pid)
				break
			}
		}
	}
}

// The program is read no faster than the log takes what it says, and all of it is
// read though the program is long gone.
func TestBackpressure(t *testing.T) {
	dir := t.TempDir()
	a := shell(`i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo "{\"type\":\"text.delta\",\"delta\":\"$i abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz\"}"; done; echo '{"type":"run.completed"}'; : >done`,
		func(o *exec.Options) { o.Dir = dir })
	block := make(chan struct{})
	var once sync.Once
	said := 0
	heard := make(chan error, 1)
	blocked := make(chan struct{})
	go func() {
		heard <- a.Run(t.Context(), task(), func(remote.Saying) error {
			once.Do(func() { close(blocked); <-block })
			said++
			return nil
		})
	}()
	<-blocked
	time.Sleep(300 * time.Millisecond) // for what must not happen: 250 KB are more than pipe and buffer hold
	if _, err := os.Stat(filepath.Join(dir, "done")); err == nil {
		t.Error("the program has ended though nothing was taken of it")
	}
	close(block)
	if err := <-heard; err != nil || said != 3000 {
		t.Errorf("%d lines, err is %v", said, err)
	}
}

func TestASlowReaderGetsAllOfAProgramThatIsGone(t *testing.T) {
	a := shell(`for i in 1 2 3 4; do echo '{"type":"text.delta","delta":"x"}'; done; echo '{"type":"run.completed"}'`)
	said := 0
	err := a.Run(t.Context(), task(), func(remote.Saying) error {
		if said++; said == 1 {
			time.Sleep(1500 * time.Millisecond) // longer than a silent output is waited for
		}
		return nil
	})
	if err != nil || said != 4 {
		t.Errorf("%d lines, err is %v", said, err)
	}
}

func TestSilenceEndsAProgram(t *testing.T) {
	list, err := hear(t.Context(), shell(`echo '{"type":"text.delta","delta":"x"}'; sleep 60`, func(o *exec.Options) { o.Idle = 200 * time.Millisecond }), task())
	if f := fault(t, err); f.Code != event.CodeModelTimeout || len(list) != 1 {
		t.Errorf("%+v after %d lines", f, len(list))
	}
}

func TestStderrIsLogged(t *testing.T) {
	var buf lockedBuffer
	log := slog.New(slog.NewTextHandler(&buf, nil))
	if _, err := hear(t.Context(), shell(`echo 'working on it' >&2; echo '{"type":"run.completed"}'`, func(o *exec.Options) { o.Log = log }), task()); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); !strings.Contains(buf.String(), "working on it"); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the log is %s", buf.String())
		}
	}
	if !strings.Contains(buf.String(), "run=run_1") {
		t.Errorf("the log is %s", buf.String())
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
