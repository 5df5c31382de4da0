package interop

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/internal/testservers"
)

// limit bounds one folder's tests; node's own limit for one file is shorter.
const limit = 8 * time.Minute

var errLate = errors.New("its time is over: where the machine is this busy, give go test a longer -timeout")

// budget is the time for a folder. It ends before go test's own, whose panic would
// not show what node has printed.
func budget(t *testing.T) time.Duration {
	if end, ok := t.Deadline(); ok {
		return min(limit, time.Until(end)-5*time.Second)
	}
	return limit
}

// TestClients runs the tests of every folder that has some: one folder for each
// protocol, an npm project of its own.
func TestClients(t *testing.T) {
	node := program(t, "node")
	files, err := filepath.Glob("*/*.test.mjs")
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests: %v", err)
	}
	byDir := map[string][]string{}
	var dirs []string
	for _, f := range files {
		dir, file := filepath.Split(f)
		if byDir[dir] == nil {
			dirs = append(dirs, dir)
		}
		byDir[dir] = append(byDir[dir], file)
	}
	for _, dir := range dirs {
		t.Run(filepath.Clean(dir), func(t *testing.T) {
			install(t, dir)
			argv := []string{node, "--test", "--test-reporter=spec", "--test-timeout=400000"}
			if only := os.Getenv("INTEROP_ONLY"); only != "" {
				argv = append(argv, "--test-name-pattern="+only)
			}
			run(t, dir, newStage(t), append(argv, byDir[dir]...))
		})
	}
}

// run runs a folder's tests; what they print is shown if they fail.
func run(t *testing.T, dir, stage string, argv []string) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), budget(t), errLate)
	defer cancel()
	cmd, unbind := bound(ctx, t, argv)
	defer unbind()
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "RUNLOG_STAGE="+stage, "NO_COLOR=1", "NODE_OPTIONS=")
	if filepath.Clean(dir) == "remote" { // runlog is the client there
		cmd.Env = append(cmd.Env, "RUNLOG_BINARY="+testservers.RunlogBinary(t))
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", dir, errors.Join(err, context.Cause(ctx)), out)
	}
	if bytes.Contains(out, []byte("tests 0")) {
		t.Fatalf("%s: no test ran\n%s", dir, out)
	}
	if testing.Verbose() {
		t.Logf("%s", out)
	}
}

// install makes node_modules what the lock file says; one that already is stays.
func install(t *testing.T, dir string) {
	t.Helper()
	lock, err := os.ReadFile(filepath.Join(dir, "package-lock.json"))
	if os.IsNotExist(err) {
		return // a folder that needs no packages
	}
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(lock, []byte(`"resolved"`)) {
		t.Errorf("%spackage-lock.json names a registry: keep omit-lockfile-registry-resolved in .npmrc", dir)
	}
	sum := sha256.Sum256(lock)
	want := hex.EncodeToString(sum[:])
	stamp := filepath.Join(dir, "node_modules", ".installed")
	if have, _ := os.ReadFile(stamp); string(have) == want {
		return
	}
	cmd := exec.CommandContext(t.Context(), program(t, "npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		missing(t, "npm ci in interop/%s: %v\n%s", dir, err, out)
	}
	if err := os.WriteFile(stamp, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

func program(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		missing(t, "%s is not installed: install Node.js 20 or later", name)
	}
	return path
}

// missing skips the test, or fails it in CI, where everything has to be there.
func missing(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// The versions that are proven are exact.
func TestVersionsAreExact(t *testing.T) {
	manifests, err := filepath.Glob("*/package.json")
	if err != nil || len(manifests) == 0 {
		t.Fatalf("no package.json: %v", err)
	}
	for _, m := range manifests {
		for name, version := range dependencies(t, m) {
			version = version[strings.LastIndex(version, "@")+1:] // of an alias
			if !exact.MatchString(version) {
				t.Errorf("%s: %s is %q, not an exact version", m, name, version)
			}
		}
		if _, err := os.Stat(filepath.Join(filepath.Dir(m), "package-lock.json")); err != nil {
			t.Errorf("%s has no lock file: %v", m, err)
		}
	}
}
