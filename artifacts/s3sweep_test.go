package artifacts_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/artifacts"
	"github.com/runlog-dev/runlog/artifacts/artifactstest"
)

// TestS3SweepTakesOrphanSeals: a writer that dies between seal and commit
// leaves both; both go.
func TestS3SweepTakesOrphanSeals(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	s := open(t, g.url)
	g.set(func(r *http.Request) fault {
		if isCompletion(r) {
			return lost
		}
		return pass
	})
	if _, err := store(t.Context(), s, keyA, artifactstest.Content(1, 2*part)); !errors.Is(err, artifacts.ErrUnavailable) {
		t.Fatalf("got %v, want ErrUnavailable", err)
	}
	g.set(nil)
	if left := g.objects(t); len(left) != 1 || !strings.HasPrefix(left[0], "seals/") {
		t.Fatalf("in the bucket: %v, want one seal", left)
	}
	mustStore(t, open(t, g.url), keyA, artifactstest.Content(2, 2*part)) // its seal must stay
	if n, err := s.Sweep(t.Context(), 0); n != 1 || err != nil {
		t.Errorf("sweep: got %d, %v, want 1", n, err)
	}
	wantContent(t, s, keyA, artifactstest.Content(2, 2*part))
	if left := g.objects(t); len(left) != 2 {
		t.Errorf("in the bucket: %v, want an artifact and its seal", left)
	}
}

// TestS3PrefixesAreApart: two stores in one bucket do not see each other.
func TestS3PrefixesAreApart(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	one, two := open(t, strings.Replace(g.url, "?", "/one?", 1)), open(t, strings.Replace(g.url, "?", "/two/deep?", 1))
	w, err := one.Create(t.Context(), keyA, meta)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(artifactstest.Content(1, 2*part)); err != nil {
		t.Fatal(err)
	}
	mustStore(t, two, keyA, []byte("two"))
	if n, err := two.Sweep(t.Context(), 0); n != 0 || err != nil {
		t.Errorf("sweep of the other prefix: got %d, %v", n, err)
	}
	if _, err := w.Commit(t.Context()); err != nil {
		t.Errorf("commit: %v", err)
	}
	wantContent(t, one, keyA, artifactstest.Content(1, 2*part))
	wantContent(t, two, keyA, []byte("two"))
	names := g.objects(t)
	if !slices.Contains(names, "one/blobs/acme/a") || !slices.Contains(names, "two/deep/blobs/acme/a") || len(names) != 3 {
		t.Errorf("in the bucket: %v", names)
	}
}

// TestS3LosersLeaveNothing: neither the bytes nor the seal of a commit that
// came second stay in the bucket.
func TestS3LosersLeaveNothing(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	s := open(t, g.url)
	mustStore(t, s, keyA, []byte("first"))
	for _, size := range []int{100, part, 2*part + 100} {
		if _, err := store(t.Context(), s, keyA, artifactstest.Content(1, size)); !errors.Is(err, artifacts.ErrExists) {
			t.Errorf("%d bytes: got %v, want ErrExists", size, err)
		}
	}
	if left := g.objects(t); len(left) != 1 {
		t.Errorf("in the bucket: %v, want the first one's bytes alone", left)
	}
	if n, err := s.Sweep(t.Context(), 0); n != 0 || err != nil {
		t.Errorf("sweep: got %d, %v, want nothing left", n, err)
	}
}

// TestS3KeepsYoungWrites: the age of a write counts from its last part.
func TestS3KeepsYoungWrites(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	s := open(t, g.url)
	w, err := s.Create(t.Context(), keyA, meta)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(artifactstest.Content(1, 3*part)); err != nil {
		t.Fatal(err)
	}
	g.setBody(backdate("Initiated"))
	if n, err := s.Sweep(t.Context(), time.Hour); n != 0 || err != nil {
		t.Errorf("sweep of a living write: got %d, %v", n, err)
	}
	g.setBody(backdate("Initiated", "LastModified"))
	if n, err := s.Sweep(t.Context(), time.Hour); n != 1 || err != nil {
		t.Errorf("sweep of a dead write: got %d, %v, want 1", n, err)
	}
	g.setBody(nil)
	if _, err := w.Commit(t.Context()); !errors.Is(err, artifacts.ErrAbandoned) {
		t.Errorf("commit: got %v, want ErrAbandoned", err)
	}
}
