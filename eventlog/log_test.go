package eventlog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/event"
)

// open starts an embedded server and opens a Log on it.
func open(t testing.TB, opts Options) *Log {
	t.Helper()
	e, err := StartEmbedded(t.TempDir(), false)
	if err != nil {
		t.Fatal(err)
	}
	nc, err := e.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		nc.Close()
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	l, err := Open(t.Context(), nc, opts)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func custom(n int) event.Event {
	return event.New(event.Custom, event.CustomData{Name: "n", Value: fmt.Append(nil, n)})
}

// appendAll appends n events one by one and waits until they are committed.
func appendAll(t testing.TB, w *Writer, n int) {
	t.Helper()
	for i := range n {
		if _, err := w.Append(custom(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Sync(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// seqs reads the log after a position.
func seqs(t testing.TB, l *Log, k Key, after event.Seq) []event.Seq {
	t.Helper()
	head, err := l.Head(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	var got []event.Seq
	for f, err := range l.Read(t.Context(), k, after, head) {
		if err != nil {
			t.Fatal(err)
		}
		events, err := f.Events()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			if e.Seq > after {
				got = append(got, e.Seq)
			}
		}
	}
	return got
}

func checkDense(t testing.TB, got []event.Seq, from, to event.Seq) {
	t.Helper()
	if len(got) != int(to-from+1) {
		t.Fatalf("got %d events, want %d to %d", len(got), from, to)
	}
	for i, s := range got {
		if s != from+event.Seq(i) {
			t.Fatalf("event %d has seq %d, want %d", i, s, from+event.Seq(i))
		}
	}
}

func TestReadFromAnyPosition(t *testing.T) {
	l := open(t, Options{})
	k := Key{"default", "ses 1/ü"}
	w := l.Writer(k, Head{})
	defer w.Close()
	other := l.Writer(Key{"default", "other"}, Head{})
	defer other.Close()
	for range 300 { // many small frames of two sessions, interleaved
		appendAll(t, w, 1)
		appendAll(t, other, 2)
	}
	for _, after := range []event.Seq{0, 1, 2, 10, 42, 150, 298, 299, 300} {
		checkDense(t, seqs(t, l, k, after), after+1, 300)
	}
}

func TestStaleWriterGetsNothingIn(t *testing.T) {
	l := open(t, Options{})
	k := Key{"default", "s"}
	a := l.Writer(k, Head{})
	defer a.Close()
	appendAll(t, a, 3)
	head, err := l.Head(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	b := l.Writer(k, head)
	defer b.Close()
	appendAll(t, b, 2)
	if _, err := a.Append(custom(99)); err != nil {
		t.Fatal(err)
	}
	if err := a.Sync(t.Context()); !errors.Is(err, ErrFenced) {
		t.Fatalf("the stale writer's commit gave %v, want ErrFenced", err)
	}
	if _, err := a.Append(custom(100)); !errors.Is(err, ErrFenced) {
		t.Fatalf("append after the fence gave %v", err)
	}
	checkDense(t, seqs(t, l, k, 0), 1, 5)
}

// A leader that was deposed and does not know it shows an older end of the log: that is no
// other writer's.
func TestALeaderThatKnowsLessFencesNobody(t *testing.T) {
	l, k := open(t, Options{}), Key{"default", "s"}
	w := l.Writer(k, Head{})
	defer w.Close()
	appendEach(t, w, 3)
	now := w.Head()
	for pos, want := range map[uint64]error{now.Pos - 1: ErrFenced, now.Pos + 1: ErrUnavailable} {
		if _, landed, err := w.resolve(Head{Seq: now.Seq, Pos: pos}, "another", nil); landed || !errors.Is(err, want) {
			t.Errorf("behind position %d: %v %v, want %v", pos, landed, err, want)
		}
	}
}

func TestTooLargeEventTakesNothing(t *testing.T) {
	l := open(t, Options{})
	w := l.Writer(Key{"default", "s"}, Head{})
	defer w.Close()
	big := event.New(event.Custom, event.CustomData{Name: string(make([]byte, event.MaxEncoded))})
	if _, err := w.Append(custom(1), big); !errors.Is(err, ErrTooLarge) {
		t.Fatalf("got %v, want ErrTooLarge", err)
	}
	appendAll(t, w, 1)
	checkDense(t, seqs(t, l, Key{"default", "s"}, 0), 1, 1)
}

func TestTicketsAreOnePerSessionAndComeBack(t *testing.T) {
	l := open(t, Options{Lease: 400 * time.Millisecond})
	ctx, k := t.Context(), Key{"default", "s.1"}
	if err := l.Ticket(ctx, k); err != nil {
		t.Fatal(err)
	}
	if err := l.Ticket(ctx, k); !errors.Is(err, ErrTicketed) {
		t.Fatalf("second ticket: %v", err)
	}
	q, err := l.Tickets(ctx)
	if err != nil {
		t.Fatal(err)
	}
	first, err := q.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	again, err := q.Next(ctx) // nobody kept it alive
	if err != nil {
		t.Fatal(err)
	}
	if first.Key != k || again.Key != k || again.Delivered != 2 {
		t.Fatalf("got %+v then %+v", first, again)
	}
	if err := again.Release(ctx); err != nil {
		t.Fatal(err)
	}
	if err := l.Ticket(ctx, k); err != nil {
		t.Fatalf("ticket right after release: %v", err)
	}
}

func TestInboxKeepsCancelApartFromInput(t *testing.T) {
	l := open(t, Options{})
	ctx, k := t.Context(), Key{"default", "s"}
	for i := range maxWaiting {
		if err := l.Submit(ctx, k, event.Command{CommandID: fmt.Sprint("c", i), Kind: event.Invoke}); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Submit(ctx, k, event.Command{CommandID: "over", Kind: event.Invoke}); !errors.Is(err, ErrInboxFull) {
		t.Fatalf("one too many: %v", err)
	}
	if err := l.Submit(ctx, k, event.Command{CommandID: "x", Kind: event.Cancel}); err != nil {
		t.Fatal(err)
	}
	waiting, err := l.Inbox(ctx, k)
	if err != nil {
		t.Fatal(err)
	}
	if len(waiting) != maxWaiting+1 || waiting[0].Kind != event.Cancel || waiting[1].CommandID != "c0" {
		t.Fatalf("got %d commands, first %+v", len(waiting), waiting[0])
	}
	for range 2 { // removing twice is fine
		if err := l.Answered(ctx, waiting[0].Pos); err != nil {
			t.Fatal(err)
		}
	}
	if waiting, _ = l.Inbox(ctx, k); len(waiting) != maxWaiting {
		t.Fatalf("%d commands after one was answered", len(waiting))
	}
}

func TestSameKeySameRun(t *testing.T) {
	l := open(t, Options{})
	ctx := t.Context()
	first, existed, err := l.Reserve(ctx, "t", "key 1", RunRef{RunID: "r1", SessionID: "s1", BodyHash: "h"})
	if err != nil || existed {
		t.Fatal(existed, err)
	}
	second, existed, err := l.Reserve(ctx, "t", "key 1", RunRef{RunID: "r2", SessionID: "s2", BodyHash: "h"})
	if err != nil || !existed || second.RunID != first.RunID || second.SessionID != "s1" {
		t.Fatalf("got %+v, %v, %v", second, existed, err)
	}
	if _, _, err := l.Reserve(ctx, "t", "key 1", RunRef{RunID: "r3", BodyHash: "other"}); !errors.Is(err, ErrMismatch) {
		t.Fatalf("other body: %v", err)
	}
	if _, existed, err := l.Reserve(ctx, "other tenant", "key 1", RunRef{RunID: "r1", BodyHash: "h"}); err != nil || existed {
		t.Fatalf("keys of two tenants met: %v, %v", existed, err)
	}
	if err := l.Accept(ctx, first); err != nil {
		t.Fatal(err)
	}
	if ref, err := l.FindRun(ctx, "t", "r1"); err != nil || !ref.Accepted {
		t.Fatalf("got %+v, %v", ref, err)
	}
	if _, err := l.FindRun(ctx, "third", "r1"); !errors.Is(err, ErrNotFound) {
		t.Fatalf("another tenant's run: %v", err)
	}
	if _, err := l.FindRun(ctx, "t", "none"); !errors.Is(err, ErrNotFound) {
		t.Fatal(err)
	}
}

func TestSnapshotShortensALoad(t *testing.T) {
	l := open(t, Options{})
	k := Key{"default", "s"}
	w := l.Writer(k, Head{})
	defer w.Close()
	appendAll(t, w, 50)
	s, head, err := l.Load(t.Context(), k)
	if err != nil || s.Seq != 50 {
		t.Fatal(s, err)
	}
	if err := l.SaveSnapshot(t.Context(), k, s.Encode(), head.Seq); err != nil {
		t.Fatal(err)
	}
	appendAll(t, w, 5)
	if got, _, err := l.snapshot(t.Context(), k, w.Head().Seq, nil, l.snapshotEntry); err != nil || got == nil || got.Seq != 50 {
		t.Fatalf("stored snapshot: %+v %v", got, err)
	}
	if s, _, err = l.Load(t.Context(), k); err != nil || s.Seq != 55 {
		t.Fatal(s, err)
	}
}

func TestOneProcessPerDirectory(t *testing.T) {
	dir := t.TempDir()
	e, err := StartEmbedded(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if _, err := StartEmbedded(dir, false); !errors.Is(err, ErrLocked) {
		t.Fatalf("second server on one directory: %v", err)
	}
}

func contains(err error, text string) bool { return strings.Contains(err.Error(), text) }
