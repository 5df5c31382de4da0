//go:build !linux

package child

import (
	"os/exec"
	"syscall"
)

// Without a parent-death signal it is the guard that ends the child.
func endWithParent(*syscall.SysProcAttr) {}

// reap waits for the child and kills what is left of its group. The group has its
// id to itself as long as it has a member, and the system is slow to give one again.
func reap(cmd *exec.Cmd, killGroup func()) error {
	err := cmd.Wait()
	killGroup()
	return err
}
