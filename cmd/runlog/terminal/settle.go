package terminal

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	runlog "github.com/runlog-dev/runlog/clients/go"
	"github.com/runlog-dev/runlog/event"
)

func approveCommand(ctx context.Context, env Env, args []string) error {
	return env.decide(ctx, event.Approved, args)
}

func denyCommand(ctx context.Context, env Env, args []string) error {
	return env.decide(ctx, event.Denied, args)
}

func (env Env) decide(ctx context.Context, decision event.Decision, args []string) error {
	f := env.flags()
	reason := f.String("reason", "", "why, for the log and for the model")
	args, err := f.parse(args, 2, 2)
	if err != nil {
		return err
	}
	call, err := f.client().Decide(ctx, args[0], args[1], runlog.Decision{Decision: decision, Reason: *reason})
	if err != nil {
		return err
	}
	if f.json {
		return writeLine(env.Stdout, call)
	}
	_, err = fmt.Fprintf(env.Stdout, "%s: %s of %s; the call is %s\n", args[1], decision, printable(call.Name), call.Status)
	return err
}

func steerCommand(ctx context.Context, env Env, args []string) error {
	f := env.flags()
	args, err := f.parse(args, 2, 2)
	if err != nil {
		return err
	}
	run, err := f.client().Steer(ctx, args[0], args[1])
	if err != nil {
		return err
	}
	return env.tellRun(f, run, "the run reads it at its next step")
}

func resumeCommand(ctx context.Context, env Env, args []string) error {
	f := env.flags()
	args, err := f.parse(args, 1, 1)
	if err != nil {
		return err
	}
	run, err := f.client().Resume(ctx, args[0])
	if err != nil {
		return err
	}
	return env.tellRun(f, run, fmt.Sprintf("goes on as run %s: runlog attach %s", run.RunID, run.RunID))
}

func (env Env) tellRun(f *flagSet, run runlog.Run, line string) error {
	if f.json {
		return writeJSON(env.Stdout, run)
	}
	_, err := fmt.Fprintln(env.Stdout, line)
	return err
}

// dlqCommand works through the runs that were given up because they brought
// workers down.
func dlqCommand(ctx context.Context, env Env, args []string) error {
	f := env.flags()
	args, err := f.parse(args, 1, 2)
	if err != nil {
		return err
	}
	verb := args[0]
	if (verb == "list") != (len(args) == 1) {
		return usageError("dlq list, or dlq show|redrive|drop RUN")
	}
	switch verb {
	case "list":
		return env.listDead(ctx, f, "")
	case "show":
		return env.listDead(ctx, f, args[1])
	case "redrive":
		run, err := f.client().Redrive(ctx, args[1])
		if err != nil {
			return err
		}
		return env.tellRun(f, run, fmt.Sprintf("goes on as run %s: runlog attach %s", run.RunID, run.RunID))
	case "drop":
		return f.client().DropDeadLetter(ctx, args[1])
	}
	return usageError("dlq " + verb + ": use list, show, redrive or drop")
}

// listDead shows all dead letters, or one.
func (env Env) listDead(ctx context.Context, f *flagSet, only string) error {
	all, err := f.client().DeadLetters(ctx)
	if err != nil {
		return err
	}
	var list []runlog.DeadLetter
	for _, d := range all {
		if only == "" || d.RunID == only {
			list = append(list, d)
		}
	}
	if only != "" && len(list) == 0 {
		return fmt.Errorf("run %s is no dead letter", only)
	}
	if f.json {
		for _, d := range list {
			if err := writeLine(env.Stdout, d); err != nil {
				return err
			}
		}
		return nil
	}
	if len(list) == 0 {
		_, err := fmt.Fprintln(env.Stdout, "no dead letters")
		return err
	}
	w := tabwriter.NewWriter(env.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "RUN\tAGENT\tSINCE\tSESSION\tREASON")
	for _, d := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", d.RunID, printable(d.Agent), d.Time.Format("2006-01-02 15:04:05"), d.SessionID, printable(d.Reason))
	}
	return w.Flush()
}

func writeLine(w io.Writer, v any) error {
	_, err := fmt.Fprintf(w, "%s\n", event.Encode(v))
	return err
}
