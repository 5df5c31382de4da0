package stream

import (
	"context"
	"slices"
	"time"

	"github.com/runlog-dev/runlog/edge/room"
)

// A reading is what a viewer that catches up has in memory for itself alone: a page of the
// log, and deltas that are held back to be merged. Its client may stop reading in the
// middle of them, so they are counted, until the viewer takes what follows from its ring.
// Where there is no room it reads smaller pages and merges less.
type reading struct {
	share room.Share
	page  int64 // of the share
	merge int64
}

// smallPage is how many bytes are read, or merged, where there is no room for more.
const smallPage = 16 << 10

// pageCost is about what bytes of the log take in memory: themselves and decoded, and the
// largest event as it is sent.
func pageCost(bytes, largest int) int64 {
	if largest < flushAt {
		largest = 0
	}
	return int64(2*bytes + 3*largest)
}

// reads returns what the viewer is counted by, which it has from now on.
func (v *Viewer) reads() *reading {
	if v.reading == nil {
		v.reading = &reading{share: room.Share{Room: &v.hub.replays, Tenant: v.req.Key.Tenant}}
	}
	return v.reading
}

// hasRead gives up what is counted, if anything is.
func (v *Viewer) hasRead() {
	if v.reading != nil {
		v.reading.share.GiveUp()
		v.reading = nil
	}
}

// takePage counts a page in place of the one before it.
func (r *reading) takePage(cost int64) {
	r.page = cost
	r.share.Set(r.page + r.merge)
}

// roomFor counts most bytes of the log, or fewer where there is no room for them, and
// returns how many.
func (r *reading) roomFor(most int) int {
	if more := pageCost(most, 0) - r.page; more > 0 && !r.share.Grow(more) {
		return min(most, smallPage)
	}
	r.page = max(r.page, pageCost(most, 0))
	return most
}

// mergeCost is how often merged text is in memory while it is sent: in the event's data,
// its line and its message, and before that as it was gathered.
const mergeCost = 4

// mergeMore makes room in text for n more bytes, and reports whether there is any.
func (r *reading) mergeMore(text []byte, n int) ([]byte, bool) {
	if len(text)+n <= cap(text) {
		return text, true
	}
	want := 2 * (len(text) + n)
	if want > smallPage {
		cost := int64(mergeCost * want)
		if more := cost - r.merge; more > 0 && !r.share.Grow(more) {
			return text, false
		}
		r.merge = max(r.merge, cost)
	}
	return slices.Grow(text, want-len(text)), true
}

// readRoomily reads a page. A single frame may be larger than there is room for: then it
// is let go, and read again when there is.
func (v *Viewer) readRoomily(ctx context.Context, read func(most int) page) page {
	r := v.reads()
	for {
		most := r.roomFor(v.hub.opts.PageBytes)
		p := read(most)
		r.takePage(p.cost)
		if p.err != nil || p.cost <= pageCost(most, 0) || r.share.Fits() {
			return p
		}
		if err := v.awaitRoom(ctx, p.cost); err != nil {
			return page{err: err}
		}
	}
}

// awaitRoom waits for room for a page that was let go.
func (v *Viewer) awaitRoom(ctx context.Context, cost int64) error {
	r := v.reading
	r.takePage(0)
	err := v.hub.patiently(ctx, time.Time{}, func(ctx context.Context) error { return r.share.Await(ctx, cost) })
	if err == nil {
		r.page = cost
	}
	return err
}
