package eventlog

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/event"
)

// loseEnd takes the events after a seq out of the log, as a restore of an older backup does.
func loseEnd(t *testing.T, l *Log, k Key, after event.Seq) {
	t.Helper()
	for {
		head, err := l.Head(t.Context(), k)
		if err == nil && head.Seq > after {
			err = l.deleteMsg(t.Context(), l.stream(k), head.Pos)
		}
		if err != nil {
			t.Fatal(err)
		}
		if head.Seq <= after {
			return
		}
	}
}

// appendEach appends n events, each in a frame of its own.
func appendEach(t *testing.T, w *Writer, n int) {
	t.Helper()
	for range n {
		appendAll(t, w, 1)
	}
}

// restored says that the log was restored, and appends n events after it.
func restored(t *testing.T, l *Log, k Key, n int) Restored {
	t.Helper()
	did, err := l.Restore(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	head, err := l.Head(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	w := l.Writer(k, head)
	defer w.Close()
	appendEach(t, w, n)
	return did
}

// An event is told from one that stood in its place before a restore, through any number of
// restores, and of whichever backup.
func TestHoldsTellsLostEvents(t *testing.T) {
	l, k := open(t, Options{}), Key{"default", "s"}
	w := l.Writer(k, Head{})
	defer w.Close()
	appendEach(t, w, 10)
	loseEnd(t, l, k, 7)
	first := restored(t, l, k, 5).Epoch // 8 to 12
	loseEnd(t, l, k, 10)
	second := restored(t, l, k, 10).Epoch // 11 to 20
	if first == 0 || second <= first {
		t.Fatalf("epochs %d and %d", first, second)
	}
	head, err := l.Head(t.Context(), k)
	if err != nil || head.Seq != 20 || head.Epoch != second {
		t.Fatal(head, err)
	}
	of := func(seq event.Seq) event.Epoch {
		switch {
		case seq > 10:
			return second
		case seq > 7:
			return first
		}
		return 0
	}
	for seq := event.Seq(1); seq <= 25; seq++ {
		for _, epoch := range []event.Epoch{0, first, second, second + 1} {
			got, err := l.Holds(t.Context(), k, seq, epoch, head)
			// A claim to have an event of the present epoch where there is one of an older one
			// cannot be: nobody was given it.
			if epoch == second && seq <= 10 {
				continue
			}
			if want := seq <= 20 && epoch == of(seq); err != nil || got != want {
				t.Errorf("event %d of epoch %d: %v %v", seq, epoch, got, err)
			}
		}
	}
	for f, err := range l.Read(t.Context(), k, 0, head) {
		if err != nil {
			t.Fatal(err)
		}
		events, err := f.Events()
		if err != nil || events[0].ID != event.NameIn("s", f.First, of(f.First)) || events[0].Epoch() != f.Epoch {
			t.Errorf("frame of event %d: epoch %d, %v %v", f.First, f.Epoch, events, err)
		}
	}
}

// A snapshot of what was lost is not used, nor does it keep a new one from being stored. One of
// what is still there is used.
func TestSnapshotsOfLostEventsAreNotUsed(t *testing.T) {
	for _, kept := range []event.Seq{3, 6, 9} { // the snapshot is of 6
		t.Run(fmt.Sprint(kept), func(t *testing.T) {
			l, k := open(t, Options{}), Key{"default", "s"}
			w := l.Writer(k, Head{})
			defer w.Close()
			appendEach(t, w, 6)
			lie := event.NewSession("s") // shows whether it was used
			lie.Seq, lie.Agent = 6, "from the snapshot"
			if err := l.SaveSnapshot(t.Context(), k, lie.Encode(), 6); err != nil {
				t.Fatal(err)
			}
			appendEach(t, w, 4)
			loseEnd(t, l, k, kept)
			restored(t, l, k, 10)
			s, head, err := l.Load(t.Context(), k)
			if err != nil || s.Seq != kept+10 {
				t.Fatal(s, err)
			}
			if used := s.Agent != ""; used != (kept >= 6) {
				t.Errorf("with events 1 to %d kept: used %v", kept, used)
			}
			if err := l.SaveSnapshot(t.Context(), k, s.Encode(), head.Seq); err != nil {
				t.Fatal(err)
			}
			if got, err := l.Snapshot(t.Context(), k); err != nil || got.Seq != kept+10 {
				t.Errorf("the stored snapshot is %v, %v", got, err)
			}
		})
	}
}

// A session whose log has been purged of its beginning can be loaded after any number of
// restores, whether or not a worker has stored a snapshot in between.
func TestARestoreKeepsWhatOnlyASnapshotHas(t *testing.T) {
	l, k := open(t, Options{}), Key{"default", "s"}
	w := l.Writer(k, Head{})
	defer w.Close()
	appendEach(t, w, 10)
	whole := func(n event.Seq) *event.Session {
		t.Helper()
		s, _, err := l.Load(t.Context(), k)
		if err != nil || s.Seq != n {
			t.Fatalf("loaded %+v, %v; want %d events", s, err, n)
		}
		return s
	}
	if err := l.SaveSnapshot(t.Context(), k, whole(10).Encode(), 10); err != nil {
		t.Fatal(err)
	}
	appendEach(t, w, 5)
	purgeBefore(t, l, k, 11)
	loseEnd(t, l, k, 13)
	restored(t, l, k, 3)
	whole(16)
	purgeBefore(t, l, k, 14)
	loseEnd(t, l, k, 15)
	restored(t, l, k, 3)
	whole(18)
}

// A process that has the log open while it is restored is told so.
func TestAProcessNoticesARestore(t *testing.T) {
	l := open(t, Options{})
	other, err := Open(t.Context(), l.nc, Options{})
	if err == nil {
		err = other.SameEpoch(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Restore(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if err := other.SameEpoch(t.Context()); !errors.Is(err, ErrRestored) {
		t.Errorf("after a restore: %v", err)
	}
	if err := l.SameEpoch(t.Context()); err != nil {
		t.Error(err)
	}
	if err := l.reg.Delete(t.Context(), "install"); err != nil {
		t.Fatal(err)
	}
	if err := l.SameEpoch(t.Context()); !errors.Is(err, ErrRestored) {
		t.Errorf("without an install record: %v", err)
	}
}

// What the runs index has of a run that is in neither log nor inbox is forgotten, so that it
// can be asked for again; a run that waits stays; and where its events begin is in the log.
func TestRestoreMendsTheRunsIndex(t *testing.T) {
	l, k := open(t, Options{}), Key{"default", "s"}
	w := l.Writer(k, Head{})
	defer w.Close()
	e := event.New(event.RunStarted, event.RunStartedData{Agent: "demo", Attempt: 1})
	e.RunID = "run_begun"
	if _, err := w.Append(e); err != nil {
		t.Fatal(err)
	}
	appendEach(t, w, 9)
	for i, id := range []string{"run_begun", "run_lost", "run_waits"} {
		want := RunRef{RunID: id, SessionID: "s", CommandID: id + ".invoke", After: event.Seq(4 * i), Created: event.At(time.Now())}
		ref, _, err := l.Reserve(t.Context(), "default", "key "+id, want)
		if err == nil {
			err = l.Accept(t.Context(), ref)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Submit(t.Context(), k, event.Command{CommandID: "run_waits.invoke", Kind: event.Invoke, RunID: "run_waits"}); err != nil {
		t.Fatal(err)
	}
	loseEnd(t, l, k, 5)
	if did := restored(t, l, k, 0); did.Sessions != 1 || did.Ticketed != 1 || did.Lost != 1 {
		t.Errorf("did %+v", did)
	}
	if ref, err := l.FindRun(t.Context(), "default", "run_begun"); err != nil || ref.After != 0 {
		t.Errorf("the run that is in the log: %+v %v", ref, err)
	}
	if _, err := l.FindRun(t.Context(), "default", "run_lost"); !errors.Is(err, ErrNotFound) {
		t.Errorf("the run that is lost: %v", err)
	}
	if ref, err := l.FindRun(t.Context(), "default", "run_waits"); err != nil || ref.After != 5 {
		t.Errorf("the run that waits: %+v %v", ref, err)
	}
	again, _, err := l.Reserve(t.Context(), "default", "key run_lost", RunRef{RunID: "run_other", SessionID: "s"})
	if err != nil || again.RunID != "run_lost" || again.Accepted || again.After > 5 {
		t.Errorf("the lost run, asked for again: %+v %v", again, err)
	}
	if there, err := l.Ticketed(t.Context(), k); err != nil || !there {
		t.Errorf("a session with a run under way has a ticket: %v %v", there, err)
	}
}

// Nothing is restored under a worker that asks for work.
func TestNoRestoreUnderAWorker(t *testing.T) {
	l := open(t, Options{})
	tickets, err := l.Tickets(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = tickets.Next(ctx)
	}()
	for waiting := 0; waiting == 0; {
		cons, err := l.js.Consumer(t.Context(), jobsStream, consumer)
		if err != nil {
			t.Fatal(err)
		}
		waiting = cons.CachedInfo().NumWaiting
	}
	if _, err := l.Restore(t.Context(), nil); !errors.Is(err, errAttended) || l.SameEpoch(t.Context()) != nil {
		t.Errorf("a restore under a worker: %v", err)
	}
	stop()
	<-done
	for err = errAttended; errors.Is(err, errAttended); { // until the server knows that it has gone
		_, err = l.Restore(t.Context(), nil)
	}
	if err != nil {
		t.Error(err)
	}
}

// Sessions are read several at a time: each is looked after once, and whoever waits is told how far it is.
func TestARestoreTellsHowFarItIs(t *testing.T) {
	const sessions = 5 * restoreAtOnce
	l := open(t, Options{Partitions: 2})
	for i := range sessions {
		w := l.Writer(Key{"default", fmt.Sprint("s", i)}, Head{})
		appendEach(t, w, 1)
		w.Close()
	}
	var told []int
	did, err := l.Restore(t.Context(), func(done, all int) {
		if told = append(told, done); done != len(told) || all != sessions {
			t.Errorf("%d of %d, after %d", done, all, len(told))
		}
	})
	if err != nil || did.Sessions != sessions || len(told) != sessions {
		t.Errorf("%+v %v, told %d times", did, err, len(told))
	}
}
