package artifacts_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/runlog-dev/runlog/artifacts"
	"github.com/runlog-dev/runlog/artifacts/artifactstest"
	"github.com/runlog-dev/runlog/internal/testservers"
)

// crashURL makes the test program a writer that its parent kills.
const crashURL = "RUNLOG_TEST_CRASH_URL"

func TestMain(m *testing.M) {
	if url := os.Getenv(crashURL); url != "" {
		if err := writeUntilKilled(url); err != nil {
			fmt.Println("failed", err)
			os.Exit(1)
		}
	}
	if dir := os.Getenv(fullDir); dir != "" {
		if err := fillDisk(dir); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// crashSize makes every other artifact one of several parts.
func crashSize(i int) int { return 1000 + i%2*2*part }

// writeUntilKilled says on each line what it has just done.
func writeUntilKilled(url string) error {
	ctx := context.Background()
	s, err := artifacts.Open(ctx, url, artifacts.Options{PartBytes: part})
	if err != nil {
		return err
	}
	for i := 0; ; i++ {
		content := artifactstest.Content(uint64(i), crashSize(i))
		w, err := s.Create(ctx, crashKey(i), meta)
		if err != nil {
			return err
		}
		if _, err := w.Write(content[:len(content)-500]); err != nil {
			return err
		}
		fmt.Println("written", i)
		if _, err := w.Write(content[len(content)-500:]); err != nil {
			return err
		}
		fmt.Println("committing", i)
		if _, err := w.Commit(ctx); err != nil {
			return err
		}
		fmt.Println("committed", i)
	}
}

func crashKey(i int) artifacts.Key { return artifacts.Key{Tenant: "acme", ID: fmt.Sprint("art_", i)} }

// TestKillNine kills a writer after each of its steps, and a little later:
// what it said it committed is there, everything else is whole or absent, and
// one Sweep removes the rest.
func TestKillNine(t *testing.T) {
	for name, fresh := range map[string]func(testing.TB) string{"dir": freshDir, "s3": testservers.S3} {
		for line := range 9 {
			for _, delay := range []time.Duration{0, 4 * time.Millisecond} {
				t.Run(fmt.Sprintf("%s, %v after line %d", name, delay, line+1), func(t *testing.T) {
					t.Parallel()
					url := fresh(t)
					committed := killAfter(t, url, line+1, delay)
					checkCrashed(t, url, committed)
				})
			}
		}
	}
}

// killAfter runs a writer, kills it and returns how many artifacts it has
// committed for certain.
func killAfter(t *testing.T, url string, lines int, delay time.Duration) int {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashURL+"="+url)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() }) //nolint:errcheck // it is gone as a rule
	committed := 0
	for in, n := bufio.NewScanner(out), 0; in.Scan(); {
		if strings.HasPrefix(in.Text(), "failed") {
			t.Fatalf("the writer %s", in.Text())
		}
		if strings.HasPrefix(in.Text(), "committed") {
			committed++
		}
		if n++; n == lines {
			time.AfterFunc(delay, func() { cmd.Process.Kill() }) //nolint:errcheck // Wait tells
		}
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != -1 {
		t.Fatalf("the writer ended by itself: %v", err)
	}
	return committed
}

func checkCrashed(t *testing.T, url string, committed int) {
	t.Helper()
	s := open(t, url)
	for i := range committed + 2 {
		got, err := readAll(t.Context(), s, crashKey(i))
		whole := err == nil && string(got) == string(artifactstest.Content(uint64(i), crashSize(i)))
		if !whole && (i < committed || !errors.Is(err, artifacts.ErrNotFound)) {
			t.Errorf("artifact %d of %d committed: got %d bytes, %v", i, committed, len(got), err)
		}
	}
	if _, err := s.Sweep(t.Context(), 0); err != nil {
		t.Errorf("sweep: %v", err)
	}
	if n, err := s.Sweep(t.Context(), 0); n != 0 || err != nil {
		t.Errorf("second sweep: got %d, %v, want nothing left", n, err)
	}
	for i := range committed {
		if _, err := s.Stat(t.Context(), crashKey(i)); err != nil {
			t.Errorf("artifact %d after the sweep: %v", i, err)
		}
	}
}
