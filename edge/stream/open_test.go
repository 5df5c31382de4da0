package stream

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/internal/testservers"
)

// A session is opened by its first viewer, while the log does not answer. When that
// one leaves it is let go at once; who waits for the same session is not: the opening
// goes on for them, or they begin it anew.
func TestWhoOpensASessionMayLeave(t *testing.T) {
	c := testservers.NATS(t, 1)
	way := testservers.StartLossy(t, c.Node(0).Addr())
	l, _ := dialLog(t, way.URL())
	fill(t, l, said("x"))
	h := newHub(t, l, Options{Linger: time.Hour})
	way.Stall()
	view := func() (leave context.CancelCauseFunc, answer chan error) {
		ctx, leave := context.WithCancelCause(t.Context())
		answer = make(chan error, 1)
		go func() {
			v, err := h.View(ctx, Request{Key: key})
			if err == nil {
				t.Cleanup(v.Close)
			}
			answer <- err
		}()
		return leave, answer
	}
	waitViewers := func(n int) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			h.mu.Lock()
			tp := h.topics[key]
			got := 0
			if tp != nil {
				got = tp.viewers
			}
			h.mu.Unlock()
			if got == n {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d viewers, not %d", got, n)
			}
		}
	}
	why := errors.New("the edge is going away")
	for range 10 { // both are there to be seen: that the opening was given up, and why
		leave, alone := view()
		waitViewers(1)
		leave(why)
		select {
		case err := <-alone:
			if !errors.Is(err, why) {
				t.Errorf("who had to leave got %v", err)
			}
		case <-time.After(openTimeout / 2):
			t.Fatal("who left is kept until the log answers")
		}
	}
	leave, first := view()
	waitViewers(1)
	_, second := view()
	waitViewers(2)
	leave(nil)
	time.Sleep(50 * time.Millisecond) // so that the leaving is noticed before the log answers
	way.Resume()
	if err := <-second; err != nil {
		t.Errorf("who stayed got %v", err)
	}
	<-first
}
