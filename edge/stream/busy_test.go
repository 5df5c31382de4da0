package stream

import "testing"

// A hub that reads for as many viewers as it may says so, until they have read.
func TestBusy(t *testing.T) {
	l := openLog(t)
	w := newWriter(t, l)
	write(t, w, "run.started", "run.completed")
	h := newHub(t, l, Options{PageReaders: 1, PageQueue: 2, RingEvents: 1})
	done, err := h.pages.take(t.Context(), "other")
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan string, 2)
	for i := range 2 {
		if i == 0 && h.Busy(key.Tenant) {
			t.Error("nobody of the tenant's is there")
		}
		go func() { read <- serve(t, h, Request{NoFollow: true}) }()
		await(t, "a viewer that waits", func() bool { return h.pages.count() == i+2 })
	}
	if !h.Busy(key.Tenant) {
		t.Error("2 viewers wait, and the hub does not say so")
	}
	if h.Busy("a third") {
		t.Error("a tenant that has nobody there has to wait for those of another")
	}
	done()
	for range 2 {
		if got := <-read; got == "" {
			t.Error("nothing was read")
		}
	}
	if h.Busy(key.Tenant) || h.pages.count() > 0 {
		t.Error("it is over")
	}
}
