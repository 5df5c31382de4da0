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

// processDir is a temporary directory that lives as long as this test process and that every user may enter, so
// that Postgres can reach its data under it. There is no hook at the end of a test process, and none at all when it
// is killed: a small shell waits for the end of a pipe that only this process holds, and removes the directory.
var processDir = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "runlog-test-")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", err
	}
	return dir, removeAtExit(dir)
})

// removeAtExit waits a moment after the end of this process, because the servers in dir are still stopping then.
func removeAtExit(dir string) error {
	const script = `cat >/dev/null; for i in 1 2 3 4 5; do sleep 1; rm -rf -- "$1" 2>/dev/null && exit; done`
	cmd := exec.Command("/bin/sh", "-c", script, "sh", dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // outlives a ^C, which is when it is needed
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	cmd.Stdin = r
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the shell that removes %s: %w", dir, err)
	}
	untilExit = w
	return nil
}

// untilExit is held, never written: its end is the end of this process.
var untilExit *os.File //nolint:unused // a file that nothing refers to is closed by the collector

// newDir makes an empty directory for one server.
func newDir(name string) (string, error) {
	parent, err := processDir()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(parent, name+"-")
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o755)
}

// testDir is newDir for a server that ends with the test: the directory goes as soon as it has stopped.
func testDir(t testing.TB, name string) string {
	t.Helper()
	dir, err := newDir(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// writeFile writes a configuration file for a server and returns its path.
func writeFile(dir, name, content string) (string, error) {
	path := filepath.Join(dir, name)
	return path, os.WriteFile(path, []byte(content), 0o644)
}
