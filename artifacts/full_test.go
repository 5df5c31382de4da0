//go:build linux

package artifacts_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/runlog-dev/runlog/artifacts"
	"github.com/runlog-dev/runlog/artifacts/artifactstest"
)

// fullDir makes the test program one that fills a small file system of its own.
const fullDir = "RUNLOG_TEST_FULL_DIR"

// TestDirFull: a full disk is ErrUnavailable, leaves nothing behind and does
// no harm to what comes later. It needs a mount namespace.
func TestDirFull(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fullDir+"="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOSPC) {
		t.Skipf("this kernel gives no user namespaces here: %v", err)
	}
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// fillDisk runs in the namespace.
func fillDisk(dir string) error {
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	ctx := context.Background()
	s, err := artifacts.Open(ctx, "dir:"+dir, artifacts.Options{})
	if err != nil {
		return err
	}
	if w, err := store(ctx, s, keyA, artifactstest.Content(1, 4<<20)); !errors.Is(err, artifacts.ErrUnavailable) {
		return fmt.Errorf("a write that does not fit: got %w, want ErrUnavailable", err)
	} else if _, err := w.Commit(ctx); !errors.Is(err, artifacts.ErrUnavailable) {
		return fmt.Errorf("commit of it: got %w, want ErrUnavailable", err)
	}
	if n, err := s.Sweep(ctx, 0); n != 0 || err != nil {
		return fmt.Errorf("sweep: got %d, %w, want nothing left", n, err)
	}
	if _, err := store(ctx, s, keyA, artifactstest.Content(1, 1<<20)); err != nil {
		return fmt.Errorf("a write that fits: %w", err)
	}
	return commitWhenFull(ctx, s)
}

// commitWhenFull: the content fits to the last byte, its record does not; when
// there is room again the same commit succeeds.
func commitWhenFull(ctx context.Context, s artifacts.Store) error {
	keyB := artifacts.Key{Tenant: "acme", ID: "b"}
	w, err := s.Create(ctx, keyB, meta)
	if err != nil {
		return err
	}
	defer w.Abort()
	for err == nil { // pages of 4096 bytes, until none is free
		var fs syscall.Statfs_t
		if err = syscall.Statfs(os.Getenv(fullDir), &fs); err != nil || fs.Bfree == 0 {
			break
		}
		_, err = w.Write(make([]byte, fs.Bsize))
	}
	if err != nil {
		return fmt.Errorf("fill: %w", err)
	}
	if _, err := w.Commit(ctx); !errors.Is(err, artifacts.ErrUnavailable) {
		return fmt.Errorf("commit without room: got %w, want ErrUnavailable", err)
	}
	if err := s.Delete(ctx, keyA); err != nil {
		return fmt.Errorf("make room: %w", err)
	}
	info, err := w.Commit(ctx)
	if err != nil {
		return fmt.Errorf("commit again: %w", err)
	}
	if got, err := readAll(ctx, s, keyB); err != nil || int64(len(got)) != info.Bytes {
		return fmt.Errorf("read: got %d bytes, %w, want %d", len(got), err, info.Bytes)
	}
	return nil
}
