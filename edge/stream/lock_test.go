package stream

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/edge/dialect/native"
	"github.com/runlog-dev/runlog/edge/dialect/parts"
	"github.com/runlog-dev/runlog/event"
)

func (p *place) hasCome() bool {
	select {
	case <-p.turn:
		return true
	default:
		return false
	}
}

// Who waits gets the lock in the order in which they came; who leaves holds nobody up,
// though his turn has just come.
func TestALockIsGivenInOrder(t *testing.T) {
	var l lock
	l.Lock()
	at := time.Now()
	first, second, fourth := l.join(at), l.join(at.Add(1)), l.join(at.Add(3))
	third := l.join(at.Add(2)) // comes back
	l.leave(second)
	l.Unlock()
	if !first.hasCome() || third.hasCome() || l.TryLock() {
		t.Error("the lock was not given to the first")
	}
	l.Unlock()
	l.leave(third) // whose turn has come
	if second.hasCome() || !fourth.hasCome() {
		t.Error("the lock was not given on")
	}
	l.Unlock()
	if !l.TryLock() {
		t.Error("the lock is not free")
	}
}

// Who waits for the folds while somebody loads a large conversation is shown that the
// stream lives, goes on when it gets them, and can be called away.
func TestWhoWaitsForFoldsLives(t *testing.T) {
	l := openLog(t)
	sub := answers(1)[1]
	sub.RunID, sub.Agent = "sub", "helper"
	fill(t, l, append(answers(2), sub)...)
	h := newHub(t, l, Options{Ping: time.Millisecond})
	for name, runID := range map[string]string{"to tell": "r", "to know whose a run is": "other"} {
		t.Run(name, func(t *testing.T) {
			v, err := h.View(t.Context(), Request{Key: key, RunID: runID, Dialect: parts.Dialect{}, Transport: SSE{}})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			folds, out, ended := &v.topic.fold.mu, newPipe(), make(chan error, 1)
			folds.Lock()
			go func() {
				defer v.Close()
				ended <- v.Serve(ctx, out)
				out.Close()
			}()
			out.pings(t, 3, "hello")
			if runID == "r" {
				folds.Unlock()
				for !strings.Contains(out.line(t), "hello") {
				}
				folds.Lock()
			}
			cancel()
			_, _ = io.Copy(io.Discard, out.rd) // to the end of Serve
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("it ended with %v", err)
			}
			folds.Unlock()
		})
	}
}

// So is who waits for his turn to read the log.
func TestWhoWaitsToReadLives(t *testing.T) {
	l := openLog(t)
	w := newWriter(t, l)
	write(t, w, slices.Repeat([]event.Type{event.RunStarted}, 200)...)
	h := newHub(t, l, Options{Ping: time.Millisecond, PageReaders: 1, RingEvents: 1, PageBytes: 1500})
	done, err := h.pages.take(t.Context(), "other")
	if err != nil {
		t.Fatal(err)
	}
	v, err := h.View(t.Context(), Request{Key: key, NoFollow: true, Dialect: native.Dialect{}, Transport: SSE{}})
	if err == nil {
		_, err = v.Prepare(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	out, ended := newPipe(), make(chan error, 1)
	go func() {
		ended <- v.Serve(t.Context(), out)
		out.Close()
	}()
	out.pings(t, 3, "event: run.started")
	done()
	if rest, _ := io.ReadAll(out.rd); strings.Count(string(rest), "event: run.started") != 200 {
		t.Errorf("got %q", rest)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A client that takes no sign of life while its viewer waits for the folds holds up no
// other viewer of the session.
func TestWhoTakesNoSignOfLifeHoldsUpNobody(t *testing.T) {
	s := newFoldedSession(t, answers(1))
	s.hub.opts.Ping = time.Millisecond
	folds, ctx := &s.topic.fold.mu, t.Context()
	v, out := s.view(t, parts.Dialect{}), &stalled{nobody{io.Discard}, make(chan struct{}, 1), make(chan struct{})}
	waits := make(chan error, 1)
	folds.Lock()
	go func() { waits <- v.lockFolds(ctx, newOutput(out, time.Hour)) }()
	<-out.writes
	folds.Unlock()
	if err := s.view(t, parts.Dialect{}).lockFolds(ctx, nil); err != nil {
		t.Fatal(err)
	}
	folds.Unlock()
	close(out.takes)
	if err := <-waits; err != nil {
		t.Error(err)
	}
	folds.Unlock()
}

// A stalled client takes nothing before takes is closed.
type stalled struct {
	nobody
	writes chan struct{} // gets one when something is written
	takes  chan struct{}
}

func (s *stalled) Write(b []byte) (int, error) {
	select {
	case s.writes <- struct{}{}:
	default:
	}
	<-s.takes
	return len(b), nil
}

// pings reads n of them, before which nothing of what is told has come.
func (p *pipe) pings(t *testing.T, n int, told string) {
	t.Helper()
	for n > 0 {
		line := p.line(t)
		if strings.Contains(line, told) {
			t.Fatalf("it did not wait: %s", line)
		}
		if strings.HasPrefix(line, ": ping") {
			n--
		}
	}
}

// A flusher waits for nobody's folds.
func TestFlushersDoNotWaitForFolds(t *testing.T) {
	s := newFoldedSession(t, answers(1))
	v := s.view(t, parts.Dialect{})
	s.topic.fold.mu.Lock()
	defer s.topic.fold.mu.Unlock()
	var into [aFew]*entry
	for _, e := range s.topic.look(0, into[:]).entries {
		if v.folding(e) == nil {
			continue
		}
		if _, err := v.wire(t.Context(), &s.hub.newFlusher().out, e); !errors.Is(err, errStuck) {
			t.Errorf("%s: %v", e.Type, err)
		}
		return
	}
	t.Error("no event needs the folds")
}
