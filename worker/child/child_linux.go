package child

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// endWithParent has the kernel kill the child when this process ends, however
// it ends.
func endWithParent(attr *syscall.SysProcAttr) {
	attr.Pdeathsig = syscall.SIGKILL
}

// awaitExit returns when the child has ended, and leaves it to be waited for.
func awaitExit(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
