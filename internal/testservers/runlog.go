package testservers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

// RunlogBinary returns the path of runlog's binary, built from this checkout once per test process, with the race
// detector if the tests run with it.
func RunlogBinary(t testing.TB) string {
	t.Helper()
	path, err := runlogBinary()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var runlogBinary = sync.OnceValues(func() (string, error) {
	return buildBinary("runlog", "./cmd/runlog", raceEnabled)
})

// PlainRunlogBinary returns one without the race detector, whose memory is what users see.
func PlainRunlogBinary(t testing.TB) string {
	t.Helper()
	path, err := plainBinary()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var plainBinary = sync.OnceValues(func() (string, error) {
	return buildBinary("runlog", "./cmd/runlog", false)
})

// buildBinary builds into one place that all test processes share, where the go command sees what is up to date
// already and does not link again, and copies from there under a lock: a rebuild must not hit a running binary.
func buildBinary(name, pkg string, race bool) (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	dir, err := newDir(name)
	if err != nil {
		return "", err
	}
	shared := filepath.Join(root, "bin", "test")
	if err := os.MkdirAll(shared, 0o755); err != nil {
		return "", err
	}
	unlock, err := lockFile(filepath.Join(shared, name+".lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	built := filepath.Join(shared, name)
	args := []string{"build", "-o", built}
	if race {
		built += "-race"
		args = []string{"build", "-race", "-o", built}
	}
	cmd := exec.Command("go", append(args, pkg)...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	path := filepath.Join(dir, name)
	return path, copyProgram(path, built)
}

func lockFile(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { f.Close() }, nil
}

// copyProgram leaves the writing to cp: a descriptor of ours, inherited by a child that is just being forked, would
// make the new program "busy" for a moment.
func copyProgram(dst, src string) error {
	if out, err := exec.Command("cp", src, dst).CombinedOutput(); err != nil {
		return fmt.Errorf("copy %s to %s: %w\n%s", src, dst, err, out)
	}
	return nil
}
