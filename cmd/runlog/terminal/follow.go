package terminal

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"os/signal"
	"time"

	runlog "github.com/runlog-dev/runlog/clients/go"
	"github.com/runlog-dev/runlog/event"
)

// A follower shows a stream until it ends or the user has enough.
type follower struct {
	env    Env
	client *runlog.Client
	view   view
	runID  string // the run whose end is the outcome; empty for a session

	sessionID string // what is followed if it is no run
	owns      bool   // the first Ctrl-C cancels the run

	end        event.Event  // the run's terminal event
	interrupts int          // Ctrl-C so far
	cancelled  chan outcome // of the request to cancel
}

// outcome is a server's answer to a cancel.
type outcome struct {
	run runlog.Run
	err error
}

// A stream begins to read events when it is called; it ends with ctx.
type stream func(ctx context.Context) iter.Seq2[event.Event, error]

// item is one step of a stream.
type item struct {
	e   event.Event
	err error
}

// newFollower makes the view that flags ask for, and lets the client tell it
// about lost connections.
func (f *flagSet) newFollower(users bool) *follower {
	c := f.client()
	var v view = jsonView{f.env.Stdout, f.env.Stderr}
	if !f.json {
		v = f.env.textView(c, users)
	}
	c.OnRetry = func(cause error, wait time.Duration) {
		if wait >= 200*time.Millisecond {
			v.note(fmt.Sprintf("%s; trying again in %s", oneLine(cause.Error(), 200), lasted(wait)))
		}
	}
	return &follower{env: f.env, client: c, view: v, cancelled: make(chan outcome, 1)}
}

// follow shows events and returns the exit code that goes with their end.
func (f *follower) follow(ctx context.Context, open stream) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	interrupts, quiet := f.env.interrupts()
	defer quiet()
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	items := pump(ctx, open(ctx))
	for {
		select {
		case it, ok := <-items:
			if !ok {
				return f.outcome()
			}
			if it.err != nil {
				return it.err
			}
			f.show(it.e)
		case <-interrupts:
			if f.interrupt(ctx) {
				return exitCode(ExitLeft)
			}
		case answer := <-f.cancelled:
			f.answered(answer)
		case <-ticker.C:
			f.view.tick()
		}
	}
}

// pump reads a stream in a goroutine of its own, which ends with ctx.
func pump(ctx context.Context, events iter.Seq2[event.Event, error]) <-chan item {
	items := make(chan item)
	go func() {
		defer close(items)
		for e, err := range events {
			select {
			case items <- item{e, err}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return items
}

// interrupts returns where Ctrl-C arrives, and what ends that.
func (env Env) interrupts() (<-chan os.Signal, func()) {
	if env.Interrupts != nil {
		return env.Interrupts, func() {}
	}
	ch := make(chan os.Signal, 2)
	signal.Notify(ch, os.Interrupt)
	return ch, func() { signal.Stop(ch) }
}

func (f *follower) show(e event.Event) {
	f.view.event(e)
	if e.Type.Terminal() && e.RunID == f.runID {
		f.end = e
	}
}

// interrupt takes a Ctrl-C: the first one asks for the run's end, if it is ours
// to end, the next one leaves.
func (f *follower) interrupt(ctx context.Context) (leave bool) {
	if f.interrupts++; !f.owns || f.interrupts > 1 {
		f.view.leave(f.runID + f.sessionID)
		return true
	}
	f.view.note("cancelling; Ctrl-C once more leaves the run going")
	go func() {
		run, err := f.client.Cancel(ctx, f.runID, runlog.Cancellation{Reason: "Ctrl-C at the terminal", Wait: true})
		f.cancelled <- outcome{run, err}
	}()
	return false
}

// answered tells what became of the cancel where the stream would not: the
// stream itself shows the run's end.
func (f *follower) answered(a outcome) {
	switch {
	case errors.Is(a.err, context.Canceled):
	case a.err != nil:
		f.interrupts = 0
		f.view.note(fmt.Sprintf("not cancelled: %s; Ctrl-C tries again", oneLine(a.err.Error(), 300)))
	case a.run.Status.Terminal() && a.run.Status != event.Cancelled:
		f.view.note(fmt.Sprintf("too late to cancel: the run had already %s", map[event.Status]string{
			event.Completed: "completed", event.Failed: "failed"}[a.run.Status]))
	}
}

// outcome is the exit code for how the run ended. A stream that is over without
// its terminal event, because all of it had been seen, says nothing.
func (f *follower) outcome() error {
	select {
	case answer := <-f.cancelled:
		f.answered(answer)
	default:
	}
	switch f.end.Type {
	case event.RunFailed:
		return exitCode(ExitFailed)
	case event.RunCancelled:
		return exitCode(ExitCancelled)
	}
	return nil
}
