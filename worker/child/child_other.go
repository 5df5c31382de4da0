//go:build !linux

package child

import "syscall"

// Without a parent-death signal it is the guard that ends the child.
func endWithParent(*syscall.SysProcAttr) {}

func awaitExit(int) {}
