package stream

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/edge/dialect/parts"
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
	first, second, third, fourth := l.join(), l.join(), l.join(), l.join()
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
			out.pings(t, 3)
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

// pings reads n of them, before which nothing is told.
func (p *pipe) pings(t *testing.T, n int) {
	t.Helper()
	for n > 0 {
		line := p.line(t)
		if strings.Contains(line, "hello") {
			t.Errorf("it was told without the folds: %s", line)
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
