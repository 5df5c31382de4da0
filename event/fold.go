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
	s.Seq, s.Book.Epoch = e.Seq, e.Epoch()
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
	s.abandon(e.RunID)
}

// abandon closes the artifacts of a run that nobody will go on writing.
func (s *Session) abandon(runID string) {
	for _, a := range s.Artifacts {
		if a.RunID == runID && a.Status == Writing {
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
	s.abandon(e.RunID)
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
