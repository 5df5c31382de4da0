package event

import (
	"fmt"
	"slices"
)

// Apply adds the next event to the fold. It refuses an event that is not the
// next one, and one whose data is not what its type says; the session is then
// as it was before, save for what data of a broken event had already changed.
// Types it does not know move only Seq.
func (s *Session) Apply(e Event) error {
	if e.Seq != s.Seq+1 {
		return fmt.Errorf("apply event %d of %s: the fold stands at %d", e.Seq, e.SessionID, s.Seq)
	}
	if fold, ok := folds[e.Type]; ok {
		if err := fold(s, e); err != nil {
			return fmt.Errorf("apply: %w", err)
		}
	}
	s.Seq = e.Seq
	s.remember(e.CommandID)
	return nil
}

// folds says for each type what it does; types that change nothing are absent.
var folds = map[Type]func(*Session, Event) error{
	SessionCreated:     on((*Session).created),
	SessionClaimed:     on((*Session).claimed),
	SessionReleased:    on((*Session).released),
	RunQueued:          on((*Session).runQueued),
	RunStarted:         on((*Session).runStarted),
	RunRecovered:       on((*Session).runRecovered),
	RunStatus:          on((*Session).runStatus),
	RunCompleted:       on((*Session).runCompleted),
	RunFailed:          on((*Session).runFailed),
	RunCancelled:       on((*Session).runCancelled),
	StepStarted:        on((*Session).stepStarted),
	StepCompleted:      on((*Session).stepCompleted),
	MessageStarted:     on((*Session).messageStarted),
	TextDelta:          on((*Session).textDelta),
	MessageCompleted:   on((*Session).messageCompleted),
	MessageDiscarded:   on((*Session).messageDiscarded),
	ReasoningStarted:   on((*Session).reasoningStarted),
	ReasoningDelta:     on((*Session).reasoningDelta),
	ReasoningCompleted: on((*Session).reasoningCompleted),
	ToolStarted:        on((*Session).toolStarted),
	ToolArgsDelta:      on((*Session).toolArgsDelta),
	ToolArgs:           on((*Session).toolArgs),
	ToolRunning:        on((*Session).toolRunning),
	ToolProgress:       on((*Session).toolProgress),
	ToolCompleted:      on((*Session).toolCompleted),
	ToolFailed:         on((*Session).toolFailed),
	ApprovalRequested:  on((*Session).approvalRequested),
	ApprovalResolved:   on((*Session).approvalResolved),
	ArtifactStarted:    on((*Session).artifactStarted),
	ArtifactProgress:   on((*Session).artifactProgress),
	ArtifactCompleted:  on((*Session).artifactCompleted),
	StateSnapshot:      on((*Session).stateSnapshot),
	StateDelta:         on((*Session).stateDelta),
	ActivitySnapshot:   on((*Session).activitySnapshot),
	ActivityDelta:      on((*Session).activityDelta),
	Custom:             on((*Session).custom),
	BudgetExceeded:     on((*Session).budgetExceeded),
	CommandIgnored:     on((*Session).commandIgnored),
}

// on decodes an event's data for the method that folds it.
func on[D any](fold func(*Session, Event, D)) func(*Session, Event) error {
	return func(s *Session, e Event) error {
		var d D
		if err := e.Into(&d); err != nil {
			return err
		}
		fold(s, e, d)
		return nil
	}
}

func (s *Session) remember(commandID string) {
	if commandID == "" || s.Knows(commandID) {
		return
	}
	s.Book.Commands = append(s.Book.Commands, commandID)
	if over := len(s.Book.Commands) - keptCommands; over > 0 {
		s.Book.Commands = slices.Delete(s.Book.Commands, 0, over)
	}
}

func (s *Session) created(e Event, d SessionCreatedData) {
	s.Agent, s.Metadata, s.CreatedAt = d.Agent, d.Metadata, e.Time
}

func (s *Session) claimed(e Event, d SessionClaimedData) {
	s.Book.Claim = &Claim{Worker: d.Worker, Attempt: d.Attempt, Seq: e.Seq}
	s.Book.Claims++
}

func (s *Session) released(_ Event, d SessionReleasedData) {
	if c := s.Book.Claim; c != nil {
		c.Released = true
	}
	s.progressed() // a worker that let go was not killed
}

func (s *Session) progressed() { s.Book.Claims = 0 }

func (s *Session) commandIgnored(_ Event, d CommandIgnoredData) { s.remember(d.CommandID) }

func (s *Session) runQueued(e Event, d RunQueuedData) {
	s.Book.Queue = append(s.Book.Queue, &Queued{RunID: e.RunID, TraceID: e.TraceID, RunQueuedData: d})
	s.run(e).Agent = d.Agent
	s.remember(d.CommandID)
}

// run finds or makes the entry of the event's run.
func (s *Session) run(e Event) *Run {
	r := s.runs[e.RunID]
	if r == nil {
		r = &Run{RunID: e.RunID, TraceID: e.TraceID, Agent: s.Agent, Status: Pending, Book: &RunBook{First: e.Seq}}
		s.Runs = append(s.Runs, r)
		s.runs[e.RunID] = r
	}
	return r
}

func (s *Session) runStarted(e Event, d RunStartedData) {
	r := s.run(e)
	at := e.Time
	r.StartedAt, r.Agent, r.Status = &at, d.Agent, Pending
	r.Book.Internal = e.Internal
	r.ParentRunID, r.ParentCallID, r.Resumes = d.ParentRunID, d.ParentCallID, d.Resumes
	r.Book.Attempt, r.Book.Config = d.Attempt, d.Config
	s.dequeue(e.RunID)
	s.remember(d.CommandID)
}

func (s *Session) dequeue(runID string) {
	s.Book.Queue = slices.DeleteFunc(s.Book.Queue, func(q *Queued) bool { return q.RunID == runID })
}

func (s *Session) runRecovered(e Event, d RunRecoveredData) {
	b := s.run(e).Book
	b.Attempt = d.Attempt
	if b.InStep && b.Answer == "" {
		b.lose()
	}
	for _, a := range s.Artifacts {
		if a.RunID == e.RunID && a.Status == Writing {
			a.Status = Abandoned
		}
	}
}

func (s *Session) runStatus(e Event, d RunStatusData) {
	r := s.run(e)
	r.Book.waits(e.Time, d.ExpiresAt != nil)
	r.Status, r.ExpiresAt = d.Status, d.ExpiresAt
	if d.Status == Running && r.Book.Exceeded != nil {
		s.raise(r, d.Raised)
	}
}

func (s *Session) budgetExceeded(e Event, d BudgetExceededData) { s.run(e).Book.Exceeded = &d }

// raise adds to the budget that had paused the run.
func (s *Session) raise(r *Run, by *Limits) {
	if by != nil && r.Book.Exceeded.Scope == ScopeSession {
		s.Book.Raised.add(*by)
	} else if by != nil {
		r.Book.Raised.add(*by)
	}
	r.Book.Exceeded = nil
}

func (s *Session) runCompleted(e Event, d RunCompletedData) {
	r := s.endRun(e, Completed, &d.Usage)
	r.FinishReason, r.Output = d.FinishReason, &d.Output
}

func (s *Session) runFailed(e Event, d RunFailedData) {
	s.endRun(e, Failed, d.Usage).Error = &RunError{Code: d.Code, Message: d.Message, Retryable: d.Retryable}
}

func (s *Session) runCancelled(e Event, d RunCancelledData) {
	r := s.endRun(e, Cancelled, d.Usage)
	r.By, r.Reason = d.By, d.Reason
}

func (s *Session) endRun(e Event, status Status, usage *Usage) *Run {
	r := s.run(e)
	at := e.Time
	r.Status, r.EndedAt, r.ExpiresAt = status, &at, nil
	r.Book.InStep, r.Book.Last, r.Book.Remote = false, e.Seq, nil
	if usage != nil {
		r.Usage = *usage
	}
	for _, a := range s.Artifacts {
		if a.RunID == e.RunID && a.Status == Writing {
			a.Status = Abandoned
		}
	}
	s.thoughtBy(e.RunID) // of a message that never began
	s.dequeue(e.RunID)
	s.progressed()
	return r
}

func (s *Session) stepStarted(e Event, d StepStartedData) {
	b := s.run(e).Book
	b.Step, b.InStep, b.Answer, b.Fallback, b.Reserved = d.Step, true, "", d.Fallback, d.Reserved
}

func (s *Session) stepCompleted(e Event, d StepCompletedData) {
	r := s.run(e)
	r.Book.InStep, r.Book.Finish, r.Book.Reserved = false, d.FinishReason, nil
	if r.Book.Answer == "" {
		r.Book.Vain++
	}
	if d.Fallback > 0 {
		r.Book.Fallback = d.Fallback
	}
	r.Usage.Add(d.Usage)
	r.Usage.Steps = d.Step
	s.progressed()
}

func (s *Session) messageStarted(e Event, d MessageStartedData) {
	m := s.message(e, d.MessageID, d.Role)
	m.Status = Streaming
	if r := s.runs[e.RunID]; r != nil {
		r.Book.said(d.MessageID)
	}
	m.Parts = append(m.Parts, s.thoughtBy(e.RunID)...)
}

func (s *Session) message(e Event, id string, role Role) *Message {
	m := s.messages[id]
	if m == nil {
		m = &Message{MessageID: id, RunID: e.RunID, Role: role, Parts: []*Part{}}
		s.Messages = append(s.Messages, m)
		s.messages[id] = m
	}
	return m
}

func (s *Session) textDelta(e Event, d TextDeltaData) {
	m := s.message(e, d.MessageID, RoleAssistant)
	if last := len(m.Parts) - 1; last < 0 || m.Parts[last].Type != PartText {
		m.Parts = append(m.Parts, &Part{Type: PartText, Internal: e.Internal})
	}
	p := m.Parts[len(m.Parts)-1]
	p.growing = append(p.growing, d.Delta...)
}

func (s *Session) messageCompleted(e Event, d MessageCompletedData) {
	m := s.message(e, d.MessageID, d.Role)
	m.Status = Completed
	if r := s.runs[e.RunID]; r != nil && d.Role == RoleAssistant && r.Book.InStep {
		r.Book.Answer = d.MessageID
	}
	m.Parts = make([]*Part, len(d.Parts))
	for i := range d.Parts {
		m.Parts[i] = &d.Parts[i]
	}
}

// countedElsewhere: by run.recovered, or by its step.
func countedElsewhere(reason string) bool {
	return reason == TakenOver || reason == HandedOver || reason == string(CodeBudget)
}

// messageDiscarded takes back an abandoned attempt of the model: its text, its
// reasoning and its tool calls, none of which ran here.
func (s *Session) messageDiscarded(e Event, d MessageDiscardedData) {
	if r := s.runs[e.RunID]; r != nil {
		r.Book.tookBack(d.MessageID)
		if !countedElsewhere(d.Reason) {
			r.Book.lose()
		}
	}
	s.thoughtBy(e.RunID)
	s.Messages = slices.DeleteFunc(s.Messages, func(m *Message) bool { return m.MessageID == d.MessageID })
	s.ToolCalls = slices.DeleteFunc(s.ToolCalls, func(c *ToolCall) bool {
		if c.MessageID == d.MessageID {
			delete(s.calls, c.CallID)
			return true
		}
		return false
	})
	delete(s.messages, d.MessageID)
}

func (s *Session) reasoningStarted(e Event, d ReasoningStartedData) {
	p := &Part{Type: PartReasoning, ReasoningID: d.ReasoningID, Internal: e.Internal, Streaming: true}
	if m := s.streaming(); m != nil {
		m.Parts = append(m.Parts, p)
		return
	}
	s.Book.Thinking = e.RunID
	s.Book.Reasoning = append(s.Book.Reasoning, p)
}

// Thinks reports that the reasoning of a message that has not begun is a run's.
// Runs that go on side by side speak one at a time.
func (s *Session) Thinks(runID string) bool {
	return s.Book.Thinking == runID || s.Book.Thinking == ""
}

// thoughtBy takes the reasoning out of the book if it is the run's.
func (s *Session) thoughtBy(runID string) []*Part {
	if !s.Thinks(runID) {
		return nil
	}
	parts := s.Book.Reasoning
	s.Book.Reasoning, s.Book.Thinking = nil, ""
	return parts
}

// streaming is the message that the model is writing, if one is open.
func (s *Session) streaming() *Message {
	if n := len(s.Messages); n > 0 && s.Messages[n-1].Status == Streaming {
		return s.Messages[n-1]
	}
	return nil
}

func (s *Session) reasoningPart(id string) *Part {
	parts := s.Book.Reasoning
	if m := s.streaming(); m != nil {
		parts = m.Parts
	}
	for _, p := range parts {
		if p.ReasoningID == id {
			return p
		}
	}
	return nil
}

func (s *Session) reasoningDelta(_ Event, d ReasoningDeltaData) {
	if p := s.reasoningPart(d.ReasoningID); p != nil {
		p.growing = append(p.growing, d.Delta...)
	}
}

func (s *Session) reasoningCompleted(_ Event, d ReasoningCompletedData) {
	if p := s.reasoningPart(d.ReasoningID); p != nil {
		p.Text, p.Signature, p.Streaming, p.growing = d.Text, d.Signature, false, nil
	}
}

func (s *Session) toolStarted(e Event, d ToolStartedData) {
	if s.calls[d.CallID] != nil {
		return
	}
	c := &ToolCall{CallID: d.CallID, RunID: e.RunID, MessageID: d.MessageID, Name: d.Name,
		Executor: d.Executor, Status: Pending, Internal: e.Internal, Streaming: true}
	s.ToolCalls = append(s.ToolCalls, c)
	s.calls[d.CallID] = c
	if m := s.messages[d.MessageID]; m != nil && m.Status == Streaming {
		m.Parts = append(m.Parts, &Part{Type: PartToolCall, CallID: d.CallID, Internal: e.Internal})
	}
}

func (s *Session) toolArgsDelta(_ Event, d ToolArgsDeltaData) {
	if c := s.calls[d.CallID]; c != nil && c.Streaming {
		c.growing = append(c.growing, d.Delta...)
	}
}

func (s *Session) toolArgs(_ Event, d ToolArgsData) {
	if c := s.calls[d.CallID]; c != nil {
		c.Args, c.Redacted, c.Streaming, c.growing = d.Args, d.Redacted, false, nil
	}
}

func (s *Session) toolRunning(_ Event, d ToolRunningData) {
	if c := s.calls[d.CallID]; c != nil {
		c.Status, c.Attempt = Running, d.Attempt
	}
}

func (s *Session) toolProgress(_ Event, d ToolProgressData) {
	if c := s.calls[d.CallID]; c != nil {
		c.Progress = &d.Progress
	}
}

// toolClosed finds the call that a closer closes; closers carry enough to stand
// alone.
func (s *Session) toolClosed(e Event, id, name, args string) *ToolCall {
	c := s.calls[id]
	if c == nil {
		c = &ToolCall{CallID: id, RunID: e.RunID, Name: name, Executor: ByWorker, Internal: e.Internal}
		s.ToolCalls = append(s.ToolCalls, c)
		s.calls[id] = c
	}
	c.Args, c.Streaming, c.growing = args, false, nil
	if r := s.runs[c.RunID]; r != nil && c.Executor == ByWorker {
		r.Usage.ToolCalls++
	}
	if c.Executor != ByRemote { // whose results are taken back if it is asked anew
		s.progressed()
	}
	return c
}

func (s *Session) toolCompleted(e Event, d ToolCompletedData) {
	c := s.toolClosed(e, d.CallID, d.Name, d.Args)
	c.Status = Completed
	c.Content, c.Structured, c.Truncated, c.Artifact = d.Content, d.Structured, d.Truncated, d.Artifact
	s.dropApproval(d.CallID)
}

func (s *Session) toolFailed(e Event, d ToolFailedData) {
	c := s.toolClosed(e, d.CallID, d.Name, d.Args)
	c.Status, c.Code, c.Message, c.Outcome = Failed, d.Code, d.Message, d.Outcome
	c.Content, c.Truncated, c.Artifact = d.Content, d.Truncated, d.Artifact
	s.dropApproval(d.CallID)
}

func (s *Session) approvalRequested(e Event, d ApprovalRequestedData) {
	s.Approvals = append(s.Approvals, &Approval{RunID: e.RunID, ApprovalRequestedData: d})
	if c := s.calls[d.CallID]; c != nil {
		c.Status, c.Decision = WaitingApproval, nil // a new question
	}
}

func (s *Session) approvalResolved(_ Event, d ApprovalResolvedData) {
	s.dropApproval(d.CallID)
	c := s.calls[d.CallID]
	if c == nil || c.Decision != nil {
		return // the first decision stands
	}
	c.Decision = &Decided{d.Decision, d.By, d.Reason}
	if c.Status == WaitingApproval {
		c.Status = Pending
	}
}

func (s *Session) dropApproval(callID string) {
	s.Approvals = slices.DeleteFunc(s.Approvals, func(a *Approval) bool { return a.CallID == callID })
}

func (s *Session) artifactStarted(e Event, d ArtifactStartedData) {
	a := s.artifact(e, d.ArtifactID)
	a.CallID, a.Name, a.MediaType, a.Status = d.CallID, d.Name, d.MediaType, Writing
}

func (s *Session) artifact(e Event, id string) *Artifact {
	a := s.artifacts[id]
	if a == nil {
		a = &Artifact{ArtifactID: id, RunID: e.RunID, Internal: e.Internal}
		s.Artifacts = append(s.Artifacts, a)
		s.artifacts[id] = a
	}
	return a
}

func (s *Session) artifactProgress(e Event, d ArtifactProgressData) {
	s.artifact(e, d.ArtifactID).Bytes = d.Bytes
}

func (s *Session) artifactCompleted(e Event, d ArtifactCompletedData) {
	a := s.artifact(e, d.ArtifactID)
	a.CallID, a.Name, a.MediaType, a.Bytes = d.CallID, d.Name, d.MediaType, d.Bytes
	a.SHA256, a.URL, a.Status = d.SHA256, d.URL, Completed
}

func (s *Session) stateSnapshot(_ Event, d StateSnapshotData) { s.State = d.State }

// A patch that does not fit leaves the state as it is: the next snapshot mends it.
func (s *Session) stateDelta(_ Event, d StateDeltaData) {
	if next, err := Patch(s.State, d.Patch); err == nil {
		s.State = next
	}
}

func (s *Session) activitySnapshot(e Event, d ActivityData) {
	for _, a := range s.Activities {
		if a.ActivityID == d.ActivityID {
			a.ActivityData = d
			return
		}
	}
	s.Activities = append(s.Activities, &Activity{ActivityData: d, Internal: e.Internal})
}

func (s *Session) activityDelta(_ Event, d ActivityDeltaData) {
	for _, a := range s.Activities {
		if a.ActivityID == d.ActivityID {
			if next, err := Patch(a.Content, d.Patch); err == nil {
				a.Content = next
			}
		}
	}
}
