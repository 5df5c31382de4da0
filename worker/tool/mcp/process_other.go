//go:build !linux

package mcp

import "syscall"

// Without a parent-death signal it is the guard that ends the child.
func endWithParent(*syscall.SysProcAttr) {}

func awaitExit(int) {}
