package eventlog

import (
	"testing"

	"github.com/runlog-dev/runlog/event"
)

func TestPagesHoldAllAndLittleAtATime(t *testing.T) {
	l := open(t, Options{})
	k := Key{"default", "s"}
	w := l.Writer(k, Head{})
	defer w.Close()
	for range 300 {
		appendAll(t, w, 1)
	}
	head := w.Head()
	for _, after := range []event.Seq{0, 1, 150, 299, 300} {
		var got []event.Seq
		for at := (Head{Seq: after}); ; {
			page, err := l.Page(t.Context(), k, at, head, 2000)
			if err != nil {
				t.Fatal(err)
			}
			if len(page) == 0 {
				break
			}
			size := 0
			for _, f := range page {
				size += len(f.Data)
				for s := max(f.First, at.Seq+1); s <= f.Last; s++ {
					got = append(got, s)
				}
				at = f.End()
			}
			if size > 2000+1000 {
				t.Fatalf("a page of %d bytes", size)
			}
		}
		checkDense(t, got, after+1, 300)
	}
}

func TestPageHoldsAFrameLargerThanAsked(t *testing.T) {
	l := open(t, Options{})
	k := Key{"default", "s"}
	w := l.Writer(k, Head{})
	defer w.Close()
	big := event.New(event.Custom, event.CustomData{Name: string(make([]byte, 50_000))})
	for range 3 {
		if _, err := w.Append(big); err != nil {
			t.Fatal(err)
		}
		if err := w.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	page, err := l.Page(t.Context(), k, Head{Seq: 1}, w.Head(), 1000)
	if err != nil || len(page) != 1 || page[0].First != 2 {
		t.Fatalf("got %d frames, %v", len(page), err)
	}
}
