package artifacts_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/artifacts"
)

// tree lists the files below a directory store.
func tree(t *testing.T, url string) []string {
	t.Helper()
	var files []string
	err := fs.WalkDir(os.DirFS(strings.TrimPrefix(url, "dir:")), ".", func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestDirLeavesOneFile(t *testing.T) {
	url := freshDir(t)
	s := open(t, url)
	mustStore(t, s, keyA, []byte("first"))
	if _, err := store(t.Context(), s, keyA, []byte("second")); !errors.Is(err, artifacts.ErrExists) {
		t.Errorf("got %v, want ErrExists", err)
	}
	w, err := s.Create(t.Context(), keyA, meta)
	if err != nil {
		t.Fatal(err)
	}
	w.Abort()
	if got := tree(t, url); len(got) != 1 || got[0] != "blobs/acme/a" {
		t.Errorf("files: %v, want blobs/acme/a alone", got)
	}
}

// TestDirDamage: a file that was cut, extended or replaced is an error, never
// other bytes; Delete removes it.
func TestDirDamage(t *testing.T) {
	for what, damage := range map[string]func(b []byte) []byte{
		"empty":           func([]byte) []byte { return nil },
		"short":           func([]byte) []byte { return []byte("x") },
		"cut at the end":  func(b []byte) []byte { return b[:len(b)-1] },
		"cut in front":    func(b []byte) []byte { return b[1:] },
		"longer":          func(b []byte) []byte { return append(b, 0) },
		"bad record":      func(b []byte) []byte { b[len(b)-14] = '!'; return b },
		"absurd length":   func(b []byte) []byte { b[len(b)-12] = 0xff; return b },
		"another's bytes": func(b []byte) []byte { return append([]byte("more"), b...) },
	} {
		url := freshDir(t)
		s := open(t, url)
		mustStore(t, s, keyA, []byte("content"))
		file := filepath.Join(strings.TrimPrefix(url, "dir:"), "blobs/acme/a")
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, damage(b), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := readAll(t.Context(), s, keyA); err == nil || errors.Is(err, artifacts.ErrNotFound) {
			t.Errorf("%s: read %q, %v, want an error of its own", what, got, err)
		}
		if err := s.Delete(t.Context(), keyA); err != nil {
			t.Errorf("%s: delete: %v", what, err)
		}
		mustStore(t, s, keyA, []byte("again"))
	}
}

// TestDirFoldedNames: a file system that takes two names for one (here: a hard
// link) shows the second as absent, not as the first one's bytes.
func TestDirFoldedNames(t *testing.T) {
	url := freshDir(t)
	s := open(t, url)
	other := artifacts.Key{Tenant: "victim", ID: "a"}
	mustStore(t, s, other, []byte("secret"))
	mustStore(t, s, artifacts.Key{Tenant: "acme", ID: "x"}, nil)
	blobs := filepath.Join(strings.TrimPrefix(url, "dir:"), "blobs")
	if err := os.Link(filepath.Join(blobs, "victim/a"), filepath.Join(blobs, "acme/a")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Open(t.Context(), keyA); !errors.Is(err, artifacts.ErrNotFound) {
		t.Errorf("open: got %v, want ErrNotFound", err)
	}
	if err := s.Delete(t.Context(), keyA); err != nil {
		t.Errorf("delete: %v", err)
	}
	wantContent(t, s, other, []byte("secret"))
}

// TestDirSymlinksDoNotEscape: a link out of the directory is not followed.
func TestDirSymlinksDoNotEscape(t *testing.T) {
	url, outside := freshDir(t), t.TempDir()
	s := open(t, url)
	if err := os.Symlink(outside, filepath.Join(strings.TrimPrefix(url, "dir:"), "blobs/acme")); err != nil {
		t.Fatal(err)
	}
	if _, err := store(t.Context(), s, keyA, []byte("x")); err == nil {
		t.Error("store through a link out of the directory succeeded")
	}
	if _, err := s.Stat(t.Context(), keyA); err == nil {
		t.Error("stat through a link out of the directory succeeded")
	}
	if files, err := os.ReadDir(outside); err != nil || len(files) > 0 {
		t.Errorf("outside: %v, %v, want nothing", files, err)
	}
}

func TestDirGone(t *testing.T) {
	url := freshDir(t)
	s := open(t, url)
	if err := os.RemoveAll(strings.TrimPrefix(url, "dir:")); err != nil {
		t.Fatal(err)
	}
	if err := s.Ping(t.Context()); !errors.Is(err, artifacts.ErrUnavailable) {
		t.Errorf("ping: got %v, want ErrUnavailable", err)
	}
	if _, err := store(t.Context(), s, keyA, nil); err == nil {
		t.Error("store succeeded")
	}
}

// TestDirKeepsYoungWrites: the age of a write counts from its last bytes.
func TestDirKeepsYoungWrites(t *testing.T) {
	url := freshDir(t)
	s := open(t, url)
	w, err := s.Create(t.Context(), keyA, meta)
	if err != nil {
		t.Fatal(err)
	}
	tmp := filepath.Join(strings.TrimPrefix(url, "dir:"), tree(t, url)[0])
	old := time.Now().Add(-time.Hour)
	if err := os.Chtimes(tmp, old, old); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("alive")); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Sweep(t.Context(), time.Minute); n != 0 || err != nil {
		t.Errorf("sweep of a living write: got %d, %v", n, err)
	}
	if err := os.Chtimes(tmp, old, old); err != nil {
		t.Fatal(err)
	}
	if n, err := s.Sweep(t.Context(), time.Minute); n != 1 || err != nil {
		t.Errorf("sweep of a dead write: got %d, %v, want 1", n, err)
	}
	if _, err := w.Commit(t.Context()); !errors.Is(err, artifacts.ErrAbandoned) {
		t.Errorf("commit: got %v, want ErrAbandoned", err)
	}
}
