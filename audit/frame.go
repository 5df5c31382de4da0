package audit

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// chain is what the frames so far say about the next one.
type chain struct {
	pos    uint64 // of the last frame
	writer string
	number int // of the writer's last frame
	gone   map[string]bool
}

// Frame takes the next frame as it is stored, and its events. unreadable is why
// its header cannot be read, or nil.
func (c *Checker) Frame(f eventlog.Frame, unreadable error) {
	c.at = event.Event{Seq: f.First}
	if unreadable != nil {
		c.frameWrong(f, FrameHeader, "%v", unreadable)
	}
	if f.Prev != c.chain.pos {
		c.frameWrong(f, FrameChain, "was appended behind position %d, the frame before it is at %d", f.Prev, c.chain.pos)
	}
	c.chain.pos = f.Pos
	if len(f.Data) > event.MaxFrame {
		c.frameWrong(f, FrameSize, "%d bytes, at most %d", len(f.Data), event.MaxFrame)
	}
	events := c.lines(f)
	if n := len(events); unreadable == nil && (n == 0 || f.First != events[0].Seq || f.Last != events[n-1].Seq) {
		c.frameWrong(f, FrameHeader, "says %d-%d, it holds %s", f.First, f.Last, span(events))
	}
	c.writer(f, events)
	for _, e := range events {
		c.Event(e)
	}
}

func span(events []event.Event) string {
	if len(events) == 0 {
		return "no event"
	}
	return fmt.Sprintf("%d-%d", events[0].Seq, events[len(events)-1].Seq)
}

func (c *Checker) frameWrong(f eventlog.Frame, rule Rule, format string, args ...any) {
	c.find(Finding{Seq: f.First, Rule: rule, Detail: fmt.Sprintf("frame at %d: ", f.Pos) + fmt.Sprintf(format, args...)})
}

// lines decodes what can be decoded.
func (c *Checker) lines(f eventlog.Frame) []event.Event {
	if len(f.Data) == 0 || f.Data[len(f.Data)-1] != '\n' {
		c.frameWrong(f, FrameForm, "does not end in LF")
	}
	if !utf8.Valid(f.Data) || bytes.ContainsAny(f.Data, "\r\u2028\u2029") {
		c.frameWrong(f, FrameForm, "holds a line break within an event, or what is no UTF-8")
	}
	var events []event.Event
	for line := range f.Lines() {
		if len(line)+1 > event.MaxEncoded {
			c.frameWrong(f, FrameSize, "an event of %d bytes, at most %d", len(line)+1, event.MaxEncoded)
		}
		e, err := event.Decode(line)
		if err != nil {
			c.frameWrong(f, FrameForm, "%v", err)
			continue
		}
		events = append(events, e)
	}
	return events
}

// writer holds who wrote the frame: the id is <writer>-<number of its frame>.
func (c *Checker) writer(f eventlog.Frame, events []event.Event) {
	i := strings.LastIndexByte(f.ID, '-')
	n, err := strconv.Atoi(f.ID[i+1:])
	if i <= 0 || err != nil {
		c.frameWrong(f, FrameWriter, "has the id %q, not one of a writer", f.ID)
		return
	}
	w := f.ID[:i]
	switch claims := claimsIn(events); {
	case w == c.chain.writer && claims > 0:
		c.frameWrong(f, FrameWriter, "%s claims a second time", w)
	case w == c.chain.writer && n != c.chain.number+1:
		c.frameWrong(f, FrameWriter, "is number %d of %s, after number %d", n, w, c.chain.number)
	case w == c.chain.writer:
	case c.chain.gone[w]:
		c.frameWrong(f, FrameWriter, "%s writes although %s has taken over", w, c.chain.writer)
	case n != 1 || claims != 1 || !beginsWithClaim(events):
		c.frameWrong(f, FrameWriter, "%s writes after %s without a claim at the beginning of its first frame", w, c.chain.writer)
	}
	if w != c.chain.writer {
		if c.chain.gone == nil {
			c.chain.gone = map[string]bool{}
		}
		c.chain.gone[c.chain.writer] = true
	}
	c.chain.writer, c.chain.number = w, n
}

func claimsIn(events []event.Event) (n int) {
	for _, e := range events {
		if e.Type == event.SessionClaimed {
			n++
		}
	}
	return n
}

func beginsWithClaim(events []event.Event) bool {
	for _, e := range events {
		if e.Type != event.SessionCreated {
			return e.Type == event.SessionClaimed
		}
	}
	return false
}
