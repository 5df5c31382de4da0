package terminal

import (
	"context"
	"fmt"
	"iter"
	"time"

	runlog "github.com/runlog-dev/runlog/clients/go"
	"github.com/runlog-dev/runlog/event"
)

func traceCommand(ctx context.Context, env Env, args []string) error {
	f := env.flags()
	deltas := f.Bool("deltas", false, "a line for each delta")
	args, err := f.parse(args, 1, 1)
	if err != nil {
		return err
	}
	c := f.client()
	events := c.TraceEvents(ctx, args[0])
	if f.json {
		return jsonEvents(env, events)
	}
	trace, err := c.Trace(ctx, args[0])
	if err != nil {
		return err
	}
	t := &timeline{screen: screen{out: env.Stdout, color: env.Terminal && env.Getenv("NO_COLOR") == ""}, deltas: *deltas, opened: map[string]event.Time{}}
	t.head(env, trace)
	for e, err := range events {
		if err != nil {
			return err
		}
		t.add(e)
	}
	t.flush()
	return nil
}

func jsonEvents(env Env, events iter.Seq2[event.Event, error]) error {
	for e, err := range events {
		if err != nil {
			return err
		}
		if _, err := env.Stdout.Write(e.AppendLine(nil)); err != nil {
			return err
		}
	}
	return nil
}

// A timeline writes events with the time since the first one, and closers with
// the time since their opener.
type timeline struct {
	screen
	deltas bool

	runs   map[string]string // run id -> its label, if there are several
	begun  event.Time        // of the first event
	opened map[string]event.Time
	same   sameDeltas
}

// sameDeltas are deltas of one text in a row, told in one line.
type sameDeltas struct {
	first, last event.Event
	id          string
	n, bytes    int
}

func (t *timeline) head(env Env, trace runlog.Trace) {
	t.line(fmt.Sprintf("trace %s · %s", oneLine(trace.TraceID, 130), count(len(trace.Runs), "run")))
	t.runs = map[string]string{}
	for i, r := range trace.Runs {
		label := ""
		if len(trace.Runs) > 1 {
			label = fmt.Sprintf("#%d", i+1)
		}
		t.runs[r.RunID] = label
		line := fmt.Sprintf("%s %s · agent %s · session %s · %s · %s", label, r.RunID, r.Agent, r.SessionID, env.clock(r.StartedAt), env.took(r))
		t.line(t.paint(string(r.Status), statusStyle(r.Status)) + " " + oneLine(line, 500))
	}
}

func statusStyle(s event.Status) style {
	switch s {
	case event.Completed:
		return green
	case event.Failed:
		return red
	}
	return yellow
}

// add writes an event, or keeps it if it is a delta that others may follow.
func (t *timeline) add(e event.Event) {
	if t.begun.IsZero() {
		t.begun = e.Time
	}
	if id, size, ok := deltaOf(e); ok && !t.deltas {
		if t.same.n == 0 || t.same.id != id || t.same.first.Type != e.Type {
			t.flush()
			t.same = sameDeltas{first: e, id: id}
		}
		t.same.last = e
		t.same.n++
		t.same.bytes += size
		return
	}
	t.flush()
	t.row(e, string(e.Type), what(e), t.duration(e))
}

// flush writes the deltas that were kept.
func (t *timeline) flush() {
	s := t.same
	if t.same = (sameDeltas{}); s.n == 0 {
		return
	}
	name := string(s.first.Type)
	if s.n > 1 {
		name = fmt.Sprintf("%s ×%d", name, s.n)
	}
	t.row(s.first, name, fmt.Sprintf("%s %s", s.id, size(int64(s.bytes))), between(s.first.Time, s.last.Time))
}

func (t *timeline) row(e event.Event, name, text string, took time.Duration) {
	after := ""
	if took > 0 {
		after = t.paint("  "+lasted(took), bold)
	}
	if label := t.runs[e.RunID]; label != "" {
		name = label + " " + name
	}
	t.line(fmt.Sprintf("%10.3fs %6d  %-22s %s%s", between(t.begun, e.Time).Seconds(), e.Seq, oneLine(name, 40), t.paint(oneLine(text, 120), dim), after))
}

// duration is the time since the event's opener. An opener is remembered.
func (t *timeline) duration(e event.Event) time.Duration {
	key, opens := span(e)
	if key == "" {
		return 0
	}
	if opens {
		if _, ok := t.opened[key]; !ok { // a second attempt does not make the call younger
			t.opened[key] = e.Time
		}
		return 0
	}
	from := t.opened[key]
	delete(t.opened, key)
	return between(from, e.Time)
}
