package child

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// A guard is a shell that waits for the end of this process and then kills the
// group of a server: the kernel ends the child that was started, but not its
// own children, as those of npx. Where there is no shell there is no guard.
type guard struct {
	cmd  *exec.Cmd
	line io.Closer // its input, open as long as this process lives
}

func startGuard(pgid int) *guard {
	r, w, err := os.Pipe()
	if err != nil {
		return nil
	}
	defer r.Close()
	cmd := exec.Command("/bin/sh", "-c", fmt.Sprintf("read line; kill -KILL -%d", pgid))
	cmd.Env = []string{}
	cmd.Stdin = r
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // not in reach of what ends the worker
	if err := cmd.Start(); err != nil {
		w.Close()
		return nil
	}
	return &guard{cmd: cmd, line: w}
}

// dismiss ends the guard without letting it act.
func (g *guard) dismiss() {
	if g == nil {
		return
	}
	_ = g.cmd.Process.Kill()
	_ = g.cmd.Wait()
	g.line.Close()
}
