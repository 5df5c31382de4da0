package stream

import (
	"context"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
)

// show sends what the viewer sees of the events that follow its position, up to the
// stream's end. Without out it only moves on.
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

// showOne sends one event, if the viewer sees it, and moves on behind it.
func (v *Viewer) showOne(ctx context.Context, out *output, e *entry) error {
	mine, err := v.mine(ctx, out, e)
	switch {
	case err != nil:
		return err
	case out == nil:
		v.reach(e)
		return nil
	case !mine:
		v.reach(e)
		return v.hide(out)
	}
	if v.replaying {
		held, shown, err := v.merge(ctx, out, e)
		if err != nil {
			return err
		}
		if held {
			v.reach(e)
			return nil
		}
		e = shown
	}
	if v.passesOn(e) {
		return v.passOn(out, e)
	}
	return v.sendOne(ctx, out, e)
}

// sendOne sends what the client does not have yet of one event.
func (v *Viewer) sendOne(ctx context.Context, out *output, e *entry) error {
	messages, err := v.wire(ctx, out, e)
	if err != nil {
		return err
	}
	messages = v.unseen(e.Seq, messages)
	v.reach(e)
	if len(messages) == 0 {
		return v.hide(out)
	}
	err = v.send(out, e, messages)
	v.tells(nil)
	return err
}

// reach makes an event the viewer's position.
func (v *Viewer) reach(e *entry) {
	v.at = Position{Seq: e.Seq, Epoch: e.epoch}
	v.note(e)
}

// unseen leaves out the messages that the client has of the event that follows. If it
// says that it has more messages than there are, it has counted those of another
// dialect, and gets all.
func (v *Viewer) unseen(seq event.Seq, messages [][]byte) [][]byte {
	if v.encoder == nil {
		if int(v.at.Sub) < len(messages) {
			return messages[v.at.Sub:]
		}
		return messages
	}
	switch {
	case seq <= v.has.Seq:
		return nil
	case seq > v.has.Seq+1:
		return messages
	case int(v.has.Sub) < len(messages):
		return messages[v.has.Sub:]
	case v.req.Numbered:
		return nil
	}
	return messages
}

// passesOn reports whether an event is encoded for this viewer alone: because no other
// viewer will ask for it, and because nothing but the event is needed to encode it. Not if
// it is large: the buffer would become a multiple of that.
func (v *Viewer) passesOn(e *entry) bool {
	onlyHere := e.private || v.topic.alone.Load() && e.wires.Load() == nil
	return onlyHere && len(e.line) < flushAt && !e.hidden && v.at.Sub == 0 && v.encoder == nil && v.folding(e) == nil
}

// passOn encodes an event into the buffer that is written, so that its bytes are not
// kept.
func (v *Viewer) passOn(out *output, e *entry) error {
	v.reach(e)
	list := v.view.dialect.Event(e.Event, e.line, v.view.audience)
	if len(list) == 0 {
		return v.hide(out)
	}
	size := 0
	for i, m := range list {
		b := out.buffer()
		n := len(b)
		b = v.view.transport.Append(b, e.position(i, len(list)).String(), m)
		size += len(b) - n
		if err := out.put(b); err != nil {
			return err
		}
	}
	v.sent(out, e, size)
	return nil
}

// send sends the messages of an event. A large one counts as long as that takes, unless it
// does already: as a part of the log that was read, or as a conversation.
func (v *Viewer) send(out *output, e *entry, messages [][]byte) error {
	if len(e.line) >= flushAt && v.reading == nil && v.telling == nil && !out.flushers() {
		defer v.hub.pins.hold(v.req.Key.Tenant, e, len(e.line)+sizeOf(messages), out)()
	}
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

// sent notes that an event was sent, in size bytes.
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

// note follows the viewer's run to its end. Events of other runs, a sub-agent's too,
// say nothing of it.
func (v *Viewer) note(e *entry) {
	if v.req.RunID != "" && e.RunID != v.req.RunID {
		return
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

// maxHidden is how many events in a row a client may not see before its cursor is
// moved past them.
const maxHidden = 64

// hide counts an event that the client does not see.
func (v *Viewer) hide(out *output) error {
	if v.hidden++; v.hidden < maxHidden {
		return nil
	}
	return v.moveCursor(out)
}

// moveCursor tells the client the viewer's position if its own cursor is behind, so
// that it does not come back for what it may not see.
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

// append sends messages under an id; with none they do not move the client's cursor.
func (v *Viewer) append(out *output, id string, messages []dialect.Message) error {
	for _, m := range messages {
		if err := out.put(v.view.transport.Append(out.buffer(), id, m)); err != nil {
			return err
		}
	}
	return nil
}
