// Package terminal holds the commands with which a person, or a script, uses
// runlog: start a run and watch it, attach to one, list, trace and cancel runs,
// fetch artifacts. They are clients of the HTTP contract like any other.
package terminal

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// Exit codes of the commands.
const (
	ExitOK        = 0
	ExitFailed    = 1 // the run failed, or the command could not be carried out
	ExitUsage     = 2
	ExitCancelled = 3   // the run was cancelled
	ExitLeft      = 130 // the viewer left, the run goes on
)

// Env is what a command may touch. The zero value of a field stands for the
// process's own.
type Env struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Getenv         func(string) string
	Now            func() time.Time
	// Terminal says that Stdout can be redrawn in place.
	Terminal bool
	// Interrupts delivers Ctrl-C; nil: the command listens for it itself while
	// it follows a run.
	Interrupts <-chan os.Signal

	command Command // the one that runs
}

// A Command is one entry of the command line.
type Command struct {
	Name string
	Args string // what follows the name in the usage line
	Help string // one line
	Run  func(ctx context.Context, env Env, args []string) error
}

// Commands are the terminal commands in the order of help.
var Commands = []Command{
	{"run", `"…" [--agent NAME] [--session ID] [--file FILE|-]`, "start a run and watch it", runCommand},
	{"attach", "RUN|SESSION [--after SEQ] [--snapshot] [--no-follow]", "watch a run or a session, from the start or from an event", attachCommand},
	{"runs", "[--status S] [--agent NAME] [--trace ID] [--limit N]", "list runs, latest first", runsCommand},
	{"trace", "TRACE [--deltas]", "show the events of every run under a trace, with timings", traceCommand},
	{"cancel", "RUN [--reason TEXT] [--wait]", "cancel a run", cancelCommand},
	{"stop", "RUN [--reason TEXT] [--wait]", "end a run after its current step", stopCommand},
	{"resume", "RUN", "go on where a run failed, was cancelled or stopped", resumeCommand},
	{"steer", `RUN "…"`, "give a message to a run that is going on", steerCommand},
	{"approve", "RUN CALL [--reason TEXT]", "let a tool call run that asks first", approveCommand},
	{"deny", "RUN CALL [--reason TEXT]", "refuse a tool call that asks first", denyCommand},
	{"dlq", "list | show|redrive|drop RUN", "runs that were given up because they brought workers down", dlqCommand},
	{"artifact", "get ID [-o FILE|-]", "download an artifact", artifactCommand},
}

// Run carries out a terminal command. handled is false if args do not begin
// with one. Call it before anything else takes over SIGINT: the first Ctrl-C
// cancels the run that is watched, the second leaves it going.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) (exit int, handled bool) {
	env := Env{Stdin: stdin, Stdout: stdout, Stderr: stderr, Terminal: isTerminal(stdout)}
	return env.Run(ctx, args)
}

// Run is the package's Run in another environment.
func (env Env) Run(ctx context.Context, args []string) (exit int, handled bool) {
	env = env.withDefaults()
	for _, c := range Commands {
		if len(args) > 0 && args[0] == c.Name {
			env.command = c
			return env.exit(c.Run(ctx, env, args[1:])), true
		}
	}
	return 0, false
}

func (env Env) withDefaults() Env {
	if env.Stdin == nil {
		env.Stdin = os.Stdin
	}
	if env.Stdout == nil {
		env.Stdout, env.Terminal = os.Stdout, isTerminal(os.Stdout)
	}
	if env.Stderr == nil {
		env.Stderr = os.Stderr
	}
	if env.Getenv == nil {
		env.Getenv = os.Getenv
	}
	if env.Now == nil {
		env.Now = time.Now
	}
	return env
}

// exit tells the user what went wrong and gives the code for it.
func (env Env) exit(err error) int {
	c := env.command
	var code exitCode
	var usage usageError
	switch {
	case err == nil:
		return ExitOK
	case errors.Is(err, flag.ErrHelp):
		return ExitOK
	case errors.As(err, &code):
		return int(code)
	case errors.As(err, &usage):
		fmt.Fprintf(env.Stderr, "runlog %s: %s\nusage: runlog %s %s\n", c.Name, usage, c.Name, c.Args)
		return ExitUsage
	}
	fmt.Fprintf(env.Stderr, "runlog %s: %s\n", c.Name, oneLine(explain(err), 1000))
	return ExitFailed
}

// exitCode ends a command whose outcome the user has been told.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// usageError is a command line that cannot be carried out.
type usageError string

func (e usageError) Error() string { return string(e) }

// explain adds the usual remedy to the usual mishaps.
func explain(err error) string {
	text := err.Error()
	switch {
	case strings.Contains(text, "connection refused"):
		return text + ": is a server running there? `runlog dev` starts one, --server or RUNLOG_SERVER names another"
	case strings.Contains(text, "(401 "):
		return text + ": set RUNLOG_KEY or --key (`runlog keys create` makes one)"
	}
	return text
}

// isTerminal reports whether w is a device that understands cursor movement.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
