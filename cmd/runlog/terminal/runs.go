package terminal

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	runlog "github.com/runlog-dev/runlog/clients/go"
	"github.com/runlog-dev/runlog/event"
)

func runsCommand(ctx context.Context, env Env, args []string) error {
	f := env.flags()
	status := f.String("status", "", "only runs with this status: pending, running, waiting_tool, waiting_approval, completed, failed, cancelled")
	agent := f.String("agent", "", "only runs of this agent")
	trace := f.String("trace", "", "only runs under this trace")
	limit := f.Int("limit", 20, "at most so many runs")
	if _, err := f.parse(args, 0, 0); err != nil {
		return err
	}
	if *limit < 1 {
		return usageError("--limit must be at least 1")
	}
	runs, err := firstRuns(ctx, f.client(), runlog.RunQuery{TraceID: *trace, Status: event.Status(*status), Agent: *agent, Limit: *limit})
	if err != nil {
		return err
	}
	if f.json {
		return writeJSON(env.Stdout, runs...)
	}
	return env.runsTable(runs)
}

// firstRuns gathers q.Limit runs over as many pages as the server makes of them.
func firstRuns(ctx context.Context, c *runlog.Client, q runlog.RunQuery) ([]runlog.Run, error) {
	var runs []runlog.Run
	for run, err := range c.Runs(ctx, q) {
		if err != nil {
			return nil, err
		}
		if runs = append(runs, run); len(runs) == q.Limit {
			break
		}
	}
	return runs, nil
}

func (env Env) runsTable(runs []runlog.Run) error {
	if len(runs) == 0 {
		_, err := fmt.Fprintln(env.Stdout, "no runs")
		return err
	}
	w := tabwriter.NewWriter(env.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "RUN\tSTATUS\tAGENT\tSTARTED\tTOOK\tTOKENS\tSESSION\tTRACE")
	for _, r := range runs {
		row := []string{r.RunID, string(r.Status), r.Agent, env.clock(r.StartedAt), env.took(r), tokens(r.Usage), r.SessionID, r.TraceID}
		for i, cell := range row {
			row[i] = oneLine(cell, 130)
		}
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	return w.Flush()
}

func (env Env) clock(t event.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.In(env.Now().Location()).Format("2006-01-02 15:04:05")
}

// took is how long the run has lasted so far.
func (env Env) took(r runlog.Run) string {
	end := r.EndedAt
	if end.IsZero() && !r.Status.Terminal() {
		end = event.At(env.Now())
	}
	if r.StartedAt.IsZero() || end.IsZero() {
		return "-"
	}
	return lasted(max(between(r.StartedAt, end), 0).Round(time.Millisecond))
}

func tokens(u *event.Usage) string {
	if u == nil {
		return "-"
	}
	return fmt.Sprintf("%d/%d", u.InputTokens, u.OutputTokens)
}

// writeJSON writes runs as the server sent them, a line each.
func writeJSON(w io.Writer, runs ...runlog.Run) error {
	for _, r := range runs {
		if _, err := fmt.Fprintf(w, "%s\n", event.Encode(r.Raw)); err != nil {
			return err
		}
	}
	return nil
}
