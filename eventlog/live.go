package eventlog

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/runlog-dev/runlog/event"
)

// A Beat is what the owner of a session says about it every few seconds, on the
// session's live subject. Beats may be lost.
type Beat struct {
	Worker    string       `json:"worker"`
	RunID     string       `json:"run_id,omitempty"`
	Status    event.Status `json:"status,omitempty"`
	ElapsedMS int64        `json:"elapsed_ms,omitempty"` // of the run
	Head      event.Seq    `json:"head"`                 // last committed event
}

// Beat tells whoever follows the session that its owner is alive.
func (l *Log) Beat(k Key, b Beat) error {
	msg := nats.NewMsg(l.liveSubject(k))
	msg.Header.Set(hdrBeat, "1")
	msg.Data = event.Encode(b)
	if err := l.nc.PublishMsg(msg); err != nil {
		return unavailable(fmt.Errorf("beat of %s: %w", k, err))
	}
	return nil
}

// OnLive calls fn for each live frame and beat of the session as they come, from one
// goroutine. Exactly one of the arguments is set. Some may be missing: it is for an owner
// that watches out for other owners. Viewers use Live.
func (l *Log) OnLive(k Key, fn func(*Frame, *Beat)) (stop func(), err error) {
	sub, err := l.nc.Subscribe(l.liveSubject(k), func(m *nats.Msg) {
		dispatch(k, m, func(f Frame) { fn(&f, nil) }, func(b Beat) { fn(nil, &b) })
	})
	if err != nil {
		return nil, unavailable(fmt.Errorf("follow %s: %w", k, err))
	}
	return func() { _ = sub.Unsubscribe() }, nil
}

// dispatch hands a live message on as the beat or frame that it is. What is neither is
// dropped.
func dispatch(k Key, m *nats.Msg, frame func(Frame), beat func(Beat)) {
	if m.Header.Get(hdrBeat) != "" {
		var b Beat
		if json.Unmarshal(m.Data, &b) == nil {
			beat(b)
		}
		return
	}
	if f, err := messageFrame(k, m); err == nil {
		frame(f)
	}
}

// Live follows many sessions with few goroutines: all watches of a process share one
// channel and one dispatcher. It is safe for concurrent use.
type Live struct {
	log     *Log
	msgs    chan *nats.Msg
	fillers chan struct{}   // bounds how many gaps are filled at once
	askers  []chan struct{} // and, for each partition, how many ask for a head: its leader may say nothing for long

	mu      sync.Mutex
	watches map[string]*Watch // by live subject
}

// liveBuffer is how many live messages may wait for the dispatcher; what comes
// beyond that is dropped and found again through the chain of frames.
const liveBuffer = 1 << 14

// atOnce is how many gaps are filled at once, and how many heads of a partition asked for.
const atOnce = 16

// NewLive returns the follower of a process. Run it.
func (l *Log) NewLive() *Live {
	lv := &Live{log: l, msgs: make(chan *nats.Msg, liveBuffer), fillers: make(chan struct{}, atOnce), watches: map[string]*Watch{}}
	for range l.opts.Partitions {
		lv.askers = append(lv.askers, make(chan struct{}, atOnce))
	}
	return lv
}

// Run dispatches until ctx ends. After every reconnect, and when messages were
// dropped, all watches are checked against the heads of their logs.
func (lv *Live) Run(ctx context.Context) error {
	status := lv.log.nc.StatusChanged(nats.CONNECTED)
	defer lv.log.nc.RemoveStatusListener(status)
	dropped := time.NewTicker(time.Second)
	defer dropped.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case m := <-lv.msgs:
			lv.dispatch(m)
		case <-status:
			lv.checkAll()
		case <-dropped.C:
			if lv.anyDropped() {
				lv.checkAll()
			}
		}
	}
}

// dispatch hands a live message to its session's watch.
func (lv *Live) dispatch(m *nats.Msg) {
	lv.mu.Lock()
	w := lv.watches[m.Subject]
	lv.mu.Unlock()
	if w == nil {
		return
	}
	dispatch(w.key, m, w.live, w.beat)
}

// anyDropped reports whether messages of a watch were dropped since it was asked last.
func (lv *Live) anyDropped() bool {
	lv.mu.Lock()
	defer lv.mu.Unlock()
	any := false
	for _, w := range lv.watches {
		if n, err := w.sub.Dropped(); err == nil && n > w.dropped {
			w.dropped, any = n, true
		}
	}
	return any
}

// checkAll compares every watch with the head of its log and fills what is
// missing, in the background.
func (lv *Live) checkAll() {
	lv.mu.Lock()
	defer lv.mu.Unlock()
	for _, w := range lv.watches {
		go w.Check()
	}
}
