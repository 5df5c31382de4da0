package event

import "slices"

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
