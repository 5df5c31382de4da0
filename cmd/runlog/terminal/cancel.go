package terminal

import (
	"context"
	"fmt"

	runlog "github.com/runlog-dev/runlog/clients/go"
	"github.com/runlog-dev/runlog/event"
)

func cancelCommand(ctx context.Context, env Env, args []string) error {
	return env.end(ctx, args, (*runlog.Client).Cancel, cancelLine)
}

func stopCommand(ctx context.Context, env Env, args []string) error {
	return env.end(ctx, args, (*runlog.Client).Stop, func(id string, status event.Status) string {
		return fmt.Sprintf("run %s is %s", id, status)
	})
}

// An asking is a client's way to ask for the end of a run.
type asking func(*runlog.Client, context.Context, string, runlog.Cancellation) (runlog.Run, error)

// end asks for the end of a run, and says how the run is then.
func (env Env) end(ctx context.Context, args []string, ask asking, say func(id string, status event.Status) string) error {
	f := env.flags()
	reason := f.String("reason", "", "why, for the log")
	wait := f.Bool("wait", false, "return when the run has ended")
	args, err := f.parse(args, 1, 1)
	if err != nil {
		return err
	}
	run, err := ask(f.client(), ctx, args[0], runlog.Cancellation{Reason: *reason, Wait: *wait})
	if err != nil {
		return err
	}
	return env.tellRun(f, run, say(args[0], run.Status))
}

// cancelLine tells what is true of the run now, which may be that it was faster.
func cancelLine(id string, status event.Status) string {
	switch {
	case status == event.Cancelled:
		return fmt.Sprintf("run %s is cancelled", id)
	case status.Terminal():
		return fmt.Sprintf("run %s had already %s", id, status)
	}
	return fmt.Sprintf("asked run %s to stop; it is %s (--wait waits for its end)", id, status)
}
