package stream

import (
	"context"
	"sync"
	"time"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/eventlog"
)

// Viewers of one view that want a snapshot of a session at the same time share one: when
// an edge was restarted all clients of a large conversation come at once. Who finds that
// one is being made waits, with nothing in memory. It will do if it was begun after he
// asked, or if the log still ends where it does. It is kept as long as somebody sends it.
type stands struct {
	mu sync.Mutex
	of map[standKey]*stand
}

type standKey struct {
	eventlog.Key
	view
	dialect.Kind
}

// A stand is where viewers meet for a snapshot. Its fields are guarded by stands.mu.
type stand struct {
	key    standKey
	here   int           // viewers that look for a snapshot
	begun  int           // how many were begun
	making chan struct{} // closed when the one that is being made is done; nil: none is
	last   *snapshot     // as long as somebody sends it
}

// enter counts a viewer in, which asks now: what was begun by then is no news to it.
func (all *stands) enter(k standKey) (st *stand, asked int) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if st = all.of[k]; st == nil {
		if st = (&stand{key: k}); all.of == nil {
			all.of = map[standKey]*stand{}
		}
		all.of[k] = st
	}
	st.here++
	return st, st.begun
}

func (all *stands) leave(st *stand) {
	all.mu.Lock()
	defer all.mu.Unlock()
	st.here--
	all.tidy(st)
}

// tidy forgets a stand at which nobody is and nothing is shown. The caller holds mu.
func (all *stands) tidy(st *stand) {
	if st.here == 0 && st.last == nil {
		delete(all.of, st.key)
	}
}

// take counts a viewer in that sends a snapshot which was begun after asked or shows the
// log up to head. Without one making is the one to wait for; nil: the viewer is to make
// one, and to call made.
func (all *stands) take(st *stand, asked int, head eventlog.Head) (s *snapshot, making <-chan struct{}) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if s = st.last; s != nil && (s.nth > asked || s.head.Pos == head.Pos && s.head.Epoch == head.Epoch) {
		s.viewers++
		return s, nil
	}
	if st.making == nil {
		st.making = make(chan struct{})
		st.begun++
		return nil, nil
	}
	return nil, st.making
}

// made shows what was made to those who wait for it; nil: nothing was.
func (all *stands) made(st *stand, s *snapshot) {
	all.mu.Lock()
	defer all.mu.Unlock()
	close(st.making)
	st.making = nil
	if s != nil {
		s.stand, s.nth, s.viewers = st, st.begun, 1
		st.last = s
	}
}

// drop counts a viewer out that does not send a snapshot any more.
func (all *stands) drop(s *snapshot) {
	if s.stand == nil {
		s.hold.Drop()
		return
	}
	all.mu.Lock()
	defer all.mu.Unlock()
	if s.viewers--; s.viewers > 0 {
		return
	}
	s.hold.Drop()
	if s.stand.last == s {
		s.stand.last = nil
		all.tidy(s.stand)
	}
}

// shows reports whether a snapshot is sent that was there when the viewer asked.
func (all *stands) shows(st *stand) bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	return st.last != nil
}

// sharedSnapshot returns a snapshot that others send, or makes one that they can send.
func (v *Viewer) sharedSnapshot(ctx context.Context, kind dialect.Kind, patient bool) (s *snapshot, err error) {
	all, came := &v.hub.stands, time.Now()
	st, asked := all.enter(standKey{v.req.Key, v.view, kind})
	defer all.leave(st)
	var head eventlog.Head
	if all.shows(st) {
		if head, err = v.hub.log.Head(ctx, v.req.Key); err != nil {
			return nil, err
		}
	}
	await := func(ctx context.Context) error {
		for {
			var making <-chan struct{}
			if s, making = all.take(st, asked, head); making == nil {
				return nil
			}
			select {
			case <-making:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	}
	if patient {
		err = await(ctx)
	} else {
		err = v.hub.patiently(ctx, came, await)
	}
	if s != nil || err != nil {
		return s, err
	}
	defer func() { all.made(st, s) }()
	return v.makeSnapshot(ctx, kind, patient, came)
}
