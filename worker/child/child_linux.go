package child

import (
	"errors"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// endWithParent has the kernel kill the child when this process ends, however
// it ends.
func endWithParent(attr *syscall.SysProcAttr) {
	attr.Pdeathsig = syscall.SIGKILL
}

// reap waits for the child and kills what is left of its group. It is waited for
// without being reaped first: until it is, nobody else can have its group's id.
func reap(cmd *exec.Cmd, killGroup func()) error {
	for errors.Is(unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
		continue
	}
	killGroup()
	return cmd.Wait()
}
