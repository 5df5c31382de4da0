//go:build !linux

package testservers

import "syscall"

// endWithParent has no counterpart here: a killed test process leaves its servers behind.
func endWithParent(*syscall.SysProcAttr, syscall.Signal) {}

// reserve has no counterpart here: two test processes may, rarely, pick the same port.
func reserve(int) bool { return true }
