package eventlog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// A Sink takes what a Watch delivers. Calls for one watch never overlap; they
// must not block.
type Sink interface {
	// Frame gets every frame after the watch's start, once, in order.
	Frame(Frame)
	// Beat gets signs of life of the session's owner, some may be missing.
	Beat(Beat)
	// Broken tells that the log does not hold what comes next (ErrGone); no
	// frame follows.
	Broken(error)
}

// A Watch follows one session. Close it.
type Watch struct {
	home *Live
	key  Key
	sink Sink
	sub  *nats.Subscription
	ctx  context.Context
	stop context.CancelFunc

	dropped int // by the subscription, guarded by home.mu

	mu      sync.Mutex
	last    Head // last delivered
	filling bool // a goroutine reads the log; live frames wait in ahead
	again   bool // look once more when it is done
	ahead   []Frame
	broken  bool
}

// maxAhead is how many live frames wait while a gap is filled; more are read
// from the log.
const maxAhead = 64

// Watch subscribes to a session and delivers every frame after from; it returns
// once live frames arrive, and reads what is between from and them.
func (lv *Live) Watch(ctx context.Context, k Key, from Head, sink Sink) (*Watch, error) {
	w, err := lv.subscribe(ctx, k, from, sink)
	if err != nil {
		return nil, err
	}
	go w.fill()
	return w, nil
}

// WatchHead is Watch from the end that the log has now. Before the first frame is
// delivered begin gets the one before it, which is the zero Frame in an empty log.
func (lv *Live) WatchHead(ctx context.Context, k Key, sink Sink, begin func(last Frame)) (*Watch, error) {
	w, err := lv.subscribe(ctx, k, Head{}, sink)
	if err != nil {
		return nil, err
	}
	last, err := lv.log.headFrame(ctx, k)
	if err != nil {
		w.Close()
		return nil, fmt.Errorf("watch %s: %w", k, err)
	}
	begin(last)
	w.mu.Lock()
	w.last = last.End()
	w.mu.Unlock()
	if !w.filled(nil) {
		go w.fill()
	}
	return w, nil
}

// subscribe returns a watch whose live frames wait until it is filled. The head
// is asked for behind the subscription, on the same connection: what was stored
// before the server knew the one is in the answer to the other.
func (lv *Live) subscribe(ctx context.Context, k Key, from Head, sink Sink) (*Watch, error) {
	wctx, stop := context.WithCancel(context.Background()) // that of ctx would be kept as long as the watch
	w := &Watch{home: lv, key: k, sink: sink, ctx: wctx, stop: stop, last: from, filling: true}
	subject := lv.log.liveSubject(k)
	lv.mu.Lock()
	if lv.watches[subject] != nil {
		lv.mu.Unlock()
		stop()
		return nil, fmt.Errorf("watch %s: already watched by this process", k)
	}
	lv.watches[subject] = w
	sub, err := lv.log.nc.ChanSubscribe(subject, lv.msgs)
	w.sub = sub
	lv.mu.Unlock()
	if err != nil {
		w.Close()
		return nil, unavailable(fmt.Errorf("watch %s: %w", k, err))
	}
	return w, nil
}

// Close ends the watch; a call to its sink may still be under way.
func (w *Watch) Close() {
	w.stop()
	w.home.mu.Lock()
	defer w.home.mu.Unlock()
	delete(w.home.watches, w.home.log.liveSubject(w.key))
	if w.sub != nil {
		_ = w.sub.Unsubscribe()
	}
}

// Head is the last frame delivered.
func (w *Watch) Head() Head {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// live takes a frame from the subscription.
func (w *Watch) live(f Frame) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.broken || f.Pos <= w.last.Pos:
	case w.filling:
		if len(w.ahead) < maxAhead {
			w.ahead = append(w.ahead, f)
		} else {
			w.again = true
		}
	case w.follows(f):
		w.deliver(f)
	default:
		w.ahead = append(w.ahead, f)
		w.gap("log")
	}
}

func (w *Watch) follows(f Frame) bool { return f.Prev == w.last.Pos && f.First == w.last.Seq+1 }

func (w *Watch) deliver(f Frame) {
	w.last = f.End()
	w.sink.Frame(f)
}

// beat takes a beat from the subscription. It tells where the log ends.
func (w *Watch) beat(b Beat) {
	w.mu.Lock()
	if b.Head > w.last.Seq && !w.filling && !w.broken {
		w.gap("check")
	}
	w.mu.Unlock()
	w.sink.Beat(b)
}

// gap has frames read from the log that are missing; how is what showed that, for the
// metrics. The caller holds mu.
func (w *Watch) gap(how string) {
	if fn := w.home.log.opts.Observe.Gap; fn != nil {
		fn(how)
	}
	w.check()
}

// Check compares the watch with the head of the log and fills what is missing:
// the loss of a last live message shows in no other way.
func (w *Watch) Check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.check()
}

// check begins to fill, or has that done once more if it is going on. The caller holds mu.
func (w *Watch) check() {
	switch {
	case w.broken:
	case w.filling:
		w.again = true
	default:
		w.filling = true
		go w.fill()
	}
}

// fill reads the log up to its head, until the live frames that came meanwhile follow.
// It has a goroutine of its own; whoever starts it has set filling.
func (w *Watch) fill() {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		err := w.fillOnce()
		if w.filled(err) {
			return
		}
		if err != nil && sleep(w.ctx, wait) != nil {
			return
		}
	}
}

// filled hands the live frames on that connect now, and reports whether the
// watch is live again.
func (w *Watch) filled(err error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if errors.Is(err, ErrGone) {
		w.broken, w.filling = true, false
		w.sink.Broken(err)
		return true
	}
	if err != nil {
		return w.ctx.Err() != nil
	}
	again := w.again
	for _, f := range w.ahead {
		if f.Pos <= w.last.Pos {
			continue
		}
		if !w.follows(f) {
			again = true
			break
		}
		w.deliver(f)
	}
	w.ahead, w.again, w.filling = nil, false, again
	return !again
}

// fillOnce delivers what the log holds after the last delivered frame.
func (w *Watch) fillOnce() error {
	select {
	case w.home.fillers <- struct{}{}:
		defer func() { <-w.home.fillers }()
	case <-w.ctx.Done():
		return w.ctx.Err()
	}
	head, err := w.home.log.Head(w.ctx, w.key)
	if err != nil {
		return err
	}
	from := w.Head()
	if head.Seq < from.Seq {
		return nil // the caller's from is ahead: it knows a newer frame
	}
	for f, err := range w.home.log.readAfter(w.ctx, w.key, from, head) {
		if err != nil {
			return err
		}
		w.mu.Lock()
		if f.First == w.last.Seq+1 {
			w.deliver(f)
		}
		w.mu.Unlock()
	}
	return w.ctx.Err()
}
