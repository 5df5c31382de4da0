package terminal

import (
	"context"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"

	runlog "github.com/runlog-dev/runlog/clients/go"
	"github.com/runlog-dev/runlog/event"
)

// maxInput bounds what is read from a file; the server's own limit on a request
// is lower.
const maxInput = 64 << 20

func runCommand(ctx context.Context, env Env, args []string) error {
	f := env.flags()
	agent := f.String("agent", "", "agent to run (default: the session's, or demo)")
	session := f.String("session", "", "session to continue (default: a new one)")
	file := f.String("file", "", "read the input, or what follows it, from a file; - is standard input")
	args, err := f.parse(args, 0, 1)
	if err != nil {
		return err
	}
	input, err := env.input(args, *file)
	if err != nil {
		return err
	}
	if *agent == "" && *session == "" {
		*agent = "demo"
	}
	w := f.newFollower(false)
	run, err := w.client.Submit(ctx, runlog.Submission{Agent: *agent, SessionID: *session, Input: input})
	if err != nil {
		return err
	}
	w.runID, w.owns = run.RunID, true
	return w.follow(ctx, func(ctx context.Context) iter.Seq2[event.Event, error] {
		return w.client.RunEvents(ctx, run.RunID, runlog.EventOptions{})
	})
}

// input joins the argument and the file.
func (env Env) input(args []string, file string) (string, error) {
	parts := args
	if file != "" {
		text, err := env.readInput(file)
		if err != nil {
			return "", err
		}
		parts = append(parts, text)
	}
	input := strings.Join(parts, "\n\n")
	if strings.TrimSpace(input) == "" {
		return "", usageError(`there is no input: give it as an argument or with --file`)
	}
	return input, nil
}

func (env Env) readInput(file string) (string, error) {
	in := env.Stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return "", fmt.Errorf("read input: %w", err)
		}
		defer f.Close()
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, maxInput+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("read input %s: %w", file, err)
	case len(b) > maxInput:
		return "", fmt.Errorf("input %s is over %s: upload it as an artifact", file, size(maxInput))
	}
	return string(b), nil
}
