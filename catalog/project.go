package catalog

import (
	"cmp"
	"encoding/json"

	"github.com/runlog-dev/runlog/event"
)

// The projection is pure: a page holds the rows that a batch touches, apply
// changes them as event.Session's fold would, and what is dirty afterwards is
// written back. A session's row says up to which seq its events are in, so that
// an event that comes again, alone or in another batch, changes nothing.

// fact is an event with what the projection reads of its data, whatever the
// type: a member's name means the same in all types that are projected.
type fact struct {
	event.Event
	tenant string
	broken error // the data is not what its type says
	data   struct {
		Agent        string             `json:"agent"`
		Metadata     json.RawMessage    `json:"metadata"`
		Attempt      int                `json:"attempt"`
		ParentRunID  string             `json:"parent_run_id"`
		ParentCallID string             `json:"parent_call_id"`
		Status       event.Status       `json:"status"`
		FinishReason event.FinishReason `json:"finish_reason"`
		Output       event.RunOutput    `json:"output"`
		Usage        *event.Usage       `json:"usage"`
		Step         int                `json:"step"`
		Code         event.Code         `json:"code"`
		Message      string             `json:"message"`
		Retryable    bool               `json:"retryable"`
		By           string             `json:"by"`
		Reason       string             `json:"reason"`
		CallID       string             `json:"call_id"`
		MessageID    string             `json:"message_id"`
		Name         string             `json:"name"`
		Executor     event.Executor     `json:"executor"`
		Outcome      event.Outcome      `json:"outcome"`
		Truncated    bool               `json:"truncated"`
		Artifact     *event.Part        `json:"artifact"`
		ArtifactID   string             `json:"artifact_id"`
		MediaType    string             `json:"media_type"`
		Bytes        int64              `json:"bytes"`
		SHA256       string             `json:"sha256"`
		URL          string             `json:"url"`
	}
}

func newFact(tenant string, e event.Event) *fact {
	f := &fact{Event: e, tenant: ident(tenant)}
	f.broken = e.Into(&f.data)
	f.SessionID, f.RunID, f.TraceID = ident(f.SessionID), ident(f.RunID), ident(f.TraceID)
	d := &f.data
	for _, id := range []*string{&d.ParentRunID, &d.ParentCallID, &d.CallID, &d.MessageID, &d.ArtifactID, &d.Output.MessageID} {
		*id = ident(*id)
	}
	return f
}

// A place is the key of a row.
type place struct{ tenant, session, id string }

func (f *fact) session() place { return place{f.tenant, f.SessionID, ""} }

func (f *fact) at(id string) place { return place{f.tenant, f.SessionID, id} }

// page is a part of the projection in memory. Rows that a batch touches have
// been loaded, if they exist.
type page struct {
	sessions  map[place]*sessionRow
	runs      map[place]*runRow
	calls     map[place]*callRow
	artifacts map[place]*artifactRow

	dirty   map[place]bool // sessions
	dropped map[place]bool // calls
}

func newPage() *page {
	return &page{
		sessions: map[place]*sessionRow{}, runs: map[place]*runRow{},
		calls: map[place]*callRow{}, artifacts: map[place]*artifactRow{},
		dirty: map[place]bool{}, dropped: map[place]bool{},
	}
}

// projections says for each type what it does; other types are not projected.
var projections = map[event.Type]func(*page, *fact){
	event.SessionCreated:    (*page).sessionCreated,
	event.RunQueued:         (*page).runQueued,
	event.RunStarted:        (*page).runStarted,
	event.RunRecovered:      (*page).runRecovered,
	event.RunStatus:         (*page).runStatus,
	event.RunCompleted:      (*page).runCompleted,
	event.RunFailed:         (*page).runFailed,
	event.RunCancelled:      (*page).runCancelled,
	event.StepCompleted:     (*page).stepCompleted,
	event.MessageDiscarded:  (*page).messageDiscarded,
	event.ToolStarted:       (*page).toolStarted,
	event.ToolRunning:       (*page).toolRunning,
	event.ToolCompleted:     (*page).toolCompleted,
	event.ToolFailed:        (*page).toolFailed,
	event.ApprovalRequested: (*page).approvalRequested,
	event.ApprovalResolved:  (*page).approvalResolved,
	event.ArtifactStarted:   (*page).artifactStarted,
	event.ArtifactCompleted: (*page).artifactCompleted,
}

// Projects reports whether events of this type change anything here. Others may
// be left out of what Apply and ApplyAt are given.
func Projects(t event.Type) bool { return projections[t] != nil }

// apply reports false for an event whose data cannot be used; it counts as
// seen, so that it is passed over once and for all.
func (p *page) apply(f *fact) bool {
	s := p.sessions[f.session()]
	if s == nil {
		s = &sessionRow{tenant: f.tenant, Session: Session{SessionID: f.SessionID, CreatedAt: f.Time}}
		p.sessions[f.session()] = s
	}
	if f.Seq <= s.Seq {
		return true
	}
	s.Seq, s.UpdatedAt = f.Seq, f.Time
	p.dirty[f.session()] = true
	if f.broken != nil {
		return false
	}
	projections[f.Type](p, f)
	return true
}

func (p *page) sessionCreated(f *fact) {
	s := p.sessions[f.session()]
	s.Agent, s.metadata, s.CreatedAt = label(f.data.Agent), cleanJSON(f.data.Metadata), f.Time
}

// run finds or makes the row of the event's run.
func (p *page) run(f *fact) *runRow {
	r := p.runs[f.at(f.RunID)]
	if r == nil {
		r = &runRow{tenant: f.tenant, Run: Run{SessionID: f.SessionID, CreatedAt: f.Time}}
		r.RunID, r.TraceID, r.Status = f.RunID, f.TraceID, event.Pending
		r.Agent = p.sessions[f.session()].Agent
		p.runs[f.at(f.RunID)] = r
	}
	r.Seq = f.Seq
	return r
}

func (p *page) runQueued(f *fact) { p.run(f).Agent = label(f.data.Agent) }

func (p *page) runStarted(f *fact) {
	r, at := p.run(f), f.Time
	r.StartedAt, r.Agent, r.Status = &at, label(f.data.Agent), event.Pending
	r.ParentRunID, r.ParentCallID = f.data.ParentRunID, f.data.ParentCallID
}

func (p *page) runRecovered(f *fact) {
	p.run(f)
	p.abandon(f)
}

// abandon closes the artifacts that nobody will go on writing.
func (p *page) abandon(f *fact) {
	for at, a := range p.artifacts {
		if at.tenant == f.tenant && at.session == f.SessionID && a.RunID == f.RunID && a.Status == event.Writing {
			a.Status, a.Seq = event.Abandoned, f.Seq
		}
	}
}

func (p *page) runStatus(f *fact) { p.run(f).Status = event.Status(label(string(f.data.Status))) }

func (p *page) runCompleted(f *fact) {
	r := p.endRun(f, event.Completed)
	r.FinishReason = event.FinishReason(label(string(f.data.FinishReason)))
	r.output = f.data.Output
}

func (p *page) runFailed(f *fact) {
	d := f.data
	p.endRun(f, event.Failed).failure = event.RunError{
		Code: event.Code(label(string(d.Code))), Message: message(d.Message), Retryable: d.Retryable}
}

func (p *page) runCancelled(f *fact) {
	r := p.endRun(f, event.Cancelled)
	r.By, r.Reason = label(f.data.By), message(f.data.Reason)
}

func (p *page) endRun(f *fact, status event.Status) *runRow {
	r, at := p.run(f), f.Time
	r.Status, r.EndedAt = status, &at
	if f.data.Usage != nil {
		r.Usage = *f.data.Usage
	}
	p.abandon(f)
	return r
}

func (p *page) stepCompleted(f *fact) {
	r := p.run(f)
	if f.data.Usage != nil {
		r.Usage.Add(*f.data.Usage)
	}
	r.Usage.Steps = f.data.Step
}

func (p *page) messageDiscarded(f *fact) {
	for at, c := range p.calls {
		if at.tenant == f.tenant && at.session == f.SessionID && c.MessageID == f.data.MessageID {
			delete(p.calls, at)
			p.dropped[at] = true
		}
	}
}

func (p *page) toolStarted(f *fact) {
	if p.calls[f.at(f.data.CallID)] != nil {
		return
	}
	c := p.newCall(f)
	c.MessageID, c.Executor = f.data.MessageID, event.Executor(label(string(f.data.Executor)))
}

func (p *page) newCall(f *fact) *callRow {
	c := &callRow{tenant: f.tenant, opened: f.Seq, ToolCall: ToolCall{
		CallID: f.data.CallID, SessionID: f.SessionID, RunID: f.RunID, Seq: f.Seq, Name: label(f.data.Name),
		Executor: event.ByWorker, Status: event.Pending, Internal: f.Internal, CreatedAt: f.Time}}
	p.calls[f.at(c.CallID)] = c
	return c
}

// call returns the event's call, or nil.
func (p *page) call(f *fact) *callRow { return p.calls[f.at(f.data.CallID)] }

func (p *page) toolRunning(f *fact) {
	if c := p.call(f); c != nil {
		at := f.Time
		c.Seq, c.Status, c.Attempt, c.StartedAt = f.Seq, event.Running, f.data.Attempt, &at
	}
}

func (p *page) toolCompleted(f *fact) { p.closeCall(f, event.Completed) }

func (p *page) toolFailed(f *fact) {
	c, d := p.closeCall(f, event.Failed), f.data
	c.Code, c.Message, c.Outcome = event.Code(label(string(d.Code))), message(d.Message), event.Outcome(label(string(d.Outcome)))
}

// closeCall also makes the row of a call whose beginning was discarded.
func (p *page) closeCall(f *fact, status event.Status) *callRow {
	c, at := p.call(f), f.Time
	if c == nil {
		c = p.newCall(f)
	}
	c.Seq, c.Status, c.EndedAt, c.Truncated, c.ArtifactID = f.Seq, status, &at, f.data.Truncated, ""
	if f.data.Artifact != nil {
		c.ArtifactID = ident(f.data.Artifact.ArtifactID)
	}
	if r := p.runs[f.at(c.RunID)]; r != nil && c.Executor == event.ByWorker {
		r.Usage.ToolCalls++
		r.Seq = f.Seq
	}
	return c
}

func (p *page) approvalRequested(f *fact) { p.setCall(f, event.WaitingApproval) }

func (p *page) approvalResolved(f *fact) {
	if c := p.call(f); c != nil && c.Status == event.WaitingApproval {
		p.setCall(f, event.Pending)
	}
}

func (p *page) setCall(f *fact, status event.Status) {
	if c := p.call(f); c != nil {
		c.Seq, c.Status = f.Seq, status
	}
}

// artifact finds or makes the row of the event's artifact.
func (p *page) artifact(f *fact) *artifactRow {
	a := p.artifacts[f.at(f.data.ArtifactID)]
	if a == nil {
		a = &artifactRow{tenant: f.tenant, opened: f.Seq, Artifact: Artifact{SessionID: f.SessionID, CreatedAt: f.Time}}
		a.ArtifactID, a.RunID, a.Internal = f.data.ArtifactID, f.RunID, f.Internal
		p.artifacts[f.at(a.ArtifactID)] = a
	}
	a.Seq = f.Seq
	a.CallID, a.Name, a.MediaType = f.data.CallID, message(f.data.Name), label(f.data.MediaType)
	return a
}

func (p *page) artifactStarted(f *fact) { p.artifact(f).Status = event.Writing }

func (p *page) artifactCompleted(f *fact) {
	a, at := p.artifact(f), f.Time
	a.Bytes, a.SHA256, a.URL = f.data.Bytes, label(f.data.SHA256), message(f.data.URL)
	a.Status, a.EndedAt = event.Completed, &at
}

// compare orders places, so that transactions lock rows in one order.
func (a place) compare(b place) int {
	return cmp.Or(cmp.Compare(a.tenant, b.tenant), cmp.Compare(a.session, b.session), cmp.Compare(a.id, b.id))
}
