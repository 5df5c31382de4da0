package interop

import (
	"context"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// watch has a shell become the program that its arguments name. What it leaves
// behind waits for the end of descriptor 3, and then kills the whole group.
const watch = `{ read -r _; kill -KILL 0; } <&3 >/dev/null 2>&1 & exec "$@" 3<&-`

// bound is a command whose program, and all that it starts in its turn, end when
// unbind is called, when ctx does, or with this process, even by kill -9.
func bound(ctx context.Context, t *testing.T, argv []string) (cmd *exec.Cmd, unbind func()) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.CommandContext(ctx, "/bin/sh", append([]string{"-c", watch, "sh"}, argv...)...)
	cmd.ExtraFiles = []*os.File{r}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	return cmd, func() { w.Close(); r.Close() }
}

// orphans are programs that outlive the one that started them, and hold its output.
const orphans = `sleep 600 & (sleep 600 & echo ready; wait)`

// A test that is killed leaves nothing behind that runs on for minutes.
func TestProgramsEndWithTheTest(t *testing.T) {
	if os.Getenv("INTEROP_HOLD") != "" {
		hold(t)
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProgramsEndWithTheTest$")
	cmd.Env = append(os.Environ(), "INTEROP_HOLD=1")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	ready := make([]byte, len("ready"))
	if _, err := io.ReadFull(out, ready); err != nil || string(ready) != "ready" {
		t.Fatalf("read %q, %v", ready, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	gone := make(chan error, 1)
	go func() { _, err := io.Copy(io.Discard, out); gone <- err }() // it ends when nobody holds the other end
	select {
	case err := <-gone:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Error("what the test had started runs on")
	}
	_ = cmd.Wait()
}

// hold is the test that is killed.
func hold(t *testing.T) {
	cmd, unbind := bound(t.Context(), t, []string{"/bin/sh", "-c", orphans})
	defer unbind()
	cmd.Stdout = os.Stdout
	t.Fatal(cmd.Run())
}
