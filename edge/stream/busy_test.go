package stream

import (
	"testing"

	"github.com/runlog-dev/runlog/eventlog"
)

// A hub that reads for as many viewers as it may says so, until they have read.
func TestBusy(t *testing.T) {
	l := openLog(t)
	lv := l.NewLive()
	run(t, lv)
	w := l.Writer(key, eventlog.Head{})
	t.Cleanup(w.Close)
	write(t, w, "run.started", "run.completed")
	h := New(l, lv, Options{PageReaders: 1, PageQueue: 2, RingEvents: 1})
	t.Cleanup(h.Close)
	h.pages <- struct{}{} // somebody else's turn
	read := make(chan string, 2)
	for i := range 2 {
		if h.Busy() {
			t.Errorf("%d viewers are too many", i)
		}
		go func() { read <- serve(t, h, Request{NoFollow: true}) }()
		await(t, "a viewer that waits", func() bool { return int(h.queue.Load()) == i+1 })
	}
	if !h.Busy() {
		t.Error("2 viewers wait, and the hub does not say so")
	}
	<-h.pages
	for range 2 {
		if got := <-read; got == "" {
			t.Error("nothing was read")
		}
	}
	if h.Busy() {
		t.Error("it is over")
	}
}
