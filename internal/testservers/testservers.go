// Package testservers starts the real servers that tests talk to: Postgres, an S3 server, NATS, nginx, HAProxy,
// Caddy, fault proxies and runlog's own binary.
//
// Every server listens on a port of 127.0.0.1, keeps its data in a temporary directory, and ends with the test that
// asked for it, or with the test process if several tests share it, also when that process is killed. A server that
// is not installed skips the test with a hint; with CI=true in the environment it fails it instead, so that a green
// run has tested everything.
package testservers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// Root returns the directory of the repository's go.mod.
func Root(t testing.TB) string {
	t.Helper()
	dir, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

var moduleRoot = sync.OnceValues(func() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.mod above %s: run the tests from a checkout", start)
		}
	}
})

// Tool returns the path of a server's program: postgres and initdb of the newest installation, nginx, haproxy, or one that
// `make tools` builds into <root>/bin. If it is not there, the test is skipped, or fails in CI.
func Tool(t testing.TB, name string) string {
	t.Helper()
	path, err := findTool(name)
	if err != nil {
		missing(t, "%v", err)
	}
	return path
}

func findTool(name string) (string, error) {
	switch name {
	case "postgres", "initdb":
		dir, err := postgresDir()
		return filepath.Join(dir, name), err
	case "nginx", "haproxy":
		return findInstalled(name)
	}
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, "bin", name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("bin/%s is not there: run make tools", name)
	}
	return path, nil
}

// findInstalled finds a program of the distribution's, which often is not in a user's PATH.
func findInstalled(name string) (string, error) {
	for _, path := range []string{name, "/usr/sbin/" + name} {
		if found, err := exec.LookPath(path); err == nil {
			return found, nil
		}
	}
	return "", fmt.Errorf("%[1]s is not installed: run make test, or apt-get install %[1]s", name)
}

// missing skips the test, or fails it in CI, where everything has to be there.
func missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}
