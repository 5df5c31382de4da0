package artifactstest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"

	"github.com/runlog-dev/runlog/artifacts"
)

func testReadsAndSeeks(t *testing.T, e env) {
	for _, n := range []int{0, 1, 3000} {
		content := Content(20, n)
		k := key(fmt.Sprint("art_", n))
		e.store(k, plain, content)
		o := e.object(k)
		if err := iotest.TestReader(o, content); err != nil {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	testRandomReads(t, e)
}

// testRandomReads jumps about in an artifact of several parts and windows.
func testRandomReads(t *testing.T, e env) {
	content := Content(21, 2*partBytes+777)
	e.store(key("big"), plain, content)
	o := e.object(key("big"))
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		off := rnd.IntN(len(content) + 10)
		n := rnd.IntN(1 << (4 + rnd.IntN(17)))
		if _, err := o.Seek(int64(off-len(content)), io.SeekEnd); err != nil {
			t.Fatalf("seek to %d: %v", off, err)
		}
		got := make([]byte, n)
		m, err := io.ReadFull(o, got)
		want := content[min(off, len(content)):min(off+n, len(content))]
		if !bytes.Equal(got[:m], want) || (m < n) != (err != nil) {
			t.Fatalf("read %d at %d: got %d bytes, %v; want %d", n, off, m, err, len(want))
		}
	}
	if _, err := o.Seek(-1, io.SeekStart); err == nil {
		t.Error("seek before the start succeeded")
	}
	if _, err := o.Seek(0, 7); err == nil {
		t.Error("seek with an unknown whence succeeded")
	}
	if err := o.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if n, err := o.Read(make([]byte, 1)); err == nil {
		t.Errorf("read after close: got %d bytes and no error", n)
	}
}

// object opens k for the rest of the test.
func (e env) object(k artifacts.Key) artifacts.Object {
	e.Helper()
	o, err := e.Open(e.Context(), k)
	if err != nil {
		e.Fatalf("open %s: %v", k, err)
	}
	e.Cleanup(func() { o.Close() })
	return o
}

func testDelete(t *testing.T, e env) {
	for _, n := range []int{10, partBytes + 10} {
		k := key(fmt.Sprint("art_", n))
		if err := e.Delete(t.Context(), k); err != nil {
			t.Errorf("delete of what is not there: %v", err)
		}
		first := e.store(k, plain, Content(22, n))
		for range 2 {
			if err := e.Delete(t.Context(), k); err != nil {
				t.Errorf("delete: %v", err)
			}
			e.wantAbsent(k)
		}
		second := e.store(k, plain, Content(23, n+1))
		if first.SHA256 == second.SHA256 {
			t.Error("the same hash for two contents")
		}
		e.wantContent(k, Content(23, n+1))
	}
	e.wantClean()
}

// testDeleteUnderReader deletes and replaces an artifact that is being read:
// the reader gets its own bytes or ErrNotFound.
func testDeleteUnderReader(t *testing.T, e env) {
	content := Content(24, 2*partBytes)
	e.store(key("a"), plain, content)
	o := e.object(key("a"))
	head := make([]byte, 10)
	if _, err := io.ReadFull(o, head); err != nil {
		t.Fatal(err)
	}
	if err := e.Delete(t.Context(), key("a")); err != nil {
		t.Fatal(err)
	}
	e.store(key("a"), plain, Content(25, 2*partBytes))
	rest, err := io.ReadAll(o)
	if err != nil && !errors.Is(err, artifacts.ErrNotFound) {
		t.Errorf("read on: got %v, want success or ErrNotFound", err)
	}
	if want := content[10:]; !bytes.HasPrefix(want, rest) || err == nil && len(rest) < len(want) {
		t.Errorf("read on: got %d bytes that are not those of the artifact that was opened", len(rest))
	}
}

func testCanceled(t *testing.T, e env) {
	e.store(key("a"), plain, []byte("x"))
	ctx := canceled()
	_, err := e.Open(ctx, key("a"))
	e.wantIs("open", err, context.Canceled)
	_, err = e.Stat(ctx, key("a"))
	e.wantIs("stat", err, context.Canceled)
	e.wantIs("delete", e.Delete(ctx, key("a")), context.Canceled)
	_, err = e.Create(ctx, key("b"), plain)
	e.wantIs("create", err, context.Canceled)
	e.wantIs("ping", e.Ping(ctx), context.Canceled)

	ctx, cancel := context.WithCancel(t.Context())
	o, err := e.Open(ctx, key("a"))
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	w, err := e.Create(ctx, key("b"), plain)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	_, err = o.Read(make([]byte, 1))
	e.wantIs("read", err, context.Canceled)
	_, err = w.Write([]byte("x"))
	e.wantIs("write", err, context.Canceled)
	w.Abort()
	e.wantContent(key("a"), []byte("x"))
	e.wantClean()
}

func testCommitAgain(t *testing.T, e env) {
	for _, n := range []int{10, partBytes + 10} {
		k := key(fmt.Sprint("art_", n))
		w := e.begin(k, plain, Content(26, n))
		_, err := w.Commit(canceled())
		e.wantIs("commit", err, context.Canceled)
		e.wantAbsent(k)
		if _, err := w.Commit(t.Context()); err != nil {
			t.Errorf("commit again: %v", err)
		}
		e.wantContent(k, Content(26, n))
	}
	e.wantClean()
}

func testPing(t *testing.T, e env) {
	if err := e.Ping(t.Context()); err != nil {
		t.Errorf("ping: %v", err)
	}
	e.wantClean()
}
