package event

// About what a message or a call, and each of their parts, take besides their content.
const (
	itemSize = 256
	partSize = 256
)

// Size is about how much memory the session takes, in bytes: for what is said and done
// in it, which is what makes one large.
func (s *Session) Size() int {
	n := len(s.State) + len(s.Metadata)
	for _, m := range s.Messages {
		n += itemSize
		for _, p := range m.Parts {
			n += p.size()
		}
	}
	for _, c := range s.ToolCalls {
		n += itemSize + len(c.Args) + len(c.growing) + len(c.Structured)
		for i := range c.Content {
			n += c.Content[i].size()
		}
	}
	for _, a := range s.Activities {
		n += itemSize + len(a.Content)
	}
	return n
}

func (p *Part) size() int { return partSize + len(p.Text) + len(p.growing) + len(p.Value) }
