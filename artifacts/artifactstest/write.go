package artifactstest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/artifacts"
)

func testRoundTrip(t *testing.T, e env) {
	for name, n := range sizes {
		t.Run(name, func(t *testing.T) {
			k, content, before := key(fmt.Sprint("art_", n)), Content(1, n), time.Now().Truncate(time.Millisecond)
			info := e.store(k, plain, content)
			want := artifacts.Info{Key: k, Meta: plain, Bytes: int64(n), SHA256: hexSum(content), Created: info.Created}
			if info != want {
				t.Errorf("commit returned %+v, want %+v", info, want)
			}
			if c := info.Created; c.Before(before) || c.After(time.Now()) || c.Location() != time.UTC {
				t.Errorf("created %v, want UTC and between %v and now", c, before)
			}
			if got, err := e.Stat(t.Context(), k); err != nil || got != info {
				t.Errorf("stat: got %+v, %v, want %+v", got, err, info)
			}
			e.wantContent(k, content)
		})
	}
	e.wantClean()
}

func testOtherNodesSeeIt(t *testing.T, e env) {
	content := Content(2, partBytes+1)
	info := e.store(key("a"), plain, content)
	other := env{t, e.url, open(t, e.url, artifacts.Options{})}
	if got, err := other.Stat(t.Context(), key("a")); err != nil || got != info {
		t.Errorf("stat on another node: got %+v, %v, want %+v", got, err, info)
	}
	other.wantContent(key("a"), content)
}

func testNothingVisibleBeforeCommit(t *testing.T, e env) {
	for name, n := range sizes {
		t.Run(name, func(t *testing.T) {
			k := key(fmt.Sprint("art_", n))
			w := e.begin(k, plain, Content(3, n))
			e.wantAbsent(k)
			if got := w.Bytes(); got != int64(n) {
				t.Errorf("Bytes: got %d, want %d", got, n)
			}
			if _, err := w.Commit(t.Context()); err != nil {
				t.Fatalf("commit: %v", err)
			}
			e.wantContent(k, Content(3, n))
		})
	}
}

func testCreateOnce(t *testing.T, e env) {
	for _, n := range []int{10, partBytes + 10} {
		for _, m := range []int{10, partBytes + 10} {
			t.Run(fmt.Sprintf("%d then %d", n, m), func(t *testing.T) {
				k := key(fmt.Sprint("art_", n, "_", m))
				early := e.begin(k, plain, Content(5, m))
				info := e.store(k, plain, Content(4, n))
				late := e.begin(k, artifacts.Meta{Name: "other"}, Content(6, m))
				for name, w := range map[string]*artifacts.Writer{"begun before": early, "begun after": late} {
					_, err := w.Commit(t.Context())
					e.wantIs("second commit, "+name, err, artifacts.ErrExists)
				}
				if got, err := e.Stat(t.Context(), k); err != nil || got != info {
					t.Errorf("stat: got %+v, %v, want the first commit's %+v", got, err, info)
				}
				e.wantContent(k, Content(4, n))
			})
		}
	}
	e.wantClean()
}

func testRacers(t *testing.T, e env) {
	for n, racers := range map[int]int{1000: 16, partBytes + 1000: 8} {
		t.Run(fmt.Sprint(n, " bytes"), func(t *testing.T) {
			k := key(fmt.Sprint("art_", n))
			writers := make([]*artifacts.Writer, racers)
			for i := range writers {
				writers[i] = e.begin(k, plain, Content(uint64(i), n))
			}
			winners := commitTogether(t.Context(), writers)
			won := -1
			for i, err := range winners {
				switch {
				case err == nil && won >= 0:
					t.Errorf("racers %d and %d both won", won, i)
				case err == nil:
					won = i
				case !errors.Is(err, artifacts.ErrExists):
					t.Errorf("racer %d: got %v, want ErrExists", i, err)
				}
			}
			if won < 0 {
				t.Fatal("nobody won")
			}
			e.wantContent(k, Content(uint64(won), n))
			e.wantClean()
		})
	}
}

func commitTogether(ctx context.Context, writers []*artifacts.Writer) []error {
	errs, gun := make([]error, len(writers)), make(chan struct{})
	var done sync.WaitGroup
	for i, w := range writers {
		done.Go(func() {
			<-gun
			_, errs[i] = w.Commit(ctx)
		})
	}
	close(gun)
	done.Wait()
	return errs
}

func testAbort(t *testing.T, e env) {
	for name, n := range sizes {
		w := e.begin(key("a"), plain, Content(7, n))
		w.Abort()
		w.Abort()
		e.wantAbsent(key("a"))
		if _, err := w.Commit(t.Context()); err == nil {
			t.Errorf("%s: commit after abort succeeded", name)
		}
		e.wantAbsent(key("a"))
	}
	e.wantClean()
}

func testWriterMisuse(t *testing.T, e env) {
	w := e.begin(key("a"), plain, []byte("x"))
	if _, err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.Abort()
	if _, err := w.Write([]byte("y")); err == nil {
		t.Error("write after commit succeeded")
	}
	if _, err := w.Commit(t.Context()); err == nil || errors.Is(err, artifacts.ErrExists) {
		t.Errorf("second commit of the same writer: got %v, want an error of its own", err)
	}
	e.wantContent(key("a"), []byte("x"))
}

func testTooLarge(t *testing.T, e env) {
	for _, limit := range []int{100, partBytes + 100} {
		small := env{t, e.url, open(t, e.url, artifacts.Options{MaxBytes: int64(limit), PartBytes: partBytes})}
		k := key(fmt.Sprint("art_", limit))
		full := small.begin(k, plain, Content(8, limit))
		_, err := full.Write([]byte("x"))
		e.wantIs("write over the limit", err, artifacts.ErrTooLarge)
		if err == nil || !strings.Contains(err.Error(), fmt.Sprint(limit)) {
			t.Errorf("got %v, want the limit %d in the message", err, limit)
		}
		_, err = full.Write(nil)
		e.wantIs("write after that", err, artifacts.ErrTooLarge)
		_, err = full.Commit(t.Context())
		e.wantIs("commit after that", err, artifacts.ErrTooLarge)
		e.wantAbsent(k)
		e.wantClean()
		small.store(k, plain, Content(8, limit)) // the limit itself fits
	}
}

func testSweep(t *testing.T, e env) {
	kept := map[artifacts.Key][]byte{key("small"): Content(9, 10), key("large"): Content(10, partBytes+10)}
	for k, content := range kept {
		e.store(k, plain, content)
	}
	w := e.begin(key("abandoned"), plain, Content(11, 2*partBytes+1))
	e.begin(key("large"), plain, Content(12, 2*partBytes+1)) // on a key that is taken
	if n := e.sweep(time.Hour); n != 0 {
		t.Errorf("sweep of what is an hour old removed %d of two young writes", n)
	}
	if n := e.sweep(0); n != 2 {
		t.Errorf("sweep removed %d, want the two abandoned writes", n)
	}
	e.wantClean()
	e.wantAbsent(key("abandoned"))
	w.Abort()
	for k, content := range kept {
		e.wantContent(k, content)
	}
}

func testSweptWriter(t *testing.T, e env) {
	for name, more := range map[string]int{"commit": 0, "write and commit": 2 * partBytes} {
		t.Run(name, func(t *testing.T) {
			w := e.begin(key("a"), plain, Content(13, 2*partBytes+1))
			e.sweep(0)
			_, errWrite := w.Write(Content(14, more))
			_, err := w.Commit(t.Context())
			// A store may save what it still can, but whole or not at all.
			if err == nil {
				if errWrite != nil {
					t.Errorf("commit succeeded after write failed: %v", errWrite)
				}
				return
			}
			e.wantIs("commit of a swept write", err, artifacts.ErrAbandoned)
			e.wantAbsent(key("a"))
			e.wantClean()
		})
	}
}

// testSweepBesideWriters sweeps everything all the time: a commit succeeds
// whole or is refused, never in between.
func testSweepBesideWriters(t *testing.T, e env) {
	stop := make(chan struct{})
	var sweeper sync.WaitGroup
	sweeper.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				e.Sweep(t.Context(), 0) //nolint:errcheck // what counts is what writers see
			}
		}
	})
	committed := 0
	for i := range 12 {
		k, content := key(fmt.Sprint("art_", i)), Content(uint64(i), 10+(i%3)*partBytes)
		err := e.tryStore(k, content)
		switch {
		case err == nil:
			committed++
			e.wantContent(k, content)
		case errors.Is(err, artifacts.ErrAbandoned):
			e.wantAbsent(k)
		default:
			t.Errorf("store %s: got %v, want success or ErrAbandoned", k, err)
		}
	}
	close(stop)
	sweeper.Wait()
	t.Logf("%d of 12 writes got through", committed)
	e.wantClean()
}

func (e env) tryStore(k artifacts.Key, content []byte) error {
	w, err := e.Create(e.Context(), k, plain)
	if err != nil {
		return err
	}
	defer w.Abort()
	if _, err := w.Write(content); err != nil {
		return err
	}
	_, err = w.Commit(e.Context())
	return err
}
