package artifacts_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/runlog-dev/runlog/artifacts"
	"github.com/runlog-dev/runlog/artifacts/artifactstest"
)

// TestS3ReadsLazily counts what crosses the wire.
func TestS3ReadsLazily(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	s := open(t, g.url)
	content := artifactstest.Content(1, 40<<20)
	mustStore(t, s, keyA, content)
	for _, c := range []struct {
		what        string
		off, n, max int64
	}{
		{"open and seek", 20 << 20, 0, 4 << 10},
		{"ten bytes", 20 << 20, 10, 256 << 10},
		{"a megabyte", 7, 1 << 20, 4 << 20},
	} {
		before := g.down.Load()
		o, err := s.Open(t.Context(), keyA)
		if err != nil {
			t.Fatal(err)
		}
		o.Seek(0, io.SeekEnd) //nolint:errcheck // as http.ServeContent does
		if _, err := o.Seek(c.off, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(io.LimitReader(o, c.n))
		if err != nil || !bytes.Equal(got, content[c.off:c.off+c.n]) {
			t.Errorf("%s: got %d bytes, %v", c.what, len(got), err)
		}
		o.Close()
		if cost := g.down.Load() - before; cost > c.max {
			t.Errorf("%s: %d bytes crossed the wire, want at most %d", c.what, cost, c.max)
		}
	}
}

// TestS3ReadSurvivesCuts: bodies that end early are continued where they ended.
func TestS3ReadSurvivesCuts(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	s := open(t, g.url)
	content := artifactstest.Content(1, part)
	mustStore(t, s, keyA, content)
	g.setBody(cutAfter(100_000))
	wantContent(t, s, keyA, content)

	g.setBody(cutAfter(0))
	if got, err := readAll(t.Context(), s, keyA); !errors.Is(err, artifacts.ErrUnavailable) || len(got) > 0 {
		t.Errorf("nothing but broken bodies: got %d bytes, %v, want ErrUnavailable", len(got), err)
	}
}
