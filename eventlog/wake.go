package eventlog

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/runlog-dev/runlog/event"
)

// retickets are the pauses after a refusal: on a replicated stream a ticket is
// still refused for some milliseconds after the last one was released.
var retickets = []time.Duration{20 * time.Millisecond, 100 * time.Millisecond, time.Second}

// wakes knows the sessions that are being woken in the background, each by one goroutine,
// however many commands come meanwhile. Safe for concurrent use.
type wakes struct {
	mu sync.Mutex
	of map[Key]chan struct{} // takes word of a command that came after the last try
}

// Wake makes sure that a worker will look at the session: it tries to place a
// ticket until one is accepted or the inbox is empty, which means that the
// commands were taken. The first try is made before it returns, further ones in the
// background. What even they miss, the janitor finds.
func (l *Log) Wake(ctx context.Context, k Key) error {
	err := l.Ticket(ctx, k)
	if !errors.Is(err, ErrTicketed) {
		return err
	}
	if again, first := l.wakes.begin(k); first {
		go l.rewake(context.WithoutCancel(ctx), k, again)
	}
	return nil
}

// begin returns a channel on which more commands are told, for the goroutine that wakes
// the session. If there is one already it is told, and first is false.
func (w *wakes) begin(k Key) (again chan struct{}, first bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if again, ok := w.of[k]; ok {
		select {
		case again <- struct{}{}:
		default: // it is known
		}
		return nil, false
	}
	if w.of == nil {
		w.of = map[Key]chan struct{}{}
	}
	w.of[k] = make(chan struct{}, 1)
	return w.of[k], true
}

// end reports whether nothing has come since the last try.
func (w *wakes) end(k Key) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.of[k]) > 0 {
		return false
	}
	delete(w.of, k)
	return true
}

// rewake tries until there is nothing more to try.
func (l *Log) rewake(ctx context.Context, k Key, again <-chan struct{}) {
	for {
		for i := 0; i < len(retickets); i++ {
			select {
			case <-again: // it has tried by itself
				i = -1
			case <-time.After(retickets[i]):
				if l.woken(ctx, k) {
					i = len(retickets)
				}
			}
		}
		if l.wakes.end(k) {
			return
		}
	}
}

// woken tries once more, unless the commands were taken; true: a worker will look,
// or has looked.
func (l *Log) woken(ctx context.Context, k Key) bool {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if waits, err := l.waits(ctx, k); err == nil && !waits {
		return true
	}
	return l.Ticket(ctx, k) == nil
}

// waits reports whether a command is in the session's inbox. It looks at the first one
// alone: others may be many and large.
func (l *Log) waits(ctx context.Context, k Key) (bool, error) {
	for _, kind := range []event.Kind{event.Cancel, event.Invoke} {
		_, err := l.leaderGet(ctx, inboxStream, getRequest{Seq: 1, NextBy: inboxSubject(k, kind)})
		if !errors.Is(err, ErrNotFound) {
			return err == nil, err
		}
	}
	return false, nil
}
