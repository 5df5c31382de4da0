package eventlog

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// Who can write to the stream by hand can write anything: what a frame says of
// itself has to be possible, before somebody makes room for so many events.
func TestAFrameThatSaysNonsenseIsRefused(t *testing.T) {
	k := Key{Tenant: "t", Session: "s"}
	for _, seq := range []string{"", "1", "0-1", "2-1", "1-x", "1-18446744073709551615", "1-40"} {
		h := nats.Header{hdrSeq: []string{seq}}
		if f, err := newFrame(k, 7, h, []byte(`{"v":1}`+"\n")); !errors.Is(err, errDamaged) {
			t.Errorf("%q: %d to %d, %v", seq, f.First, f.Last, err)
		}
	}
	if f, err := newFrame(k, 7, nats.Header{hdrSeq: []string{"1-1"}, hdrEpoch: []string{"?"}}, []byte("{}\n")); !errors.Is(err, errDamaged) {
		t.Errorf("epoch %d, %v", f.Epoch, err)
	}
	if _, err := newFrame(k, 7, nats.Header{hdrSeq: []string{"3-4"}}, []byte("{}\n{}\n")); err != nil {
		t.Error(err)
	}
}

// What is no frame is so for ever: who follows the session is told, and not kept waiting.
func TestADamagedFrameBreaksWatchesOff(t *testing.T) {
	l := open(t, Options{})
	k := Key{"default", "s"}
	w := l.Writer(k, Head{})
	defer w.Close()
	appendAll(t, w, 2)
	c := newCollector()
	watch, err := follow(t, l).Watch(t.Context(), k, c, fromNothing)
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	if _, err := l.js.Publish(t.Context(), l.subject(k), []byte("by hand")); err != nil {
		t.Fatal(err)
	}
	watch.Check()
	if err := c.brokenOff(t); !errors.Is(err, errDamaged) {
		t.Error(err)
	}
}

// A writer behind whose frames there is what is no frame ends, and does not try for ever.
func TestADamagedFrameEndsItsWriter(t *testing.T) {
	l := open(t, Options{})
	k := Key{"default", "s"}
	w := l.Writer(k, Head{})
	defer w.Close()
	appendAll(t, w, 2)
	if _, err := l.js.Publish(t.Context(), l.subject(k), []byte("by hand")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err := w.Append(custom(1))
	if err == nil {
		err = w.Sync(ctx)
	}
	if !errors.Is(err, errDamaged) {
		t.Error(err)
	}
}

// Whatever a frame holds, it has a line, or none, for each event that it says it has.
func TestAFrameHasItsNumbers(t *testing.T) {
	for data, want := range map[string]string{
		"a\nb\nc\n":     "3=a 4=b 5=c ",
		"a\n\nb\nc":     "3=a 4=b 5=c ",
		"a\n":           "3=a 4= 5= ",
		"":              "3= 4= 5= ",
		"a\nb\nc\nd\ne": "3=a 4=b 5=c ",
	} {
		got := ""
		for seq, line := range (Frame{First: 3, Last: 5, Data: []byte(data)}).Numbered() {
			got += fmt.Sprintf("%d=%s ", seq, line)
		}
		if got != want {
			t.Errorf("%q: %s, want %s", data, got, want)
		}
	}
	for seq := range (Frame{}).Numbered() {
		t.Errorf("no frame has event %d", seq)
	}
}
