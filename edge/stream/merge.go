package stream

import (
	"bytes"
	"context"
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
)

// Catchup says how a client is told what it missed. Whatever comes live is told
// event by event.
type Catchup string

const (
	// Events is the default: each event as it was stored.
	Events Catchup = "events"
	// Merged makes one event of adjacent deltas of one message, reasoning or
	// call: with the seq of the last and first_seq of the first. In dialects
	// whose closers say all, a closer that follows stands for its deltas too.
	Merged Catchup = "merged"
	// ToSnapshot is Merged, or a snapshot and what follows it where that is smaller.
	ToSnapshot Catchup = "snapshot"
)

// Catchups are those that clients may ask for.
var Catchups = []Catchup{Events, Merged, ToSnapshot}

func (c Catchup) merges() bool { return c == Merged || c == ToSnapshot }

// A growth is a type of delta: the member that names what it adds to, and the type
// that closes that.
type growth struct {
	name   string
	closer event.Type
}

var growths = map[event.Type]growth{
	event.TextDelta:      {"message_id", event.MessageCompleted},
	event.ReasoningDelta: {"reasoning_id", event.ReasoningCompleted},
	event.ToolArgsDelta:  {"call_id", event.ToolArgs},
}

// A delta is what is added to a message, a reasoning or a call. The text is a JSON
// string without its quotes: those of several deltas make one by standing side by
// side.
type delta struct{ of, text []byte }

// deltaOf reads an event that adds to something.
func deltaOf(e *entry) (d delta, ok bool) {
	g, ok := growths[e.Type]
	if !ok {
		return d, false
	}
	if d, ok = plainDelta(e.Data, g.name); ok {
		return d, true
	}
	var data struct {
		ids
		Delta string `json:"delta"`
	}
	if json.Unmarshal(e.Data, &data) != nil {
		return d, false
	}
	text := event.Encode(data.Delta)
	return delta{[]byte(data.id()), text[1 : len(text)-1]}, true
}

// ids are the members that name what grows: each type has but one.
type ids struct {
	MessageID   string `json:"message_id"`
	ReasoningID string `json:"reasoning_id"`
	CallID      string `json:"call_id"`
}

func (i ids) id() string { return i.MessageID + i.ReasoningID + i.CallID }

// plainDelta reads data, which is valid JSON, if it is as workers write it. Half
// characters (invalid UTF-8, escaped surrogates) are left to encoding/json: two halves
// of two deltas side by side would become a character that neither delta has.
func plainDelta(data []byte, name string) (d delta, ok bool) {
	rest, _ := bytes.CutPrefix(data, []byte(`{"`))
	if rest, ok = bytes.CutPrefix(rest, []byte(name)); !ok || !utf8.Valid(data) {
		return d, false
	}
	if rest, ok = bytes.CutPrefix(rest, []byte(`":"`)); !ok {
		return d, false
	}
	d.of, rest, ok = bytes.Cut(rest, []byte(`","delta":"`))
	if !ok || bytes.ContainsAny(d.of, `"\\`) {
		return d, false
	}
	d.text, ok = bytes.CutSuffix(rest, []byte(`"}`))
	for i := 0; i < len(d.text) && ok; i++ {
		switch d.text[i] {
		case '"':
			ok = false
		case '\\':
			i++
			ok = i < len(d.text) && !(d.text[i] == 'u' && i+1 < len(d.text) && d.text[i+1]|0x20 == 'd')
		}
	}
	return d, ok
}

// A pending is adjacent deltas that were held back, to be sent as one.
type pending struct {
	first *entry
	last  event.Event
	epoch event.Epoch // of the last
	of    string      // what they add to: the id of a message, a reasoning or a call
	text  []byte      // all of theirs, see delta
	whole bool        // a closer of the dialect says all that the deltas say
}

// takes reports whether a delta goes with those that are held back.
func (p *pending) takes(e *entry, d delta, limit int) bool {
	return e.Type == p.last.Type && string(d.of) == p.of && e.RunID == p.last.RunID && e.Internal == p.last.Internal &&
		e.Agent == p.last.Agent && len(p.text)+len(d.text) <= limit
}

// merge holds a delta back, to be sent with those that follow it. If it is not held,
// shown is to be sent now: e itself, or e in the place of the deltas that it closes.
// What was held before and does not go with e is sent first.
func (v *Viewer) merge(ctx context.Context, out *output, e *entry) (held bool, shown *entry, err error) {
	if v.at.Sub > 0 || e.hidden || v.encoder != nil {
		return false, e, nil
	}
	d, grows := deltaOf(e)
	if p := v.pending; p != nil {
		if grows && p.takes(e, d, v.hub.opts.PageBytes) && v.room(p, len(d.text)) {
			p.last, p.epoch, p.text, v.hidden = e.Event, e.epoch, append(p.text, d.text...), 0
			return true, e, nil
		}
		messages, err := v.wire(ctx, out, e)
		if err != nil || len(messages) == 0 { // the client does not see it between them
			return false, e, err
		}
		if closer := v.pending.closedBy(e, v.view); closer != nil {
			v.pending = nil
			return false, closer, nil
		}
		if err := v.settle(out); err != nil {
			return false, e, err
		}
	}
	if !grows || !v.single(e) {
		return false, e, nil
	}
	c, ok := v.view.dialect.(dialect.Closing)
	v.pending = &pending{first: e, last: e.Event, epoch: e.epoch, of: string(d.of), text: bytes.Clone(d.text), whole: ok && c.ClosersSayAll()}
	v.hidden = 0
	return true, e, nil
}

// room makes room for more text, and reports whether there is any.
func (v *Viewer) room(p *pending, n int) (ok bool) {
	p.text, ok = v.reads().mergeMore(p.text, n)
	return ok
}

// single reports whether the event is one message in the view. Only those are merged, so
// that no connection breaks in the middle of what was merged.
func (v *Viewer) single(e *entry) bool {
	return v.folding(e) == nil && len(e.wire(v.view)) == 1
}

// settle sends what was held back.
func (v *Viewer) settle(out *output) error {
	p := v.pending
	if p == nil {
		return nil
	}
	v.pending = nil
	e, hidden := p.entry(), v.hidden
	err := v.send(out, e, e.wire(v.view))
	v.hidden = hidden // those after the deltas
	return err
}

// entry is the one event that stands for all of them.
func (p *pending) entry() *entry {
	if p.first.Seq == p.last.Seq {
		return p.first
	}
	e := p.last
	data := append([]byte(`{"`), growths[e.Type].name...)
	data = append(append(data, `":`...), event.Encode(p.of)...)
	data = append(append(data, `,"delta":"`...), p.text...)
	e.Data = append(data, `"}`...)
	return &entry{Event: e, epoch: p.epoch, line: firstSeq(e, nil, p.first.Seq)}
}

// closedBy returns e with the first seq of the deltas if it closes what they are
// of and its readers see all of it, else nil. There are none if a sign of life had them
// sent while e was encoded.
func (p *pending) closedBy(e *entry, v view) *entry {
	if p == nil || !p.whole || e.Type != growths[p.last.Type].closer || e.RunID != p.last.RunID || e.Internal != p.last.Internal {
		return nil
	}
	var of ids
	if json.Unmarshal(e.Data, &of) != nil || of.id() != p.of {
		return nil
	}
	closer := &entry{Event: e.Event, epoch: e.epoch, line: firstSeq(e.Event, e.line, p.first.Seq)}
	list := v.dialect.Event(closer.Event, closer.line, v.audience)
	if len(list) != 1 || !bytes.Equal(list[0].Data, closer.line) {
		return nil // told in other words, without first_seq
	}
	return closer
}

// firstSeq is an event's line with the member first_seq after seq. Without a
// line it is encoded.
func firstSeq(e event.Event, line []byte, first event.Seq) []byte {
	head := `{"v":` + strconv.Itoa(e.V) + `,"seq":` + e.Seq.String()
	if !bytes.HasPrefix(line, []byte(head+",")) {
		line = bytes.TrimSuffix(e.AppendLine(nil), []byte("\n"))
	}
	b := make([]byte, 0, len(line)+32)
	b = append(append(append(b, head...), `,"first_seq":`...), first.String()...)
	return append(b, line[len(head):]...)
}
