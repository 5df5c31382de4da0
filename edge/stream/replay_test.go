package stream

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/runlog-dev/runlog/edge/dialect"
	"github.com/runlog-dev/runlog/edge/dialect/native"
	"github.com/runlog-dev/runlog/event"
)

// nowhere takes what is written and counts it.
type nowhere struct {
	header http.Header
	bytes  int
}

func (n *nowhere) Header() http.Header         { return n.header }
func (n *nowhere) WriteHeader(int)             {}
func (n *nowhere) Write(b []byte) (int, error) { n.bytes += len(b); return len(b), nil }
func (n *nowhere) FlushError() error           { return nil }

// Pages are read ahead, and given back by viewers that go before they need them.
func TestPagesReadAheadAreGivenBack(t *testing.T) {
	l := openLog(t)
	w := newWriter(t, l)
	for range 20 {
		write(t, w, event.TextDelta)
	}
	h := newHub(t, l, Options{PageBytes: 1, PageReaders: 2})
	var viewers []*Viewer
	for i := range 4 {
		v, err := h.View(t.Context(), Request{Key: key})
		if err != nil {
			t.Fatal(err)
		}
		viewers = append(viewers, v)
		for seq := event.Seq(1); seq <= event.Seq(3+i); seq++ {
			list, err := v.readPage(t.Context(), nil, w.Head())
			if err != nil || len(list) != 1 || list[0].Seq != seq {
				t.Fatalf("viewer %d: %v after %d, %v", i, list, seq-1, err)
			}
			v.at.Seq = seq
		}
		if ahead := v.next != nil; ahead != (i < 2) {
			t.Errorf("viewer %d reads ahead: %v", i, ahead)
		}
	}
	viewers[0].at.Seq = 10 // what it has is not what follows
	if list, err := viewers[0].readPage(t.Context(), nil, w.Head()); err != nil || list[0].Seq != 11 {
		t.Errorf("%v, %v", list, err)
	}
	short, cancel := context.WithCancel(t.Context()) // of a look ahead of the stream
	if _, err := viewers[0].readPage(short, nil, w.Head()); err != nil {
		t.Error(err)
	}
	cancel()
	viewers[0].at.Seq = 12
	if list, err := viewers[0].readPage(t.Context(), nil, w.Head()); err != nil || list[0].Seq != 13 {
		t.Errorf("%v, %v", list, err)
	}
	for _, v := range viewers {
		v.Close()
	}
	for range 2 { // would block if they were not given back
		h.prefetches <- struct{}{}
	}
}

func BenchmarkReplay(b *testing.B) {
	const events = 10_000
	l := openLog(b)
	text := strings.Repeat("x", 150)
	list := make([]event.Event, events)
	for i := range list {
		list[i] = said(text)
		list[i].TraceID = "trace-r"
	}
	fill(b, l, list...)
	h := newHub(b, l, Options{})
	for _, c := range []Catchup{Events, Merged} {
		b.Run(string(c), func(b *testing.B) {
			b.ReportAllocs()
			w := &nowhere{header: http.Header{}}
			for b.Loop() {
				v, err := h.View(b.Context(), Request{Key: key, NoFollow: true, Catchup: c, Dialect: native.Dialect{}, Transport: SSE{}, Audience: dialect.Client})
				if err != nil {
					b.Fatal(err)
				}
				if _, err := v.Prepare(b.Context()); err != nil {
					b.Fatal(err)
				}
				if err := v.Serve(b.Context(), w); err != nil {
					b.Fatal(err)
				}
				v.Close()
			}
			b.ReportMetric(float64(w.bytes)/float64(b.N)/events, "B/event")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/events, "ns/event")
		})
	}
}
