package terminal

import (
	"fmt"
	"io"
	"strings"
	"time"

	runlog "github.com/runlog-dev/runlog/clients/go"
	"github.com/runlog-dev/runlog/event"
)

// A textView is the view of people.
type textView struct {
	*screen
	err     io.Writer
	now     func() time.Time
	resolve func(string) string // makes an absolute URL
	users   bool                // show what the user said, and where runs begin

	said      map[string]*said // messages and reasonings by id
	speaking  string           // id of the text that goes on in mid-line
	tools     tools
	artifacts map[string]*writing
	started   map[string]event.Time // runs
	unattend  bool                  // the last heartbeat said so
}

// said is what of a text has been shown.
type said struct {
	text    strings.Builder
	begun   bool // its opener was seen, so nothing of it is missing
	thought bool // reasoning
}

// writing is an artifact that grows.
type writing struct {
	name  string
	bytes int64
}

func (env Env) textView(c *runlog.Client, users bool) *textView {
	color := env.Terminal && env.Getenv("NO_COLOR") == ""
	s := &screen{out: env.Stdout, live: env.Terminal, color: color}
	return &textView{
		screen: s, err: env.Stderr, now: env.Now, resolve: c.Resolve, users: users,
		said: map[string]*said{}, artifacts: map[string]*writing{}, started: map[string]event.Time{},
		tools: tools{byID: map[string]*toolCall{}},
	}
}

func (v *textView) tick() { v.refresh(v.blockLines()) }

func (v *textView) note(line string) { v.screen.note(v.err, line) }

func (v *textView) leave(id string) {
	v.show(nil)
	v.note("the run goes on; come back with: runlog attach " + id)
}

// event shows one event. Data that is not what its type says shows nothing: the
// viewer is no judge of the log.
func (v *textView) event(e event.Event) {
	if show, ok := shows[e.Type]; ok {
		show(v, e)
	}
}

var shows = map[event.Type]func(*textView, event.Event){
	event.RunStarted:         on((*textView).runStarted),
	event.RunQueued:          on((*textView).runQueued),
	event.RunRecovered:       on((*textView).runRecovered),
	event.RunStatus:          on((*textView).runStatus),
	event.RunCompleted:       on((*textView).runCompleted),
	event.RunFailed:          on((*textView).runFailed),
	event.RunCancelled:       on((*textView).runCancelled),
	event.MessageStarted:     on((*textView).messageStarted),
	event.TextDelta:          on((*textView).textDelta),
	event.MessageCompleted:   on((*textView).messageCompleted),
	event.MessageDiscarded:   on((*textView).messageDiscarded),
	event.ReasoningStarted:   on((*textView).reasoningStarted),
	event.ReasoningDelta:     on((*textView).reasoningDelta),
	event.ReasoningCompleted: on((*textView).reasoningCompleted),
	event.ToolStarted:        on((*textView).toolStarted),
	event.ToolArgs:           on((*textView).toolArgs),
	event.ToolRunning:        on((*textView).toolRunning),
	event.ToolProgress:       on((*textView).toolProgress),
	event.ToolCompleted:      on((*textView).toolCompleted),
	event.ToolFailed:         on((*textView).toolFailed),
	event.ApprovalRequested:  on((*textView).approvalRequested),
	event.ApprovalResolved:   on((*textView).approvalResolved),
	event.ArtifactStarted:    on((*textView).artifactStarted),
	event.ArtifactProgress:   on((*textView).artifactProgress),
	event.ArtifactCompleted:  on((*textView).artifactCompleted),
	event.BudgetExceeded:     on((*textView).budgetExceeded),
	runlog.Heartbeat:         on((*textView).heartbeat),
	runlog.Snapshot:          on((*textView).snapshot),
	runlog.Reset:             on((*textView).reset),
}

// on decodes an event's data for the method that shows it.
func on[D any](show func(*textView, event.Event, D)) func(*textView, event.Event) {
	return func(v *textView, e event.Event) {
		var d D
		if e.Into(&d) == nil {
			show(v, e, d)
		}
	}
}

func (v *textView) utterance(id string) *said {
	s := v.said[id]
	if s == nil {
		s = &said{}
		v.said[id] = s
	}
	return s
}

// speak shows a piece of a text. Another text than the last one begins a line.
func (v *textView) speak(id, text string) {
	if text == "" {
		return
	}
	s := v.utterance(id)
	if v.speaking != id {
		v.endLine()
		v.speaking = id
	}
	s.text.WriteString(text)
	if !s.thought {
		v.text(text, plain)
		return
	}
	v.text(v.marked(text), dim)
}

// marked sets reasoning off where it cannot be dimmed.
func (v *textView) marked(text string) string {
	if v.color {
		return text
	}
	body, end := strings.TrimSuffix(text, "\n"), strings.HasSuffix(text, "\n")
	body = strings.ReplaceAll(body, "\n", "\n~ ")
	if !v.midLine() {
		body = "~ " + body
	}
	if end {
		body += "\n"
	}
	return body
}

// finish shows what the deltas left out: a viewer that came late has missed
// some, and gets the rest only if it is sure where it belongs.
func (v *textView) finish(id, full string) {
	s := v.utterance(id)
	shown := s.text.String()
	if rest, ok := strings.CutPrefix(full, shown); ok && (s.begun || shown == "") {
		v.speak(id, rest)
	}
	if v.speaking == id {
		v.endLine()
		v.speaking = ""
	}
	delete(v.said, id)
}

func (v *textView) messageStarted(_ event.Event, d event.MessageStartedData) {
	v.utterance(d.MessageID).begun = true
}

func (v *textView) textDelta(_ event.Event, d event.TextDeltaData) { v.speak(d.MessageID, d.Delta) }

func (v *textView) messageCompleted(_ event.Event, d event.MessageCompletedData) {
	if d.Role == event.RoleAssistant {
		v.finish(d.MessageID, event.TextOf(d.Parts))
	} else if v.users {
		v.userMessage(d.Role, event.TextOf(d.Parts))
	}
}

func (v *textView) userMessage(role event.Role, text string) {
	prefix := "> "
	if role != event.RoleUser {
		prefix = string(role) + "> "
	}
	for line := range strings.Lines(strings.TrimSpace(text)) {
		v.line(v.paint(prefix+printable(strings.TrimRight(line, "\n")), bold))
	}
}

func (v *textView) messageDiscarded(_ event.Event, d event.MessageDiscardedData) {
	if s := v.said[d.MessageID]; s == nil || s.text.Len() == 0 {
		return
	}
	delete(v.said, d.MessageID)
	v.remark("the text above was dropped: " + d.Reason)
}

func (v *textView) reasoningStarted(_ event.Event, d event.ReasoningStartedData) {
	s := v.utterance(d.ReasoningID)
	s.begun, s.thought = true, true
}

func (v *textView) reasoningDelta(_ event.Event, d event.ReasoningDeltaData) {
	v.utterance(d.ReasoningID).thought = true
	v.speak(d.ReasoningID, d.Delta)
}

func (v *textView) reasoningCompleted(_ event.Event, d event.ReasoningCompletedData) {
	v.utterance(d.ReasoningID).thought = true
	v.finish(d.ReasoningID, d.Text)
}

// remark is a line about the run, set off from what the agent says.
func (v *textView) remark(text string) {
	v.speaking = ""
	v.line(v.paint("["+oneLine(text, 300)+"]", dim))
}

// heartbeat tells once when nobody works on the run, and once when it is over.
func (v *textView) heartbeat(_ event.Event, d struct{ Status string }) {
	unattended := d.Status == "unattended"
	if unattended == v.unattend {
		return
	}
	v.unattend = unattended
	if unattended {
		v.remark("no worker is on this run; another one will take it over")
	} else {
		v.remark("a worker is on the run again")
	}
}

func (v *textView) budgetExceeded(_ event.Event, d event.BudgetExceededData) {
	v.remark(fmt.Sprintf("limit of %s reached: %g of %g", d.Kind, d.Used, d.Limit))
}
