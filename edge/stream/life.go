package stream

import (
	"time"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/event"
)

// due is how long to wait until the next sign of life; without out, until the next look
// at the head.
func (v *Viewer) due(out *output) time.Duration {
	if out == nil {
		return v.hub.opts.CheckHead
	}
	return max(v.nextSign()-v.hub.clock(), 10*time.Millisecond)
}

// nextSign is when the next ping or heartbeat is due, by the hub's clock.
func (v *Viewer) nextSign() time.Duration {
	return min(max(v.shownAt, v.pingAt)+v.hub.opts.Ping, max(v.shownAt, v.beatAt)+v.hub.opts.Heartbeat)
}

// tick sends the signs of life that are due, and has the topic compare itself with the
// log after silence.
func (v *Viewer) tick(out *output, now time.Time) error {
	v.topic.checkHead(now, v.hub.opts.CheckHead)
	if out == nil {
		return nil
	}
	at := now.Sub(v.hub.began)
	if at-max(v.shownAt, v.beatAt) >= v.hub.opts.Heartbeat {
		v.beatAt = at // whether or not there is a run to speak of
		if err := v.beat(out, now); err != nil {
			return err
		}
	}
	if at-max(v.shownAt, v.pingAt) >= v.hub.opts.Ping {
		v.pingAt = at
		if err := out.put(v.view.transport.Ping(out.buffer())); err != nil {
			return err
		}
	}
	return v.flush(out)
}

// beat sends a heartbeat, if there is a run to speak of, and moves the client's cursor.
func (v *Viewer) beat(out *output, now time.Time) error {
	if h, ok := v.heartbeat(now); ok {
		if err := v.append(out, "", v.view.dialect.Heartbeat(h)); err != nil {
			return err
		}
	}
	return v.moveCursor(out)
}

// heartbeat says how the run is, if there is one under way.
func (v *Viewer) heartbeat(now time.Time) (dialect.Heartbeat, bool) {
	p, head := v.topic.vitals()
	patience := 2 * v.hub.log.Lease()
	status, started, ok := v.underWay(p, p.beat != nil && now.Sub(p.beat.at) < patience)
	if !ok || status.Terminal() {
		return dialect.Heartbeat{}, false
	}
	if now.Sub(p.signAt) >= patience {
		status = dialect.Unattended
	}
	h := dialect.Heartbeat{Status: status, Head: head, At: v.cursor().String(), Time: event.At(now)}
	if !started.IsZero() {
		h.ElapsedMS = max(now.Sub(started).Milliseconds(), 0)
	}
	return h, true
}

// cursor is the viewer's position for a client. It may begin behind an event that it was not
// shown; after a restore the client would have to know which epoch that is of.
func (v *Viewer) cursor() Position {
	if v.at == (Position{Seq: v.req.Begins}) && v.topic.look(0, nil).head.Epoch != 0 {
		return v.req.After
	}
	return v.at
}

// underWay says how the viewer's run is, or the session's. A fresh beat of the session's
// owner knows best, after that the events that this process has seen. ok is false if no
// run is known.
func (v *Viewer) underWay(p pulse, fresh bool) (status event.Status, started time.Time, ok bool) {
	run, status, started := v.req.RunID, v.status, v.started
	if run == "" {
		run, status, started = p.run, p.status, p.started
	}
	if fresh && p.beat.RunID != "" && (run == "" || run == p.beat.RunID) {
		return p.beat.Status, p.beat.at.Add(-time.Duration(p.beat.ElapsedMS) * time.Millisecond), true
	}
	if status == "" {
		status = event.Pending
	}
	if started.IsZero() {
		started = v.req.Since
	}
	return status, started, run != ""
}
