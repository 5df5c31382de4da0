package eventlog

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/runlog-dev/runlog/event"
)

// purge removes all that the log holds of a session, or what the options leave of that.
func purge(t *testing.T, l *Log, k Key, less ...jetstream.StreamPurgeOpt) {
	t.Helper()
	s, err := l.js.Stream(t.Context(), l.stream(k))
	if err == nil {
		err = s.Purge(t.Context(), append(less, jetstream.WithPurgeSubject(l.subject(k)))...)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// purgeBefore removes the frames before the one that has an event.
func purgeBefore(t *testing.T, l *Log, k Key, seq event.Seq) {
	t.Helper()
	head, err := l.Head(t.Context(), k)
	var f Frame
	if err == nil {
		f, err = first(l.Read(t.Context(), k, seq-1, head))
	}
	if err != nil {
		t.Fatal(err)
	}
	purge(t, l, k, jetstream.WithPurgeSequence(f.Pos))
}

// brokenOff waits until a watch is told that the log does not go on, and returns why.
func (c *collector) brokenOff(t *testing.T) error {
	t.Helper()
	timeout := time.After(20 * time.Second)
	for {
		c.mu.Lock()
		err := c.err
		c.mu.Unlock()
		if err != nil {
			return err
		}
		select {
		case <-c.more:
		case <-timeout:
			t.Fatal("the watch goes on")
		}
	}
}

// A session that is purged whole breaks its watches off, whether there is nothing after
// it or somebody writes it anew, fewer events or more, and none of the new ones is
// taken for the next of the old ones.
func TestAWholePurgeBreaksWatchesOff(t *testing.T) {
	for name, anew := range map[string]int{"nothing": 0, "fewer": 2, "as many": 5, "more": 9} {
		t.Run(name, func(t *testing.T) {
			l := open(t, Options{})
			k := Key{"default", "s"}
			w := l.Writer(k, Head{})
			defer w.Close()
			c := newCollector()
			watch, err := follow(t, l).Watch(t.Context(), k, c, fromNothing)
			if err != nil {
				t.Fatal(err)
			}
			defer watch.Close()
			appendAll(t, w, 5)
			c.await(t, 5)
			purge(t, l, k)
			other := l.Writer(k, Head{})
			defer other.Close()
			for range anew {
				if _, err := other.Append(custom(1)); err != nil {
					t.Fatal(err)
				}
			}
			if err := other.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			watch.Check()
			if err := c.brokenOff(t); !errors.Is(err, ErrGone) {
				t.Errorf("it says %v", err)
			}
			checkDense(t, c.await(t, 5), 1, 5)
		})
	}
}

// Whoever reads on in a session that was purged whole is told so, wherever he was.
func TestAWholePurgeIsGoneForReaders(t *testing.T) {
	l := open(t, Options{})
	k := Key{"default", "s"}
	w := l.Writer(k, Head{})
	defer w.Close()
	for range 200 {
		if _, err := w.Append(custom(1)); err != nil {
			t.Fatal(err)
		}
		if err := w.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	page, err := l.Page(t.Context(), k, Head{}, w.Head(), 100)
	if err != nil {
		t.Fatal(err)
	}
	purge(t, l, k)
	if _, err := l.Page(t.Context(), k, page[len(page)-1].End(), w.Head(), 1000); !errors.Is(err, ErrGone) {
		t.Errorf("the next page: %v", err)
	}
	for _, after := range []event.Seq{0, 100} {
		if _, err := first(l.Read(t.Context(), k, after, w.Head())); !errors.Is(err, ErrGone) {
			t.Errorf("after %d: %v", after, err)
		}
	}
}
