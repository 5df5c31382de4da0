package stream

import (
	"context"
	"time"

	"github.com/runlog-dev/runlog/edge/room"
	"github.com/runlog-dev/runlog/event"
	"github.com/runlog-dev/runlog/eventlog"
)

// A page is a part of the log, or why it could not be read.
type page struct {
	list []*entry
	end  eventlog.Head // of the last frame
	cost int64         // see pageCost
	err  error
}

// readPage reads from the log what follows the viewer's position, Options.PageBytes at
// once and nothing beyond head. While a page is shown the next one is read. While it waits
// for its turn out shows that the stream lives.
func (v *Viewer) readPage(ctx context.Context, out *output, head eventlog.Head) ([]*entry, error) {
	if list := v.ahead; len(list) > 0 && list[0].Seq == v.at.Seq+1 {
		v.ahead = nil
		return list, nil
	}
	p, ok := v.takeNext()
	if ok {
		v.reads().takePage(p.cost)
	} else {
		p = v.readRoomily(ctx, func(most int) page { return v.readNow(ctx, out, head, most) })
	}
	if p.err != nil {
		return nil, p.err
	}
	v.page = p.end
	for len(p.list) > 0 && p.list[0].Seq <= v.at.Seq {
		p.list = p.list[1:]
	}
	size := 0
	for _, e := range p.list {
		size += len(e.line) + 1
	}
	v.hub.opts.Observe.Paged(len(p.list), size)
	if p.end.Seq < head.Seq {
		v.next = v.prefetch(ctx, p.end, head)
	}
	return p.list, nil
}

// readNow reads a page when it is the tenant's turn.
func (v *Viewer) readNow(ctx context.Context, out *output, head eventlog.Head, most int) page {
	var done func()
	err := v.await(ctx, out, func(ctx context.Context, came time.Time) (err error) {
		done, err = v.hub.pages.takeSince(ctx, v.req.Key.Tenant, came)
		return err
	})
	if err != nil {
		return page{err: err}
	}
	defer done()
	from := v.page
	if from.Seq != v.at.Seq {
		from = eventlog.Head{Seq: v.at.Seq}
	}
	return v.hub.read(ctx, v.topic, from, head, most)
}

func (h *Hub) read(ctx context.Context, t *topic, from, head eventlog.Head, most int) (p page) {
	frames, err := h.log.Page(ctx, t.key, from, head, most)
	if err != nil {
		return page{err: err}
	}
	var d event.Decoder
	size, largest := 0, 0
	for _, f := range frames {
		list := t.entries(&d, f)
		for _, e := range list {
			e.private = true
			largest = max(largest, len(e.line))
		}
		size += len(f.Data)
		p.list, p.end = append(p.list, list...), f.End()
	}
	p.cost = pageCost(size, largest)
	return p
}

// A nextPage is on its way from the log while the one before it is shown.
type nextPage struct {
	after event.Seq
	got   chan page       // gets the page; whoever takes it gives back the place in prefetches
	gone  <-chan struct{} // closed when the page will not come any more
	share *room.Share     // of whoever has the page
	stop  context.CancelFunc
}

// prefetch begins to read a page, unless too many pages are being read in advance or
// wait for their viewers, or there is no room: then it returns nil, and the page is read
// when it is needed.
func (v *Viewer) prefetch(ctx context.Context, from, head eventlog.Head) *nextPage {
	h, t := v.hub, v.topic
	share := &room.Share{Room: &h.replays, Tenant: v.req.Key.Tenant}
	if !share.Grow(pageCost(h.opts.PageBytes, 0)) {
		return nil
	}
	select {
	case h.prefetches <- struct{}{}:
	default:
		share.GiveUp()
		return nil
	}
	ctx, stop := context.WithCancel(ctx)
	n := &nextPage{after: from.Seq, got: make(chan page), gone: ctx.Done(), stop: stop, share: share}
	go func() {
		p := h.read(ctx, t, from, head, h.opts.PageBytes)
		share.Set(p.cost)
		select {
		case n.got <- p:
		case <-ctx.Done():
			share.GiveUp()
			<-h.prefetches
		}
	}()
	return n
}

// dropNext gives up the page that is read ahead, if one is.
func (v *Viewer) dropNext() {
	if v.next != nil {
		v.next.stop()
		v.next = nil
	}
}

// takeNext returns the page that was read ahead, if it is the one that follows and
// could be read.
func (v *Viewer) takeNext() (p page, ok bool) {
	n := v.next
	v.next = nil
	if n == nil {
		return p, false
	}
	defer n.stop()
	if n.after != v.at.Seq {
		return p, false
	}
	select {
	case p = <-n.got:
		n.share.GiveUp()
		<-v.hub.prefetches
		return p, p.err == nil
	case <-n.gone: // the context of the one who asked for it has ended
		return p, false
	}
}
