package event

import (
	"encoding/json"
	"fmt"
	"slices"
	"sort"
)

// CutEvent is the name of the custom event, internal, that says what is left out
// of a run's requests from now on. Its value is a Cut.
const CutEvent = "context.cut"

// A Cut says what of a conversation is left out of requests, so that they fit
// the model. Both members name the last message that they concern. A call is
// never parted from its result, and what the user said last is never left out.
type Cut struct {
	Results string `json:"results,omitempty"` // up to it, results of tools are shortened
	Turns   string `json:"turns,omitempty"`   // up to it, messages are left out
}

// What a shortened result keeps, in bytes, and what stands for left out turns.
const (
	keptResult = 400
	wordCut    = "[Earlier parts of this conversation are left out here, because they were too long.]"
)

func (s *Session) custom(e Event, d CustomData) {
	r := s.runs[e.RunID]
	if r == nil || !e.Internal {
		return
	}
	switch d.Name {
	case CutEvent:
		var cut Cut
		if json.Unmarshal(d.Value, &cut) == nil {
			r.Book.Cut = &cut
		}
	case OnceEvent:
		var o Once
		if json.Unmarshal(d.Value, &o) == nil {
			r.Book.once(o)
		}
	case RemoteEvent:
		var m RemoteMark
		if json.Unmarshal(d.Value, &m) == nil {
			r.Book.marked(m, s.State)
		}
	}
}

// CutOf is the cut that holds for a run: its own, or the last one of the same
// agent in this conversation.
func (s *Session) CutOf(runID string) Cut {
	run := s.runs[runID]
	if run == nil {
		return Cut{}
	}
	for i := slices.Index(s.Runs, run); i >= 0; i-- {
		r := s.Runs[i]
		if r.Book != nil && r.Book.Cut != nil && (r == run || r.ParentRunID == "" && run.ParentRunID == "" && r.Agent == run.Agent) {
			return *r.Book.Cut
		}
	}
	return Cut{}
}

// Fit returns the cut with which the run's request has at most limit bytes, and
// how many it has then: more than limit if no cut is enough. Nothing is cut
// while the request fits; then results of tools are shortened, the oldest first,
// and if that is not enough turns are left out, the oldest first. More is cut
// than needed, so that the next steps do not cut again. The same session gives
// the same cut.
func (s *Session) Fit(v View, limit int) (Cut, int) {
	size := func(cut Cut) int {
		v.Cut, v.Reasoning = &cut, true
		return len(s.OpenAIView(v))
	}
	now := s.CutOf(v.RunID)
	if n := size(now); n <= limit {
		return now, n
	}
	cuts := v.cuts(s, now)
	i := sort.Search(len(cuts), func(i int) bool { return size(cuts[i]) <= limit*3/4 })
	if i == len(cuts) {
		i--
	}
	if i < 0 {
		return now, size(now)
	}
	return cuts[i], size(cuts[i])
}

// cuts lists what can be cut beyond now, the least first.
func (v View) cuts(s *Session, now Cut) []Cut {
	b := v.builder(s)
	shown := without(s.Messages, func(m *Message) bool { return !v.shows(b.runs, m) })
	at := func(id string) int {
		return slices.IndexFunc(shown, func(m *Message) bool { return m.MessageID == id })
	}
	results, turns := at(now.Results), at(now.Turns)
	asked, said := -1, -1 // the last message with calls, and the user's last
	for i, m := range shown {
		if len(b.ofMsg[m.MessageID]) > 0 {
			asked = i
		}
		if m.Role == RoleUser {
			said = i
		}
	}
	var out []Cut
	cut := now
	for i := results + 1; i < asked; i++ {
		if len(b.ofMsg[shown[i].MessageID]) > 0 {
			cut.Results = shown[i].MessageID
			out = append(out, cut)
		}
	}
	for i := turns + 1; i < len(shown)-1; i++ {
		if shown[i+1].Role == RoleUser && i < said || i > said && i != asked {
			cut.Turns = shown[i].MessageID
			out = append(out, cut)
		}
	}
	if asked > results && asked >= 0 {
		cut.Results = shown[asked].MessageID
		out = append(out, cut)
	}
	return out
}

// kept leaves out what the cut says, and tells whether anything is. System
// messages stay, and so does the user's message that the rest answers.
func (c Cut) kept(shown []*Message) (list []*Message, some bool) {
	last := slices.IndexFunc(shown, func(m *Message) bool { return m.MessageID == c.Turns })
	if last < 0 {
		return shown, false
	}
	said := last
	for said >= 0 && shown[said].Role != RoleUser {
		said--
	}
	if last+1 < len(shown) && shown[last+1].Role == RoleUser {
		said = -1
	}
	for i, m := range shown {
		if i > last || i == said || m.Role == RoleSystem {
			list = append(list, m)
		}
	}
	return list, true
}

// shortened is a result of which only the beginning is given.
func (c *ToolCall) shortened(result string) string {
	if len(result) <= keptResult+100 {
		return result
	}
	note := fmt.Sprintf("[Shortened: the first of %d bytes.]", len(result))
	if c.Artifact != nil {
		note = fmt.Sprintf("[Shortened: the first of %d bytes. The whole is artifact %s; the tool %s reads it.]", len(result), c.Artifact.ArtifactID, ReadArtifactTool)
	}
	return runes(result, keptResult) + "…\n" + note
}
