package artifacts_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/artifacts"
	"github.com/runlog-dev/runlog/artifacts/artifactstest"
	"github.com/runlog-dev/runlog/internal/testservers"
)

const part = 5 << 20

func open(t testing.TB, url string) artifacts.Store {
	t.Helper()
	s, err := artifacts.Open(t.Context(), url, artifacts.Options{PartBytes: part})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

var (
	keyA = artifacts.Key{Tenant: "acme", ID: "a"}
	meta = artifacts.Meta{Name: "a.bin", MediaType: "x/y"}
)

// store writes content in one go.
func store(ctx context.Context, s artifacts.Store, key artifacts.Key, content []byte) (*artifacts.Writer, error) {
	w, err := s.Create(ctx, key, meta)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(content); err != nil {
		return w, err
	}
	_, err = w.Commit(ctx)
	return w, err
}

func mustStore(t testing.TB, s artifacts.Store, key artifacts.Key, content []byte) {
	t.Helper()
	if _, err := store(t.Context(), s, key, content); err != nil {
		t.Fatalf("store %s: %v", key, err)
	}
}

func readAll(ctx context.Context, s artifacts.Store, key artifacts.Key) ([]byte, error) {
	o, err := s.Open(ctx, key)
	if err != nil {
		return nil, err
	}
	defer o.Close()
	return io.ReadAll(o)
}

func wantContent(t testing.TB, s artifacts.Store, key artifacts.Key, want []byte) {
	t.Helper()
	got, err := readAll(t.Context(), s, key)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("read %s: got %d bytes, %v, want %d", key, len(got), err, len(want))
	}
}

// TestS3EveryWriteBroken breaks each request of a write in turn, before and
// after the server has carried it out, once and until healed. The write
// succeeds at once, or says ErrUnavailable and succeeds when committed again;
// nothing but the artifact remains.
func TestS3EveryWriteBroken(t *testing.T) {
	t.Parallel()
	for _, size := range []int{100, part + 100} {
		for _, f := range []fault{lost, answerLost, refused} {
			for _, forever := range []bool{false, true} {
				for nth := range int64(7) {
					t.Run(fmt.Sprintf("%d bytes, fault %d at request %d, forever %v", size, f, nth, forever), func(t *testing.T) {
						t.Parallel()
						testBrokenWrite(t, size, func(n int64) fault {
							if n == nth || forever && n > nth {
								return f
							}
							return pass
						})
					})
				}
			}
		}
	}
}

func testBrokenWrite(t *testing.T, size int, plan func(n int64) fault) {
	g := newGate(t)
	s := open(t, g.url)
	content := artifactstest.Content(1, size)
	var count atomic.Int64
	g.set(func(*http.Request) fault { return plan(count.Add(1) - 1) })
	w, err := store(t.Context(), s, keyA, content)
	g.set(nil)
	if err != nil {
		if !errors.Is(err, artifacts.ErrUnavailable) {
			t.Fatalf("got %v, want success or ErrUnavailable", err)
		}
		err = finish(t, s, w)
	}
	if err == nil {
		wantContent(t, s, keyA, content)
	}
	if _, err := s.Sweep(t.Context(), 0); err != nil {
		t.Errorf("sweep: %v", err)
	}
	want := 0
	if err == nil {
		want = 1 + min(size/part, 1) // the bytes, and a seal for several parts
	}
	if names := g.objects(t); len(names) != want {
		t.Errorf("in the bucket: %v, want %d objects", names, want)
	}
}

// finish commits again, or checks that a Writer which failed in Write is done for.
func finish(t *testing.T, s artifacts.Store, w *artifacts.Writer) error {
	_, err := w.Commit(t.Context())
	if err == nil {
		return nil
	}
	w.Abort()
	if w.Bytes() > 0 {
		t.Errorf("commit again after healing: %v", err)
	}
	if _, err := s.Stat(t.Context(), keyA); !errors.Is(err, artifacts.ErrNotFound) {
		t.Errorf("stat after a failed write: got %v, want ErrNotFound", err)
	}
	return err
}

// TestS3AbortAfterLostAnswer: the caller gives up although the commit went
// through. What is there is whole, or nothing is.
func TestS3AbortAfterLostAnswer(t *testing.T) {
	t.Parallel()
	for _, size := range []int{100, 2*part + 100} {
		g := newGate(t)
		s := open(t, g.url)
		content := artifactstest.Content(1, size)
		down := false
		g.set(func(r *http.Request) fault {
			if commit := isCompletion(r) || size == 100 && r.Method == http.MethodPut; commit && !down {
				down = true
				return answerLost
			}
			if down {
				return lost
			}
			return pass
		})
		w, err := store(t.Context(), s, keyA, content)
		if !errors.Is(err, artifacts.ErrUnavailable) {
			t.Fatalf("%d bytes: got %v, want ErrUnavailable", size, err)
		}
		g.set(nil)
		w.Abort()
		wantContent(t, s, keyA, content)
	}
}

func TestS3Down(t *testing.T) {
	t.Parallel()
	server := testservers.StartS3(t)
	url := server.URL()
	s := open(t, url)
	content := artifactstest.Content(1, 3*part)
	mustStore(t, s, keyA, content)
	o, err := s.Open(t.Context(), keyA)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	head := make([]byte, 1000)
	if _, err := io.ReadFull(o, head); err != nil {
		t.Fatal(err)
	}
	keyB := artifacts.Key{Tenant: "acme", ID: "b"}
	w, err := s.Create(t.Context(), keyB, meta)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("b")); err != nil {
		t.Fatal(err)
	}

	server.Kill()
	for what, call := range map[string]func() error{
		"open store": func() error {
			_, err := artifacts.Open(t.Context(), url, artifacts.Options{})
			return err
		},
		"write and commit": func() error { _, err := store(t.Context(), s, keyB, content); return err },
		"commit":           func() error { _, err := w.Commit(t.Context()); return err },
		"open":             func() error { _, err := s.Open(t.Context(), keyA); return err },
		"stat":             func() error { _, err := s.Stat(t.Context(), keyA); return err },
		"delete":           func() error { return s.Delete(t.Context(), keyA) },
		"sweep":            func() error { _, err := s.Sweep(t.Context(), 0); return err },
		"ping":             func() error { return s.Ping(t.Context()) },
		"presign":          func() error { _, err := s.PresignGet(t.Context(), keyA, time.Hour); return err },
		"read":             func() error { _, err := io.ReadAll(o); return err },
	} {
		began := time.Now()
		if err := call(); !errors.Is(err, artifacts.ErrUnavailable) {
			t.Errorf("%s: got %v, want ErrUnavailable", what, err)
		} else if strings.Contains(err.Error(), testservers.S3SecretKey) {
			t.Errorf("%s: the error shows the secret: %v", what, err)
		}
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("%s took %v to notice", what, took)
		}
	}

	server.Start()
	if err := s.Ping(t.Context()); err != nil {
		t.Errorf("ping after restart: %v", err)
	}
	if _, err := w.Commit(t.Context()); err != nil {
		t.Errorf("commit after restart: %v", err)
	}
	wantContent(t, s, keyB, []byte("b"))
	if _, err := o.Seek(1000, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(o); err != nil || !bytes.Equal(rest, content[1000:]) {
		t.Errorf("read on after restart: %d bytes, %v", len(rest), err)
	}
}

// TestS3Silent: a server that keeps its connections and says nothing costs a
// caller its deadline and no more.
func TestS3Silent(t *testing.T) {
	t.Parallel()
	server := testservers.StartS3(t)
	proxy := testservers.StartProxy(t, server.Addr())
	s := open(t, strings.Replace(server.URL(), strings.ReplaceAll(server.Addr(), ":", "%3A"), strings.ReplaceAll(proxy.Addr(), ":", "%3A"), 1))
	mustStore(t, s, keyA, []byte("x"))
	proxy.Blackhole()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := s.Stat(ctx, keyA)
	if !errors.Is(err, artifacts.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want ErrUnavailable and DeadlineExceeded", err)
	}
}

// TestS3IncompleteDelete: a deletion that stops halfway hides the artifact and
// can be repeated.
func TestS3IncompleteDelete(t *testing.T) {
	t.Parallel()
	for nth := range int64(3) {
		g := newGate(t)
		s := open(t, g.url)
		mustStore(t, s, keyA, artifactstest.Content(1, 2*part))
		var count atomic.Int64
		g.set(func(*http.Request) fault {
			if count.Add(1)-1 < nth {
				return pass
			}
			return lost
		})
		if err := s.Delete(t.Context(), keyA); !errors.Is(err, artifacts.ErrUnavailable) {
			t.Errorf("delete broken at request %d: got %v, want ErrUnavailable", nth, err)
		}
		g.set(nil)
		if err := s.Delete(t.Context(), keyA); err != nil {
			t.Errorf("delete again: %v", err)
		}
		if left := g.objects(t); len(left) > 0 {
			t.Errorf("left in the bucket: %v", left)
		}
		mustStore(t, s, keyA, []byte("again"))
	}
}

// TestS3ForeignObject: what somebody else put under an artifact's name is no
// artifact, cannot be overwritten, and can be deleted.
func TestS3ForeignObject(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	s := open(t, g.url)
	bucket, _, _ := strings.Cut(strings.TrimPrefix(g.url, "s3://"), "?")
	_, err := g.admin.PutObject(t.Context(), bucket, "blobs/acme/a", strings.NewReader("hi"), 2, putOptions)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Stat(t.Context(), keyA); err == nil || errors.Is(err, artifacts.ErrNotFound) {
		t.Errorf("stat: got %v, want an error of its own", err)
	}
	if _, err := store(t.Context(), s, keyA, []byte("x")); !errors.Is(err, artifacts.ErrExists) {
		t.Errorf("store: got %v, want ErrExists", err)
	}
	if err := s.Delete(t.Context(), keyA); err != nil {
		t.Errorf("delete: %v", err)
	}
	mustStore(t, s, keyA, []byte("x"))
}
