package audit

import (
	"slices"
	"testing"

	"github.com/runlog-dev/runlog/event"
)

// A sound log is sound wherever it is cut, however it was framed.
func TestSoundLogsHaveNoFindings(t *testing.T) {
	for name, story := range stories(t) {
		for _, size := range []int{1, 3, 1000} {
			c := NewChecker(key)
			for _, f := range framed(numbered(story), size) {
				c.Frame(f, nil)
				if wrong := c.Findings(); len(wrong) > 0 {
					t.Fatalf("%s, frames of %d: %v", name, size, wrong)
				}
			}
			if int(c.Seq()) != len(story) || c.Session().Seq != c.Seq() {
				t.Errorf("%s: read %d events, folded %d of %d", name, c.Seq(), c.Session().Seq, len(story))
			}
			if c.samples == 0 {
				t.Errorf("%s: no prefix was built into a request", name)
			}
		}
		if wrong := check(numbered(story)); len(wrong) > 0 {
			t.Errorf("%s without frames: %v", name, wrong)
		}
	}
}

// Whatever event is lost, doubled or changes places with the next one, the log
// is not taken for sound, but for what is in the list, which has to be needed.
func TestNoEventIsLostDoubledOrMovedUnnoticed(t *testing.T) {
	unseen := map[string]bool{}
	for _, story := range stories(t) {
		for i, e := range story {
			check := func(what string, list []event.Event) {
				c := NewChecker(key)
				c.request = nil
				if len(feed(c, retold(list))) == 0 {
					unseen[what] = true
				}
			}
			check("without "+string(e.Type), slices.Delete(slices.Clone(story), i, i+1))
			check("twice "+string(e.Type), slices.Insert(slices.Clone(story), i, e))
			if i+1 < len(story) {
				swapped := slices.Clone(story)
				swapped[i], swapped[i+1] = swapped[i+1], swapped[i]
				check("moved "+string(e.Type)+" "+string(story[i+1].Type), swapped)
			}
		}
	}
	for what := range unseen {
		if !harmless[what] {
			t.Errorf("%s: not noticed", what)
		}
	}
	for what := range harmless {
		if !unseen[what] {
			t.Errorf("%s: is noticed, and in the list of what need not be", what)
		}
	}
}

// retold numbers a changed story anew, and lets recoveries know of it.
func retold(story []event.Event) []event.Event {
	list := numbered(story)
	claim := event.Seq(0)
	for i, e := range list {
		switch e.Type {
		case event.SessionClaimed:
			claim = e.Seq
		case event.RunRecovered:
			list[i].Data = event.Encode(event.RunRecoveredData{Attempt: 2, FromSeq: claim - 1})
		}
	}
	return list
}

// harmless is what makes another story that is as sound.
var harmless = map[string]bool{
	// What need not have happened.
	"without activity.delta":     true,
	"without artifact.completed": true,
	"without artifact.progress":  true,
	"without command.ignored":    true,
	"without run.completed":      true,
	"without run.queued":         true,
	"without run.status":         true,
	"without session.released":   true,
	"without state.delta":        true,
	"without text.delta":         true,
	"without tool.args.delta":    true,
	"without tool.progress":      true,
	"without tool.started":       true,
	// What may happen again.
	"twice activity.snapshot": true,
	"twice artifact.progress": true,
	"twice state.delta":       true,
	"twice state.snapshot":    true,
	"twice text.delta":        true,
	"twice tool.progress":     true,
	// What goes on side by side, and what is of others.
	"moved approval.requested approval.requested": true,
	"moved approval.requested run.status":         true,
	"moved approval.resolved run.status":          true,
	"moved message.completed run.status":          true,
	"moved reasoning.completed message.started":   true,
	"moved run.cancelled command.ignored":         true,
	"moved run.queued run.queued":                 true,
	"moved run.status run.queued":                 true,
	"moved run.status tool.running":               true,
	"moved state.delta activity.snapshot":         true,
	"moved step.completed state.snapshot":         true,
	"moved text.delta tool.started":               true,
	"moved tool.args tool.args":                   true,
	"moved tool.args tool.started":                true,
	"moved tool.args.delta tool.args":             true,
	"moved tool.args.delta tool.started":          true,
	"moved tool.completed message.completed":      true,
	"moved tool.completed run.status":             true,
	"moved tool.completed tool.completed":         true,
	"moved tool.completed tool.progress":          true,
	"moved tool.failed artifact.started":          true,
	"moved tool.failed run.cancelled":             true,
	"moved tool.running tool.failed":              true,
	"moved tool.running tool.running":             true,
	"moved tool.started tool.args":                true,
}

// check is what is wrong with a log without its frames.
func check(events []event.Event) []Finding { return feed(NewChecker(key), events) }

func feed(c *Checker, events []event.Event) []Finding {
	for _, e := range events {
		c.Event(e)
	}
	return c.Findings()
}
