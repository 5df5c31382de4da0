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
	// Beat gets the signs of life of the session's owner. Some may be missing.
	Beat(Beat)
	// Broken tells that the log no longer holds what comes next (ErrGone), or holds
	// something else than a frame. No frame follows.
	Broken(error)
}

// A Watch follows one session. It is live: each frame of the subscription that follows
// the last one is delivered. Or it is filling, because a frame is missing or may be: then
// a goroutine delivers what the log has, and frames of the subscription wait until they
// follow.
type Watch struct {
	home *Live
	key  Key
	sink Sink
	sub  *nats.Subscription
	ctx  context.Context // ends with the watch
	stop context.CancelFunc

	dropped int // messages of the subscription, guarded by home.mu

	mu      sync.Mutex
	last    Head    // of the last frame delivered
	filling bool    // else it is live, or broken
	again   bool    // filling: read the log once more before it is live
	ahead   []Frame // filling: those that wait
	broken  bool    // what follows cannot be had from the log: nothing is delivered any more
}

// maxAhead is how many live frames wait while a gap is filled; more are read
// from the log.
const maxAhead = 64

// Watch follows a session from the end that its log has now. begin gets the last frame
// that is there, the zero Frame if there is none, before the sink gets those after it. A
// process can watch a session once at a time. ErrUnavailable if the log cannot be
// reached. The watch does not end with ctx; close it.
func (lv *Live) Watch(ctx context.Context, k Key, sink Sink, begin func(last Frame)) (*Watch, error) {
	w, err := lv.subscribe(k, sink)
	if err != nil {
		return nil, err
	}
	// The head is asked for behind the subscription, on the same connection: a frame that
	// was stored before the server knew of the subscription is in the answer.
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

// subscribe returns a watch that keeps live frames until it is filled.
func (lv *Live) subscribe(k Key, sink Sink) (*Watch, error) {
	ctx, stop := context.WithCancel(context.Background())
	w := &Watch{home: lv, key: k, sink: sink, ctx: ctx, stop: stop, filling: true}
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

// Head is that of the last frame delivered.
func (w *Watch) Head() Head {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// live takes a frame of the subscription.
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

// filled delivers the waiting frames that follow now. It reports whether filling is over:
// the watch is live, broken or closed.
func (w *Watch) filled(err error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if errors.Is(err, ErrGone) || errors.Is(err, errDamaged) {
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
	head, err := w.askHead()
	if err != nil {
		return err
	}
	from := w.Head()
	if anew(from, head) {
		return fmt.Errorf("watch %s: event %d was there, and the log ends at %d: %w", w.key, from.Seq, head.Seq, ErrGone)
	}
	if head.Seq <= from.Seq {
		return nil // nothing is missing, or the leader knows less than the watch
	}
	done, err := w.turn(w.home.fillers)
	if err != nil {
		return err
	}
	defer done()
	for f, err := range w.home.log.readAfter(w.ctx, w.key, from, head) {
		if err != nil {
			return err
		}
		w.mu.Lock()
		if w.follows(f) {
			w.deliver(f)
		}
		w.mu.Unlock()
	}
	if at := w.Head(); at.Seq < head.Seq && w.ctx.Err() == nil {
		return fmt.Errorf("watch %s: what comes after event %d does not follow it: %w", w.key, at.Seq, ErrGone)
	}
	return w.ctx.Err()
}

// askHead reads the head of the log. A partition without a leader holds up none of another.
func (w *Watch) askHead() (Head, error) {
	done, err := w.turn(w.home.askers[w.key.partition(len(w.home.askers))])
	if err != nil {
		return Head{}, err
	}
	defer done()
	return w.home.log.Head(w.ctx, w.key)
}

// turn waits for one of the places that turns has. Give it back.
func (w *Watch) turn(turns chan struct{}) (done func(), err error) {
	select {
	case turns <- struct{}{}:
		return func() { <-turns }, nil
	case <-w.ctx.Done():
		return nil, w.ctx.Err()
	}
}

// anew reports whether a session's log was emptied since it ended at from, by the head
// that it has now. A leader that knows less than another one did gives an older head,
// not none, and none that is newer with fewer events.
func anew(from, head Head) bool {
	return from.Seq > 0 && (head.Pos == 0 || head.Pos > from.Pos && head.Seq <= from.Seq)
}
