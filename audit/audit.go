// Package audit checks what runlog promises of its logs: it reads whole logs and
// says where one breaks a promise. The checks are pure and go forward, frame by
// frame; an Auditor feeds them from an installation and looks at what belongs to
// a log besides: inbox, tickets, snapshot, the runs index.
//
// A log that is being written is as good as one that has ended: whatever prefix
// of frames is read, a sound log gives no finding.
package audit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// A Finding is one place where a log is not what it has to be.
type Finding struct {
	Tenant  string    `json:"tenant,omitempty"`
	Session string    `json:"session_id,omitempty"`
	Seq     event.Seq `json:"seq,omitempty"` // of the event at which it shows; 0: the log as a whole
	RunID   string    `json:"run_id,omitempty"`
	Rule    Rule      `json:"rule"`
	Detail  string    `json:"detail"`
}

func (f Finding) String() string {
	where := strings.Trim(f.Tenant+"/"+f.Session, "/")
	if f.Seq > 0 {
		where += fmt.Sprintf(" event %d", f.Seq)
	}
	if f.RunID != "" {
		where += " run " + f.RunID
	}
	return fmt.Sprintf("%s: %s: %s", where, f.Rule, f.Detail)
}

// maxFindings bounds what is told of one session: a broken log breaks every rule.
const maxFindings = 100

// A Checker follows one session's log from its first frame. It has no clock and
// does no I/O. It is not safe for concurrent use.
type Checker struct {
	key      eventlog.Key
	findings []Finding
	rest     int // findings beyond maxFindings

	fold   *event.Session
	broken bool      // the fold refused an event: nothing after it is folded
	next   event.Seq // the event that has to come
	at     event.Event

	chain   chain
	owner   owner
	runs    map[string]*run
	current *run // that started last and is no sub-agent's
	calls   map[string]*call
	texts   map[string]*message
	files   map[string]*file
	acts    map[string]bool
	taken   map[string]bool // what answered which command

	snapshot *event.Session             // see Snapshot
	samples  int                        // prefixes that were built into requests
	request  func(*event.Session) error // builds requests of a prefix and says what is wrong with them
}

// NewChecker returns the checker of a session's log, at its beginning.
func NewChecker(k eventlog.Key) *Checker {
	return &Checker{
		key: k, fold: event.NewSession(k.Session), next: 1,
		runs: map[string]*run{}, calls: map[string]*call{}, texts: map[string]*message{},
		files: map[string]*file{}, acts: map[string]bool{}, taken: map[string]bool{}, request: requests,
	}
}

// Event takes the next event of the log.
func (c *Checker) Event(e event.Event) {
	c.at = e
	c.dense(e)
	c.session(e)
	if c.run(e) {
		c.step(e)
		c.answer(e)
		c.tool(e)
		c.produce(e)
	}
	c.command(e)
	c.apply(e)
	c.sample(e)
}

// Findings are those so far, with what is wrong if the log ends here. The
// checker can go on afterwards.
func (c *Checker) Findings() []Finding {
	all := slices.Clone(c.findings)
	end := &Checker{key: c.key, findings: all, rest: c.rest}
	c.end(end)
	if end.rest > 0 {
		end.findings = append(end.findings, Finding{Tenant: c.key.Tenant, Session: c.key.Session, Rule: More, Detail: fmt.Sprintf("%d more findings are left out", end.rest)})
	}
	return end.findings
}

// Session is the fold of what was read. It stops where an event does not fold.
func (c *Checker) Session() *event.Session { return c.fold }

// Seq is the last event that was read.
func (c *Checker) Seq() event.Seq { return c.next - 1 }

// Snapshot gives the session's stored fold, which is compared with the checker's
// own when that comes to the same event. Give it before the first frame.
func (c *Checker) Snapshot(s *event.Session) { c.snapshot = s }

// wrong notes a finding at the present event.
func (c *Checker) wrong(rule Rule, format string, args ...any) {
	c.find(Finding{Seq: c.at.Seq, RunID: c.at.RunID, Rule: rule, Detail: string(c.at.Type) + ": " + fmt.Sprintf(format, args...)})
}

func (c *Checker) find(f Finding) {
	if len(c.findings) >= maxFindings {
		c.rest++
		return
	}
	f.Tenant, f.Session = c.key.Tenant, c.key.Session
	c.findings = append(c.findings, f)
}

// data decodes the present event; false and a finding if it is not what its type
// says.
func data[D any](c *Checker, e event.Event) (D, bool) {
	var d D
	if err := e.Into(&d); err != nil {
		c.wrong(EventForm, "%v", err)
		return d, false
	}
	return d, true
}

// dense holds seq, id and session of every event.
func (c *Checker) dense(e event.Event) {
	if err := e.Validate(); err != nil {
		c.wrong(EventForm, "%v", err)
	}
	if e.Seq != c.next {
		c.wrong(SeqDense, "follows event %d", c.next-1)
		c.broken = c.broken || e.Seq != c.fold.Seq+1
	}
	if want := event.NameIn(c.key.Session, e.Seq, e.Epoch()); e.ID != want || e.SessionID != c.key.Session {
		c.wrong(SeqDense, "has id %q in session %q", e.ID, e.SessionID)
	}
	if before := c.fold.Book.Epoch; e.Epoch() < before {
		c.wrong(SeqDense, "has id %q behind one of epoch %s: a process that began before the log was restored has written it", e.ID, before)
	}
	if e.Time.IsZero() {
		c.wrong(EventForm, "has no time")
	}
	c.next = e.Seq + 1
}

// apply folds the event, and compares the fold with the stored one.
func (c *Checker) apply(e event.Event) {
	if c.broken {
		return
	}
	if err := c.fold.Apply(e); err != nil {
		c.wrong(FoldFails, "%v", err)
		c.broken = true
		return
	}
	if s := c.snapshot; s != nil && s.Seq == e.Seq {
		if got, want := string(s.Encode()), string(c.fold.Encode()); got != want {
			c.wrong(SnapshotFold, "the stored snapshot differs from the fold: %s", difference(got, want))
		}
	}
}

// difference shows where two texts part.
func difference(got, want string) string {
	i := 0
	for i < len(got) && i < len(want) && got[i] == want[i] {
		i++
	}
	cut := func(s string) string { return s[max(0, min(len(s), i-20)):min(len(s), i+60)] }
	return fmt.Sprintf("…%s… is not …%s…", cut(got), cut(want))
}

// command notes which commands were answered, so that none is twice.
func (c *Checker) command(e event.Event) {
	id := e.CommandID
	switch e.Type {
	case event.RunStarted:
		if d, ok := data[event.RunStartedData](c, e); ok {
			id = d.CommandID
		}
	case event.CommandIgnored:
		if d, ok := data[event.CommandIgnoredData](c, e); ok {
			id = d.CommandID
		}
	case event.ApprovalResolved, event.RunCancelled:
	default:
		return
	}
	if id == "" {
		return
	}
	key := string(e.Type) + " " + id
	if c.taken[key] {
		c.wrong(CommandOnce, "command %s was answered before", id)
	}
	c.taken[key] = true
}

// end notes in out what must not be so at the end of a log.
func (c *Checker) end(out *Checker) {
	if s := c.snapshot; s != nil && s.Seq >= c.next {
		out.find(Finding{Rule: SnapshotFold, Detail: fmt.Sprintf("the stored snapshot is at %d, the log ends at %d", s.Seq, c.next-1)})
	}
	if !c.broken && c.fold.Seq > 0 {
		c.owner.end(out)
	}
}
