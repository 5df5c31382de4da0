package eventlog

import (
	"math/rand/v2"
	"testing"

	"github.com/runlog-dev/runlog/event"
)

// spread writes a session of n events among those of others: frames of one to
// most events, thick here and thin there.
func spread(t *testing.T, l *Log, k Key, n, most int, random *rand.Rand) Head {
	t.Helper()
	w, other := l.Writer(k, Head{}), l.Writer(Key{k.Tenant, k.Session + "-other"}, Head{})
	defer w.Close()
	defer other.Close()
	busy := 0
	for n > 0 {
		if random.IntN(100) == 0 {
			busy = random.IntN(4)
		}
		for range busy {
			appendAll(t, other, 1)
		}
		frame := make([]event.Event, min(n, 1+random.IntN(most)))
		for i := range frame {
			frame[i] = custom(i)
		}
		if _, err := w.Append(frame...); err != nil {
			t.Fatal(err)
		}
		if err := w.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		n -= len(frame)
	}
	return w.Head()
}

func TestAnyPositionIsFoundWithFewProbes(t *testing.T) {
	const events, tries = 700, 40
	for _, most := range []int{1, 50} {
		random := rand.New(rand.NewPCG(1, uint64(most)))
		l := open(t, Options{})
		k := Key{"default", "s"}
		head := spread(t, l, k, events, most, random)
		all := uint64(0)
		for range tries {
			after := event.Seq(random.IntN(events))
			before := l.nc.Stats().OutMsgs
			pos, err := l.locate(t.Context(), k, after+1, head)
			if err != nil {
				t.Fatal(err)
			}
			probes := l.nc.Stats().OutMsgs - before
			all += probes
			f, err := l.frameFrom(t.Context(), k, pos)
			if err != nil || f.First > after+1 || after+1-f.First > max(closeBy, event.Seq(most)) {
				t.Fatalf("frames of up to %d: for %d found position %d, where events %d-%d are, %v", most, after+1, pos, f.First, f.Last, err)
			}
			if probes > 25 {
				t.Errorf("frames of up to %d: %d took %d probes", most, after+1, probes)
			}
			checkDense(t, seqs(t, l, k, after), after+1, events)
		}
		if mean := float64(all) / tries; mean > 8 {
			t.Errorf("frames of up to %d: %.1f probes on average", most, mean)
		}
	}
}

func TestClientsThatMissedLittleAreFoundAtOnce(t *testing.T) {
	l := open(t, Options{})
	k := Key{"default", "s"}
	w, other := l.Writer(k, Head{}), l.Writer(Key{"default", "o"}, Head{})
	defer w.Close()
	defer other.Close()
	for range 500 { // every third position, an event each
		appendAll(t, w, 1)
		appendAll(t, other, 1)
		appendAll(t, other, 1)
	}
	head := w.Head()
	for _, missed := range []event.Seq{1, 2, 3, 10, 100, 400} {
		before := l.nc.Stats().OutMsgs
		if _, err := l.locate(t.Context(), k, head.Seq-missed+1, head); err != nil {
			t.Fatal(err)
		}
		if probes := l.nc.Stats().OutMsgs - before; probes > 4 {
			t.Errorf("%d missed took %d probes", missed, probes)
		}
	}
}
