package event

import "slices"

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
