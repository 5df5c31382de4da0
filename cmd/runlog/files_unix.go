//go:build unix

package main

import "syscall"

// openFiles is how many files the process may have open; 0: nobody knows. The runtime has
// raised it as far as it goes.
func openFiles() uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return uint64(limit.Cur) //nolint:unconvert // it is signed on some systems
}
