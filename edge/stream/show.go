package stream

import (
	"context"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
)

// show sends what the viewer may see of consecutive events that follow its
// position, as far as the stream goes.
func (v *Viewer) show(ctx context.Context, out *output, list []*entry) (verdict, error) {
	for _, e := range list {
		if v.req.NoFollow && e.Seq > v.until {
			return more, nil
		}
		if err := v.showOne(ctx, out, e); err != nil {
			return over, err
		}
		if v.over {
			if err := v.settle(out); err != nil {
				return over, err
			}
			v.caughtUp()
			return over, v.flush(out)
		}
	}
	if out != nil {
		v.shownAt = v.hub.clock()
	}
	return more, nil
}

// showOne sends one event and makes it the viewer's position.
func (v *Viewer) showOne(ctx context.Context, out *output, e *entry) error {
	mine, err := v.mine(ctx, e)
	if err != nil {
		return err
	}
	if mine && out != nil && v.replaying {
		taken, shown, err := v.merge(ctx, out, e)
		if err != nil {
			return err
		}
		if e = shown; taken {
			v.at = Position{Seq: e.Seq}
			v.note(e)
			return nil
		}
	}
	if mine && out != nil && v.passesOn(e) {
		return v.passOn(out, e)
	}
	var messages [][]byte
	if mine && out != nil {
		var err error
		if messages, err = v.wire(ctx, e); err != nil {
			return err
		}
	}
	sub := v.at.Sub
	if v.encoder != nil {
		messages = v.unseen(e.Seq, messages)
	}
	v.at = Position{Seq: e.Seq}
	if mine {
		v.note(e)
	}
	if out == nil {
		return nil
	}
	if len(messages) == 0 {
		return v.hide(out)
	}
	if sub >= len(messages) { // a part of this event in another dialect
		sub = 0
	}
	return v.send(out, e, messages[sub:])
}

// unseen leaves out the messages of an event that the client has.
func (v *Viewer) unseen(seq event.Seq, messages [][]byte) [][]byte {
	switch {
	case seq <= v.has.Seq:
		return nil
	case seq > v.has.Seq+1:
		return messages
	case v.has.Sub < len(messages):
		return messages[v.has.Sub:]
	case v.req.Numbered:
		return nil
	}
	return messages // what the client has is a part of this event in another dialect
}

// passesOn: nobody else is there to see the event, and nothing but itself is needed
// to encode it.
func (v *Viewer) passesOn(e *entry) bool {
	if !e.private && (!v.topic.alone.Load() || e.wires.Load() != nil) || e.hidden || v.at.Sub > 0 || v.encoder != nil {
		return false
	}
	d, ok := v.view.dialect.(dialect.Folding)
	return !ok || !d.Folds(e.Event)
}

// passOn encodes an event where it leaves, so that its bytes are not kept.
func (v *Viewer) passOn(out *output, e *entry) error {
	v.at = Position{Seq: e.Seq}
	v.note(e)
	list := v.view.dialect.Event(e.Event, e.line, v.view.audience)
	if len(list) == 0 {
		return v.hide(out)
	}
	size := 0
	for i, m := range list {
		b := out.buffer()
		n := len(b)
		b = v.view.transport.Append(b, subPosition(e.Seq, i, len(list)).String(), m)
		size += len(b) - n
		if err := out.put(b); err != nil {
			return err
		}
	}
	v.sent(out, e, size)
	return nil
}

func (v *Viewer) send(out *output, e *entry, messages [][]byte) error {
	size := 0
	for _, m := range messages {
		if err := out.add(m); err != nil {
			return err
		}
		size += len(m)
	}
	v.sent(out, e, size)
	return nil
}

// sent notes that an event has left in so many bytes.
func (v *Viewer) sent(out *output, e *entry, size int) {
	v.hidden, v.newest = 0, e.Time.Time
	if !v.caught {
		v.events++
		v.bytes += size
	}
	out.events++
	out.bytes += size
	if v.req.Seen != nil && !v.req.Seen(e.Event) {
		v.req.Seen = nil
	}
}

// note follows the viewer's run.
func (v *Viewer) note(e *entry) {
	if v.req.RunID != "" && e.RunID != v.req.RunID {
		return // a sub-agent's: its end is not the run's
	}
	if v.req.Ends != nil && v.req.Ends(e.Event) {
		v.over = true
	}
	switch {
	case e.Type == event.RunStarted:
		v.started = e.Time.Time
	case e.Type == event.RunStatus:
		var d event.RunStatusData
		if e.Into(&d) == nil {
			v.status = d.Status
		}
	case e.Type.Terminal() && v.req.RunID != "":
		v.over = true
	}
}

// maxHidden is how many events a client's cursor may lag behind for not seeing
// them.
const maxHidden = 64

func (v *Viewer) hide(out *output) error {
	if v.hidden++; v.hidden < maxHidden {
		return nil
	}
	return v.moveCursor(out)
}

// moveCursor takes the client's cursor past what was hidden.
func (v *Viewer) moveCursor(out *output) error {
	if v.hidden == 0 {
		return nil
	}
	if err := v.settle(out); err != nil {
		return err
	}
	v.hidden = 0
	return v.append(out, v.at.String(), v.view.dialect.Moved(v.at.Seq))
}

func (v *Viewer) append(out *output, id string, messages []dialect.Message) error {
	for _, m := range messages {
		if err := out.put(v.view.transport.Append(out.buffer(), id, m)); err != nil {
			return err
		}
	}
	return nil
}
