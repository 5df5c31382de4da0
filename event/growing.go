package event

import "strings"

// Deltas go into growing, of parts and of calls, so that a text costs what it
// holds: adding each to the string would copy the whole of it every time. What a
// reader sees is settled first, or asked for as far as it is.

// TextSoFar is the text of a message as far as it is written. For encoders, which
// ask at every delta: a View would copy the session each time.
func (s *Session) TextSoFar(messageID string) string {
	m := s.messages[messageID]
	if m == nil {
		return ""
	}
	size := 0
	for _, p := range m.Parts {
		size += len(p.Text) + len(p.growing)
	}
	var b strings.Builder
	b.Grow(size)
	for _, p := range m.Parts {
		if p.Type == PartText {
			b.WriteString(p.Text)
			b.Write(p.growing)
		}
	}
	return b.String()
}

// ArgsSoFar are the arguments of a call as far as they are written.
func (c *ToolCall) ArgsSoFar() string { return c.Args + string(c.growing) }

// settle moves what streaming texts have gained into their strings.
func (s *Session) settle() {
	for _, m := range s.Messages {
		if m.Status != Completed {
			settle(m.Parts)
		}
	}
	if s.Book != nil {
		settle(s.Book.Reasoning)
	}
	for _, c := range s.ToolCalls {
		c.settle()
	}
}

func settle(parts []*Part) {
	for _, p := range parts {
		if len(p.growing) > 0 {
			p.Text += string(p.growing)
			p.growing = nil
		}
	}
}

func (c *ToolCall) settle() {
	if len(c.growing) > 0 {
		c.Args += string(c.growing)
		c.growing = nil
	}
}
