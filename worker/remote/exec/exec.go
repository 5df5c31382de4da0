// Package exec runs programs that are agents. A program gets one JSON object on
// its standard input, the Input, and writes a JSON object for each thing it says
// on a line of its standard output. The words are those of the log, without the
// envelope:
//
//	text.delta {delta}                     reasoning.delta {delta} · reasoning.completed
//	message.completed                      what follows is another message
//	tool.started {call_id, name, args?}    tool.args.delta {call_id, delta}
//	tool.progress {call_id, progress, total?, message?}
//	tool.completed {call_id, content: text | parts, structured?} · tool.failed {call_id, message}
//	approval.requested {call_id}           the program ends, and is started again with the answer
//	state.snapshot {state} · state.delta {patch}
//	activity.snapshot {activity_id, kind, content} · activity.delta {activity_id, patch}
//	artifact {name, media_type?, text | base64}
//	custom {name, value?}
//	usage {input_tokens, output_tokens, reasoning_tokens, cached_input_tokens, cost_usd}
//	checkpoint {value}                     what was said stands; value comes back after a crash
//	run.completed | run.failed {message, retryable?}
//
// The last line is run.completed or run.failed, and the exit code 0: everything
// else is a failure, whatever was said before. Exit code 75 (EX_TEMPFAIL) is a
// failure that may be tried again.
package exec

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"time"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/worker/child"
	"github.com/runlog-dev/runlog/worker/model"
	"github.com/runlog-dev/runlog/worker/remote"
)

// Options of a program. Command is needed.
type Options struct {
	Command []string
	// Env is what the program sees of an environment, besides PATH, HOME and what
	// names its run (RUNLOG_RUN_ID and so on).
	Env    map[string]string
	Dir    string        // working directory; the worker's if empty
	Config []byte        // JSON, handed to the program as it is
	Idle   time.Duration // between two lines; 0: 5 min
	Grace  time.Duration // from SIGTERM to SIGKILL; 0: 5 s
	Log    *slog.Logger  // of its stderr; nil: none
}

// Check says what is wrong with the options before anything is started.
func (o Options) Check() error {
	if len(o.Command) == 0 || o.Command[0] == "" {
		return errors.New("exec.command is missing: a list, the program and its arguments")
	}
	return nil
}

// An Agent is a program that is started for each leg of a run. It is safe for
// concurrent use.
type Agent struct{ opt Options }

// New returns the agent of checked options. It starts nothing.
func New(o Options) *Agent {
	if o.Idle <= 0 {
		o.Idle = 5 * time.Minute
	}
	if o.Grace <= 0 {
		o.Grace = 5 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Agent{o}
}

// Close does nothing: programs end with their runs.
func (a *Agent) Close() error { return nil }

// errIdle is why a silent program is stopped.
var errIdle = errors.New("idle")

// Run starts the program and tells what it says. When it returns the program and
// all that it has started are gone.
func (a *Agent) Run(ctx context.Context, task remote.Task, say func(remote.Saying) error) error {
	p, err := a.start(ctx, task)
	if err != nil {
		return &model.Error{Code: event.CodeUnavailable, Absent: true, Err: err, Message: fmt.Sprintf("the program %q could not be started", a.opt.Command[0])}
	}
	defer p.Out.Close()
	defer func() { p.Stop(); <-p.Done() }()

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(ctx, p.Stop)()
	go feed(p.In, inputOf(ctx, task, a.opt.Config))
	idle := time.AfterFunc(a.opt.Idle, func() { cancel(errIdle) })
	defer idle.Stop()

	t := &talk{say: say, pause: func() { idle.Stop() }, resume: func() { idle.Reset(a.opt.Idle) }}
	err = t.listen(newOutput(p))
	if err == nil {
		select { // what it still does is its own business, but not for ever
		case <-p.Done():
		case <-ctx.Done():
		}
	}
	return a.ended(ctx, p, t, err)
}

func (a *Agent) start(ctx context.Context, task remote.Task) (*child.Process, error) {
	return child.Start(child.Options{
		Command: a.opt.Command, Env: environment(ctx, task, a.opt.Env), Dir: a.opt.Dir, Grace: a.opt.Grace, Drain: true,
		Log: a.opt.Log.With("run", task.RunID, "session", task.SessionID()), Level: slog.LevelInfo, What: "agent program stderr",
	})
}

// feed writes what the program is asked. One that does not read it misses it.
func feed(in *os.File, input []byte) {
	_, _ = in.Write(input)
	_ = in.Close()
}

// ended says how the program's answer is to be taken.
func (a *Agent) ended(ctx context.Context, p *child.Process, t *talk, err error) error {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errIdle):
		return &model.Error{Code: event.CodeModelTimeout, Message: fmt.Sprintf("the program said nothing for %s (idle_timeout)", a.opt.Idle)}
	case cause != nil:
		return cause
	case err != nil:
		return err
	}
	switch {
	case exitCode(p.Err()) == tempFail:
		return a.failure(p, event.CodeUnavailable, true)
	case p.Err() != nil:
		return a.failure(p, event.CodeModelError, false)
	case t.failed != nil:
		return t.failed
	case !t.done:
		return &model.Error{Code: event.CodeModelTruncated, Message: fmt.Sprintf(
			"the program ended after %d lines without run.completed: its answer is not whole. Let its last line be {\"type\":\"run.completed\"}", t.line)}
	}
	return nil
}

// tempFail is EX_TEMPFAIL of sysexits.h.
const tempFail = 75

func exitCode(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return 0
}

func (a *Agent) failure(p *child.Process, code event.Code, retryable bool) error {
	message := fmt.Sprintf("the program ended with %v", p.Err())
	if last := p.LastWords(); last != "" {
		message += fmt.Sprintf(", saying %q", last)
	}
	return &model.Error{Code: code, Message: message, Retryable: retryable}
}

// maxLine bounds a line in bytes.
const maxLine = 1 << 20

// A talk follows what a program says.
type talk struct {
	say           func(remote.Saying) error
	pause, resume func() // of the watch for silence
	line          int
	calls         map[string]bool // that it has started
	done          bool
	failed        error // run.failed
}

// listen reads lines until the end.
func (t *talk) listen(out *output) error {
	r := bufio.NewReaderSize(out, 64<<10)
	for {
		line, err := readLine(r)
		if len(line) > 0 || errors.Is(err, errLong) {
			t.line++
			t.pause()
			if err := t.take(line, err); err != nil {
				return err
			}
			t.resume()
		}
		if err != nil {
			return nil // the end; how it came about is seen by the exit code
		}
	}
}

var errLong = errors.New("too long")

// readLine returns the next line with its end, or what there is at the end.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		piece, err := r.ReadSlice('\n')
		line = append(line, piece...)
		switch {
		case len(line) > maxLine:
			return line[:80], errLong
		case !errors.Is(err, bufio.ErrBufferFull):
			return line, err
		}
	}
}

// take tells of one line.
func (t *talk) take(line []byte, err error) error {
	if errors.Is(err, errLong) {
		return t.wrong(fmt.Sprintf("is longer than %d KiB: %q …", maxLine>>10, line))
	}
	list, err := t.decode(line)
	if err != nil {
		return t.wrong(err.Error())
	}
	for _, s := range list {
		err := t.say(s)
		var fault *model.Error
		switch {
		case errors.Is(err, remote.ErrMisfit):
			return t.wrong(err.Error())
		case errors.As(err, &fault):
			fault.Message = fmt.Sprintf("line %d of the program: %s", t.line, fault.Message)
			return fault
		case err != nil:
			return err
		}
	}
	return nil
}

func (t *talk) wrong(what string) error {
	return &model.Error{Code: event.CodeModelError, Message: fmt.Sprintf("line %d of the program's output %s", t.line, what)}
}
