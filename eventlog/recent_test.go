package eventlog

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/runlog-dev/runlog/event"
)

// frames reads a session after a position and wants it dense.
func frames(t *testing.T, l *Log, k Key, after event.Seq, head Head) (requests uint64, err error) {
	t.Helper()
	before, next := l.nc.Stats().OutMsgs, after+1
	for f, err := range l.Read(t.Context(), k, after, head) {
		if err != nil {
			return 0, err
		}
		if f.First > next || f.Last < next || f.Time.IsZero() {
			t.Fatalf("after %d came %d-%d of %s", next-1, f.First, f.Last, f.Time)
		}
		next = f.Last + 1
	}
	if next != head.Seq+1 {
		t.Fatalf("after %d: read through %d of %d", after, next-1, head.Seq)
	}
	return l.nc.Stats().OutMsgs - before, nil
}

// Many sessions share a stream. What one of them stored lately is read frame by
// frame, at a cost that does not depend on the others.
func TestLittleIsReadFrameByFrame(t *testing.T) {
	l := open(t, Options{})
	k := Key{"default", "s"}
	w := l.Writer(k, Head{})
	defer w.Close()
	const stored = 100
	for range stored {
		appendAll(t, w, 1)
	}
	for _, missed := range []event.Seq{1, 2, maxSteps} {
		if n, err := frames(t, l, k, stored-missed, w.Head()); err != nil || n != uint64(missed) {
			t.Errorf("%d missed took %d requests, %v", missed, n, err)
		}
	}
	for _, missed := range []event.Seq{maxSteps + 1, 50, stored} { // a batch, and what it takes to find its start
		if n, err := frames(t, l, k, stored-missed, w.Head()); err != nil || n > 8 {
			t.Errorf("%d missed took %d requests, %v", missed, n, err)
		}
	}
}

func TestRecentFramesOfAnySizeAreDense(t *testing.T) {
	l := open(t, Options{})
	k := Key{"default", "s"}
	w := l.Writer(k, Head{})
	defer w.Close()
	for _, n := range []int{1, 300, 1, 1, 40, 1, 1, 1, 200, 3} {
		list := make([]event.Event, n)
		for i := range list {
			list[i] = custom(i)
		}
		if _, err := w.Append(list...); err != nil {
			t.Fatal(err)
		}
		if err := w.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for after := range w.Head().Seq {
		if _, err := frames(t, l, k, after, w.Head()); err != nil {
			t.Fatalf("after %d: %v", after, err)
		}
	}
}

func TestRecentFramesThatAreGone(t *testing.T) {
	l := open(t, Options{})
	k := Key{"default", "s"}
	w := l.Writer(k, Head{})
	defer w.Close()
	for range 10 {
		appendAll(t, w, 1)
	}
	s, err := l.js.Stream(t.Context(), l.stream(k))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(t.Context(), jetstream.WithPurgeSubject(l.subject(k)), jetstream.WithPurgeSequence(w.Head().Pos-2)); err != nil {
		t.Fatal(err)
	}
	for after := range event.Seq(10) {
		_, err := frames(t, l, k, after, w.Head())
		if want := after < 7; errors.Is(err, ErrGone) != want || err != nil && !want {
			t.Errorf("after %d: %v", after, err)
		}
	}
}

// A position that is another session's, as in a stream that was restored under a process
// which knows the old one, has nothing for this session.
func TestNoFrameOfAnotherSession(t *testing.T) {
	l := open(t, Options{})
	a, b := Key{"default", "a"}, Key{"default", "b"}
	w := l.Writer(a, Head{})
	defer w.Close()
	appendAll(t, w, 1)
	if f, err := l.frameAt(t.Context(), b, w.Head().Pos); !errors.Is(err, ErrNotFound) {
		t.Errorf("%v holds event %d of %s: %v", b, f.Last, a, err)
	}
}
