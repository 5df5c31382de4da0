package audit

import (
	"bytes"
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
		c.frameWrong(f, FrameHeader, unreadable.Error())
	}
	if f.Prev != c.chain.pos {
		c.frameWrong(f, FrameChain, "was appended behind position "+strconv.FormatUint(f.Prev, 10)+", the frame before it is at "+strconv.FormatUint(c.chain.pos, 10))
	}
	c.chain.pos = f.Pos
	if len(f.Data) > event.MaxFrame {
		c.frameWrong(f, FrameSize, strconv.Itoa(len(f.Data))+" bytes, at most "+strconv.Itoa(event.MaxFrame))
	}
	events := c.lines(f)
	if n := len(events); unreadable == nil && (n == 0 || f.First != events[0].Seq || f.Last != events[n-1].Seq) {
		c.frameWrong(f, FrameHeader, "says "+f.First.String()+"-"+f.Last.String()+", it holds "+span(events))
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
	return events[0].Seq.String() + "-" + events[len(events)-1].Seq.String()
}

func (c *Checker) frameWrong(f eventlog.Frame, rule Rule, detail string) {
	c.find(Finding{Seq: f.First, Rule: rule, Detail: "frame at " + strconv.FormatUint(f.Pos, 10) + ": " + detail})
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
			c.frameWrong(f, FrameSize, "an event of "+strconv.Itoa(len(line)+1)+" bytes, at most "+strconv.Itoa(event.MaxEncoded))
		}
		e, err := event.Decode(line)
		if err != nil {
			c.frameWrong(f, FrameForm, err.Error())
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
		c.frameWrong(f, FrameWriter, "has the id "+strconv.Quote(f.ID)+", not one of a writer")
		return
	}
	w := f.ID[:i]
	switch claims := claimsIn(events); {
	case w == c.chain.writer && claims > 0:
		c.frameWrong(f, FrameWriter, w+" claims a second time")
	case w == c.chain.writer && n != c.chain.number+1:
		c.frameWrong(f, FrameWriter, "is number "+strconv.Itoa(n)+" of "+w+", after number "+strconv.Itoa(c.chain.number))
	case w == c.chain.writer:
	case c.chain.gone[w]:
		c.frameWrong(f, FrameWriter, w+" writes although "+c.chain.writer+" has taken over")
	case n != 1 || claims != 1 || !beginsWithClaim(events):
		c.frameWrong(f, FrameWriter, w+" writes after "+c.chain.writer+" without a claim at the beginning of its first frame")
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
