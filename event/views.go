package event

import "slices"

// EncodePublic writes what clients may see.
func (s *Session) EncodePublic() []byte { return Encode(s.Public()) }

// Public returns a copy without internal parts, calls, and bookkeeping.
func (s *Session) Public() *Session {
	s.settle()
	p := *s
	p.Book = nil
	p.Messages = make([]*Message, 0, len(s.Messages))
	hidden := map[string]bool{} // runs of sub-agents
	for _, r := range s.Runs {
		hidden[r.RunID] = r.hidden()
	}
	for _, m := range s.Messages {
		if hidden[m.RunID] {
			continue
		}
		if parts := publicParts(m.Parts); len(parts) > 0 || len(m.Parts) == 0 {
			p.Messages = append(p.Messages, &Message{MessageID: m.MessageID, RunID: m.RunID, Role: m.Role, Status: m.Status, Parts: parts})
		}
	}
	p.ToolCalls = without(s.ToolCalls, func(c *ToolCall) bool { return c.Internal })
	p.Artifacts = publicArtifacts(s.Artifacts)
	p.Activities = without(s.Activities, func(a *Activity) bool { return a.Internal })
	p.Runs = make([]*Run, 0, len(s.Runs))
	for _, r := range s.Runs {
		if !r.hidden() {
			public := *r
			public.Book = nil
			public.Output = nil
			p.Runs = append(p.Runs, &public)
		}
	}
	return &p
}

func publicParts(parts []*Part) []*Part {
	return without(parts, func(p *Part) bool { return p.Internal })
}

// publicArtifacts do not say which call made them: their events do.
func publicArtifacts(list []*Artifact) []*Artifact {
	list = copies(without(list, func(a *Artifact) bool { return a.Internal }))
	for _, a := range list {
		a.CallID = ""
	}
	return list
}

// without shares the slice when nothing is left out.
func without[T any](list []T, out func(T) bool) []T {
	if !slices.ContainsFunc(list, out) {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), out)
}

// Clone returns an independent copy of the fold.
func (s *Session) Clone() *Session {
	c, err := DecodeSession(s.Encode())
	if err != nil {
		panic(err) // what Encode wrote is read back
	}
	return c
}

// View returns a copy for reading while the fold goes on: entries are copied one
// level deep, their contents shared, which is safe because the fold replaces
// contents and never edits them. Streaming texts are settled first.
func (s *Session) View() *Session {
	s.settle()
	v := *s
	v.Messages, v.ToolCalls = copies(s.Messages), copies(s.ToolCalls)
	v.Artifacts, v.Runs = copies(s.Artifacts), copies(s.Runs)
	v.Approvals, v.Activities = slices.Clone(s.Approvals), copies(s.Activities)
	for _, m := range v.Messages {
		if m.Status != Completed {
			m.Parts = copies(m.Parts)
		}
	}
	for _, r := range v.Runs {
		book := *r.Book
		book.Remote = book.Remote.clone()
		r.Book = &book
	}
	book := *s.Book
	book.Commands, book.Queue = slices.Clone(book.Commands), slices.Clone(book.Queue)
	book.Reasoning = copies(book.Reasoning)
	if book.Claim != nil {
		claim := *book.Claim
		book.Claim = &claim
	}
	v.Book = &book
	v.index()
	return &v
}

func copies[T any](list []*T) []*T {
	if list == nil {
		return nil
	}
	values, out := make([]T, len(list)), make([]*T, len(list))
	for i, p := range list {
		values[i] = *p
		out[i] = &values[i]
	}
	return out
}
