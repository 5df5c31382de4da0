package dialect

import "github.com/runlog-dev/runlog/event"

// Retell tells a run anew from a fold: events that an Encoder can be given in the
// place of those that are no longer kept, or that led to nothing. All have the
// fold's seq; deltas hold whole texts, and each message is a step.
func Retell(s *event.Session, run *event.Run) []event.Event {
	r := &retold{s: s.Public(), run: run, whole: s}
	r.add(event.RunStarted, event.RunStartedData{Agent: run.Agent, Attempt: 1, Resumes: run.Resumes})
	for _, m := range r.s.Messages {
		if m.RunID == run.RunID && m.Role == event.RoleAssistant {
			r.message(m)
		}
	}
	for _, p := range s.Book.Reasoning {
		if !p.Internal {
			r.reasoning(p, 0)
		}
	}
	r.things()
	r.end()
	return r.list
}

// Retold is what an encoder says of a run that is told anew.
func Retold(x Encoder, s *event.Session, run *event.Run, to Audience) []Message {
	var list []Message
	for _, e := range Retell(s, run) {
		list = append(list, x.Next(e, nil, to)...)
	}
	return list
}

// Shown is the run that a snapshot is about: the one asked for, or if none is, the
// one under way or the last one; no sub-agent's. nil if it is not there.
func Shown(s *event.Session, runID string) *event.Run {
	if runID != "" {
		return s.Run(runID)
	}
	if run := s.Active(); run != nil {
		return run
	}
	for i := len(s.Runs) - 1; i >= 0; i-- {
		if r := s.Runs[i]; r.ParentRunID == "" && r.StartedAt != nil {
			return r
		}
	}
	return nil
}

type retold struct {
	s     *event.Session // what is public of whole
	whole *event.Session
	run   *event.Run
	list  []event.Event
	step  int
}

func (r *retold) add(t event.Type, data any) {
	e := event.New(t, data)
	e.SessionID, e.RunID, e.TraceID, e.Seq = r.s.SessionID, r.run.RunID, r.run.TraceID, r.s.Seq
	if r.run.StartedAt != nil {
		e.Time = *r.run.StartedAt
	}
	r.list = append(r.list, e)
}

func (r *retold) message(m *event.Message) {
	r.step++
	r.add(event.StepStarted, event.StepStartedData{Step: r.step})
	r.add(event.MessageStarted, event.MessageStartedData{MessageID: m.MessageID, Role: m.Role})
	calls := 0
	for i, p := range m.Parts {
		switch p.Type {
		case event.PartText:
			r.add(event.TextDelta, event.TextDeltaData{MessageID: m.MessageID, Delta: p.Text})
		case event.PartReasoning:
			r.reasoning(p, i)
		case event.PartToolCall:
			if c := r.s.Call(p.CallID); c != nil && !c.Internal {
				r.call(c, calls)
				calls++
			}
		}
	}
	if m.Status == event.Streaming {
		return
	}
	parts := event.Values(m.Parts)
	r.add(event.MessageCompleted, event.MessageCompletedData{MessageID: m.MessageID, Role: m.Role, Parts: parts, SHA256: event.TextHash(parts)})
	r.add(event.StepCompleted, event.StepCompletedData{Step: r.step})
	for i, c := range r.s.CallsOf(m.MessageID) {
		if !c.Internal {
			r.result(c, i)
		}
	}
}

func (r *retold) reasoning(p *event.Part, index int) {
	r.add(event.ReasoningStarted, event.ReasoningStartedData{ReasoningID: p.ReasoningID, Index: index})
	r.add(event.ReasoningDelta, event.ReasoningDeltaData{ReasoningID: p.ReasoningID, Delta: p.Text})
	if !p.Streaming {
		r.add(event.ReasoningCompleted, event.ReasoningCompletedData{ReasoningID: p.ReasoningID, Index: index, Text: p.Text, Signature: p.Signature})
	}
}

func (r *retold) call(c *event.ToolCall, index int) {
	r.add(event.ToolStarted, event.ToolStartedData{CallID: c.CallID, Name: c.Name, Index: index, MessageID: c.MessageID, Executor: c.Executor})
	r.add(event.ToolArgsDelta, event.ToolArgsDeltaData{CallID: c.CallID, Delta: c.Args})
	if !c.Streaming {
		r.add(event.ToolArgs, event.ToolArgsData{CallID: c.CallID, Name: c.Name, Index: index, Args: c.Args})
	}
}

// result is what became of a call so far.
func (r *retold) result(c *event.ToolCall, index int) {
	if c.Decision != nil || c.Status == event.WaitingApproval {
		r.add(event.ApprovalRequested, event.ApprovalRequestedData{CallID: c.CallID, ArgsSHA256: event.ArgsHash(c.Args)})
	}
	if d := c.Decision; d != nil {
		r.add(event.ApprovalResolved, event.ApprovalResolvedData{CallID: c.CallID, Decision: d.Decision, By: d.By, Reason: d.Reason})
	}
	switch c.Status {
	case event.Completed:
		r.add(event.ToolCompleted, event.ToolCompletedData{CallID: c.CallID, Name: c.Name, Index: index, Args: c.Args, Content: c.Content,
			Structured: c.Structured, Truncated: c.Truncated, Artifact: c.Artifact})
	case event.Failed:
		r.add(event.ToolFailed, event.ToolFailedData{CallID: c.CallID, Name: c.Name, Index: index, Args: c.Args, Code: c.Code,
			Message: c.Message, Outcome: c.Outcome, Content: c.Content, Truncated: c.Truncated, Artifact: c.Artifact})
	}
}

// things are what stands beside the messages.
func (r *retold) things() {
	for _, a := range r.s.Artifacts {
		if a.RunID == r.run.RunID && a.Status == event.Completed {
			r.add(event.ArtifactCompleted, event.ArtifactCompletedData{ArtifactID: a.ArtifactID, CallID: r.whole.ArtifactByID(a.ArtifactID).CallID, Name: a.Name,
				MediaType: a.MediaType, Bytes: a.Bytes, SHA256: a.SHA256, URL: a.URL})
		}
	}
	for _, a := range r.s.Activities {
		r.add(event.ActivitySnapshot, a.ActivityData)
	}
	if len(r.s.State) > 0 {
		r.add(event.StateSnapshot, event.StateSnapshotData{State: r.s.State})
	}
}

// end says that the run waits, or how it ended.
func (r *retold) end() {
	run := r.run
	switch {
	case run.Status == event.Completed:
		d := event.RunCompletedData{FinishReason: run.FinishReason, Usage: run.Usage}
		if run.Output != nil {
			d.Output = *run.Output
		}
		r.add(event.RunCompleted, d)
	case run.Status == event.Failed && run.Error != nil:
		r.add(event.RunFailed, event.RunFailedData{Code: run.Error.Code, Message: run.Error.Message, Retryable: run.Error.Retryable, Usage: &run.Usage})
	case run.Status == event.Cancelled:
		r.add(event.RunCancelled, event.RunCancelledData{By: run.By, Reason: run.Reason, Usage: &run.Usage})
	case run.ExpiresAt != nil:
		r.add(event.RunStatus, event.RunStatusData{Status: run.Status, ExpiresAt: run.ExpiresAt})
	}
}
