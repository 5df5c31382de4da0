package eventlog

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/runlog-dev/runlog/event"
)

// collector is a Sink that remembers seqs and tells when one has come.
type collector struct {
	mu   sync.Mutex
	got  []event.Seq
	more chan struct{}
	err  error
}

func newCollector() *collector { return &collector{more: make(chan struct{}, 1)} }

func (c *collector) Frame(f Frame) {
	c.mu.Lock()
	for s := f.First; s <= f.Last; s++ {
		c.got = append(c.got, s)
	}
	c.mu.Unlock()
	c.wake()
}

func (c *collector) Beat(Beat) {}

func (c *collector) Broken(err error) {
	c.mu.Lock()
	c.err = err
	c.mu.Unlock()
	c.wake()
}

func (c *collector) wake() {
	select {
	case c.more <- struct{}{}:
	default:
	}
}

func (c *collector) await(t testing.TB, last event.Seq) []event.Seq {
	t.Helper()
	timeout := time.After(20 * time.Second)
	for {
		c.mu.Lock()
		got := append([]event.Seq(nil), c.got...)
		c.mu.Unlock()
		if len(got) > 0 && got[len(got)-1] >= last {
			return got
		}
		select {
		case <-c.more:
		case <-timeout:
			t.Fatalf("event %d did not come; got %d events", last, len(got))
		}
	}
}

// fromNothing is where a watch of an empty log begins.
func fromNothing(Frame) {}

func follow(t testing.TB, l *Log) *Live {
	t.Helper()
	lv := l.NewLive()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = lv.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return lv
}

func TestLostLiveMessagesAreFilledFromTheLog(t *testing.T) {
	var mu sync.Mutex
	gaps := map[string]int{}
	l := open(t, Options{Observe: Observer{Gap: func(how string) { mu.Lock(); gaps[how]++; mu.Unlock() }}})
	k := Key{"default", "s"}
	w := l.Writer(k, Head{})
	defer w.Close()
	c := newCollector()
	lv := l.NewLive() // not running: what comes is lost once the channel is drained by hand
	watch, err := lv.Watch(t.Context(), k, c, fromNothing)
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	settle(watch)
	for range 10 {
		appendAll(t, w, 1)
		<-lv.msgs // lost on the way
	}
	appendAll(t, w, 1)
	lv.dispatch(<-lv.msgs) // its predecessor never came
	checkDense(t, c.await(t, 11), 1, 11)
	settle(watch)
	appendAll(t, w, 1)
	<-lv.msgs // the last one is lost: only a beat shows it
	if err := l.Beat(k, Beat{Head: 12}); err != nil {
		t.Fatal(err)
	}
	lv.dispatch(<-lv.msgs)
	checkDense(t, c.await(t, 12), 1, 12)
	mu.Lock()
	defer mu.Unlock()
	if gaps["log"] == 0 || gaps["check"] == 0 {
		t.Errorf("gaps seen: %v", gaps)
	}
}

// settle waits until the watch has nothing to read from the log.
func settle(w *Watch) {
	for {
		w.mu.Lock()
		filling := w.filling
		w.mu.Unlock()
		if !filling {
			return
		}
		runtime.Gosched()
	}
}

// Sessions are opened while they grow: whatever the moment, each frame after the
// head that begin was told comes once.
func TestWatchFromTheHeadMissesNothing(t *testing.T) {
	l := open(t, Options{})
	lv := follow(t, l)
	k := Key{"default", "s"}
	w := l.Writer(k, Head{})
	defer w.Close()
	const events = 400
	written := make(chan error, 1)
	go func() {
		for i := range events {
			if _, err := w.Append(custom(i)); err != nil {
				written <- err
				return
			}
			if i%3 == 0 {
				_ = w.Sync(context.Background())
			}
		}
		written <- w.Sync(context.Background())
	}()
	for w.Head().Seq < events/2 {
		var begun Head
		c := newCollector()
		watch, err := lv.Watch(t.Context(), k, c, func(f Frame) { begun = f.End() })
		if err != nil {
			t.Fatal(err)
		}
		if last := max(w.Head().Seq, begun.Seq+1); last <= events {
			checkDense(t, c.await(t, last)[:last-begun.Seq], begun.Seq+1, last)
		}
		watch.Close()
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
}

func TestWatchFromTheHeadReadsItOnce(t *testing.T) {
	l := open(t, Options{})
	lv := follow(t, l)
	k := Key{"default", "s"}
	w := l.Writer(k, Head{})
	defer w.Close()
	appendAll(t, w, 3)
	before := l.nc.Stats().OutMsgs
	watch, err := lv.Watch(t.Context(), k, newCollector(), func(f Frame) {
		if f.Last != 3 || bytes.Count(f.Data, []byte("\n")) != int(f.Last-f.First+1) {
			t.Errorf("begins with %d-%d: %s", f.First, f.Last, f.Data)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	if n := l.nc.Stats().OutMsgs - before; n != 1 {
		t.Errorf("%d requests", n)
	}
}

// slow is a sink that stops taking frames for a while.
type slow struct {
	*collector
	gate chan struct{}
}

func (s *slow) Frame(f Frame) {
	<-s.gate
	s.collector.Frame(f)
}

// A process that is too slow has live messages dropped, the last ones among them;
// that it was is enough to look at the log, and nothing is missing.
func TestASlowConsumerMissesNothing(t *testing.T) {
	l := open(t, Options{})
	k := Key{"default", "s"}
	w := l.Writer(k, Head{})
	defer w.Close()
	lv := l.NewLive()
	lv.msgs = make(chan *nats.Msg, 4) // instead of liveBuffer
	c := &slow{newCollector(), make(chan struct{})}
	watch, err := lv.Watch(t.Context(), k, c, fromNothing)
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	settle(watch)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = lv.Run(ctx) }()
	defer func() { cancel(); <-done }()
	const n = 50
	for range n { // a frame each
		appendAll(t, w, 1)
	}
	if err := l.Flush(); err != nil { // all of them have come, or were dropped
		t.Fatal(err)
	}
	if dropped, err := watch.sub.Dropped(); err != nil || dropped < n/2 {
		t.Errorf("%d were dropped, %v", dropped, err)
	}
	close(c.gate)
	checkDense(t, c.await(t, n), 1, n)
}

// The leader of a partition says nothing, while many watches ask it for their heads, as
// after a reconnect: gaps in other partitions are filled meanwhile.
func TestAPartitionWithoutALeaderHoldsUpNoOther(t *testing.T) {
	l, err := Open(t.Context(), limited(t, server.SubjectPermission{Deny: []string{"$JS.API.STREAM.MSG.GET.LOG_0"}}), Options{Partitions: 2})
	if err != nil {
		t.Fatal(err)
	}
	lv := l.NewLive() // which does not run: all live frames are lost
	healthy := Key{"t", "healthy"}
	for i := 0; healthy.partition(2) != 1; i++ {
		healthy.Session = fmt.Sprint("healthy", i)
	}
	c := newCollector()
	w, err := lv.Watch(t.Context(), healthy, c, fromNothing)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for i := range 500 { // half a minute for those of partition 0
		stuck, err := lv.subscribe(Key{"t", fmt.Sprint("s", i)}, newCollector())
		if err != nil {
			t.Fatal(err)
		}
		defer stuck.Close()
		if stuck.key.partition(2) == 0 {
			go stuck.fill()
		}
	}
	for deadline := time.Now().Add(10 * time.Second); l.nc.LastError() == nil; time.Sleep(time.Millisecond) { // a request was dropped
		if time.Now().After(deadline) {
			t.Fatal("no head is asked for")
		}
	}
	writer := l.Writer(healthy, Head{})
	defer writer.Close()
	appendAll(t, writer, 3)
	w.Check()
	checkDense(t, c.await(t, 3), 1, 3)
}
