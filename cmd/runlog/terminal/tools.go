package terminal

import (
	"fmt"
	"time"

	"github.com/runlog-dev/runlog/event"
)

// tools are the calls that are open, in the order they began.
type tools struct {
	open []*toolCall
	byID map[string]*toolCall
}

// A toolCall is one call as its line tells it.
type toolCall struct {
	id, runID, name, args string
	state                 string     // pending, running, or its progress
	shared                bool       // another call of the name was open with it: lines need the id
	told                  bool       // a line with the arguments was printed
	began                 event.Time // the first attempt
	since                 time.Time  // the same by the viewer's clock
}

// call finds an open call, or opens it: a viewer that came late has missed how
// it began.
func (v *textView) call(e event.Event, id, name string) *toolCall {
	c := v.tools.byID[id]
	if c == nil {
		c = &toolCall{id: id, runID: e.RunID, name: id, state: "pending", since: v.now()}
		v.tools.byID[id] = c
		v.tools.open = append(v.tools.open, c)
	}
	if name != "" && name != c.name {
		c.name = name
		v.tools.mark(c)
	}
	return c
}

// mark notes that calls of one name are open together.
func (t *tools) mark(c *toolCall) {
	for _, other := range t.open {
		if other != c && other.name == c.name {
			c.shared, other.shared = true, true
		}
	}
}

func (v *textView) toolStarted(e event.Event, d event.ToolStartedData) {
	v.call(e, d.CallID, d.Name)
	v.speaking = ""
	v.redraw()
}

func (v *textView) toolArgs(e event.Event, d event.ToolArgsData) {
	c := v.call(e, d.CallID, d.Name)
	c.args = d.Args
	v.changed(c)
}

func (v *textView) toolRunning(e event.Event, d event.ToolRunningData) {
	c := v.call(e, d.CallID, "")
	c.state = "running"
	if d.Attempt > 1 {
		c.state = fmt.Sprintf("running, attempt %d", d.Attempt)
	}
	if c.began.IsZero() {
		c.began, c.since = e.Time, v.now()
	}
	v.changed(c)
}

func (v *textView) toolProgress(e event.Event, d event.ToolProgressData) {
	c := v.call(e, d.CallID, "")
	c.state = fmt.Sprintf("%g", d.Progress.Progress)
	if d.Total > 0 {
		c.state += fmt.Sprintf("/%g", d.Total)
	}
	if d.Message != "" {
		c.state += " " + oneLine(d.Message, 80)
	}
	v.changed(c)
}

func (v *textView) toolCompleted(e event.Event, d event.ToolCompletedData) {
	c := v.call(e, d.CallID, d.Name)
	c.args = d.Args
	result := contentLine(d.Content, 80)
	if d.Truncated && d.Artifact != nil {
		result += fmt.Sprintf(" (cut; %s in %s)", size(d.Artifact.Bytes), v.resolve(d.Artifact.URL))
	}
	v.closed(e, c, event.Completed, result)
}

func (v *textView) toolFailed(e event.Event, d event.ToolFailedData) {
	c := v.call(e, d.CallID, d.Name)
	c.args = d.Args
	text := fmt.Sprintf("%s: %s", d.Code, oneLine(d.Message, 200))
	if d.Outcome != event.OutcomeFailed {
		text = fmt.Sprintf("%s, %s", d.Outcome, text)
	}
	v.closed(e, c, event.Failed, text)
}

// changed redraws the calls in place, or adds a line where that cannot be.
func (v *textView) changed(c *toolCall) {
	v.speaking = ""
	if v.live {
		v.redraw()
		return
	}
	args := ""
	if !c.told {
		args, c.told = argsOf(c), c.args != ""
	}
	v.line(fmt.Sprintf("tool %s%s: %s", label(c), args, c.state))
}

// closed turns the line of a call into its last one.
func (v *textView) closed(e event.Event, c *toolCall, status event.Status, text string) {
	v.speaking = ""
	line := v.closingLine(c, status, between(c.began, e.Time), text)
	v.forget(c)
	v.settle(line, v.blockLines())
}

func (v *textView) closingLine(c *toolCall, status event.Status, took time.Duration, text string) string {
	after := ""
	if took > 0 {
		after = " in " + lasted(took)
	}
	if text != "" {
		text = ": " + text
	}
	if !v.live {
		return fmt.Sprintf("tool %s: %s%s%s", label(c), status, after, text)
	}
	mark := v.paint("✓", green)
	if status == event.Failed {
		mark = v.paint("✗", red)
	}
	return fmt.Sprintf("%s %s%s%s%s", mark, label(c), v.paint(argsOf(c), dim), v.paint(after, dim), text)
}

// label is the tool's name, with the call's id if the name would not do.
func label(c *toolCall) string {
	if c.shared {
		return oneLine(c.name, 60) + "[" + oneLine(c.id, 40) + "]"
	}
	return oneLine(c.name, 60)
}

func argsOf(c *toolCall) string {
	if c.args == "" || c.args == "{}" {
		return ""
	}
	return " " + oneLine(c.args, 60)
}

func (v *textView) redraw() { v.show(v.blockLines()) }

// blockLines are the lines of what is going on.
func (v *textView) blockLines() []string {
	var lines []string
	for _, c := range v.tools.open {
		line := fmt.Sprintf("%s %s %s", v.paint("▸", yellow), label(c), c.state)
		if d := v.now().Sub(c.since); d >= time.Second {
			line += " " + v.paint(d.Truncate(time.Second).String(), dim)
		}
		lines = append(lines, line+v.paint(argsOf(c), dim)) // last: a narrow terminal cuts it off
	}
	for _, id := range sorted(v.artifacts) {
		a := v.artifacts[id]
		lines = append(lines, fmt.Sprintf("%s %s %s", v.paint("+", yellow), oneLine(a.name, 80), size(a.bytes)))
	}
	return lines
}

func (v *textView) forget(c *toolCall) {
	delete(v.tools.byID, c.id)
	for i, other := range v.tools.open {
		if other == c {
			v.tools.open = append(v.tools.open[:i:i], v.tools.open[i+1:]...)
			return
		}
	}
}

// dropOpen forgets what a run left open: the log closes calls before the end,
// but an artifact may have been abandoned.
func (v *textView) dropOpen(runID string) {
	for _, c := range append([]*toolCall(nil), v.tools.open...) {
		if c.runID == runID {
			v.forget(c)
		}
	}
	clear(v.artifacts)
	v.redraw()
}
