package terminal

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"

	runlog "github.com/runlog-dev/runlog/clients/go"
	"github.com/runlog-dev/runlog/event"
)

func attachCommand(ctx context.Context, env Env, args []string) error {
	f := env.flags()
	after := f.Uint64("after", 0, "begin after this event")
	snapshot := f.Bool("snapshot", false, "begin with the conversation so far instead of its events")
	noFollow := f.Bool("no-follow", false, "end at the last event there is")
	args, err := f.parse(args, 1, 1)
	if err != nil {
		return err
	}
	if *snapshot && *after > 0 {
		return usageError("--after and --snapshot exclude each other")
	}
	w := f.newFollower(true)
	events, err := w.find(ctx, args[0], runlog.EventOptions{After: event.Seq(*after), Snapshot: *snapshot, NoFollow: *noFollow})
	if err != nil {
		return err
	}
	return w.follow(ctx, events)
}

// find returns the stream of the run with this id, else of the session.
func (f *follower) find(ctx context.Context, id string, opt runlog.EventOptions) (stream, error) {
	run, err := f.client.GetRun(ctx, id)
	switch {
	case err == nil:
		f.runID = id
		f.end = alreadyOver(run)
		return func(ctx context.Context) iter.Seq2[event.Event, error] { return f.client.RunEvents(ctx, id, opt) }, nil
	case !isNotFound(err):
		return nil, err
	}
	f.sessionID = id
	return func(ctx context.Context) iter.Seq2[event.Event, error] {
		return orNeither(id, f.client.SessionEvents(ctx, id, opt))
	}, nil
}

// alreadyOver stands in for the terminal event where the stream will not bring
// it again, because the viewer has seen it.
func alreadyOver(run runlog.Run) event.Event {
	if !run.Status.Terminal() {
		return event.Event{}
	}
	return event.Event{Type: event.Type("run." + run.Status), RunID: run.RunID}
}

// orNeither tells a user that the id was looked for as both.
func orNeither(id string, events iter.Seq2[event.Event, error]) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		for e, err := range events {
			if isNotFound(err) {
				err = fmt.Errorf("there is neither a run nor a session %q", id)
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

func isNotFound(err error) bool {
	var refusal *runlog.Error
	return errors.As(err, &refusal) && refusal.Status == http.StatusNotFound
}
