package worker

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		stop := every(time.Second, func() { calls++; time.Sleep(time.Second) })
		time.Sleep(4500 * time.Millisecond) // calls begin after 1 and 3 seconds
		stop()
		time.Sleep(time.Minute)
		if calls != 2 {
			t.Errorf("%d calls, want 2", calls)
		}
	})
}

func TestEveryStopsAfterTheCallThatGoesOn(t *testing.T) {
	var busy atomic.Bool
	began, release := make(chan struct{}, 1), make(chan struct{})
	stop := every(time.Millisecond, func() {
		busy.Store(true)
		began <- struct{}{}
		<-release
		busy.Store(false)
	})
	<-began
	time.AfterFunc(10*time.Millisecond, func() { close(release) })
	stop()
	if busy.Load() {
		t.Error("stop did not wait for the call")
	}
}
