package testservers

import (
	"fmt"
	"net"
	"syscall"
)

// endWithParent makes the kernel signal the child when this process ends, however it ends.
func endWithParent(attr *syscall.SysProcAttr, sig syscall.Signal) {
	attr.Pdeathsig = sig
}

// reserve keeps a port from other test processes: an abstract socket vanishes with the process that holds it.
func reserve(port int) bool {
	_, err := net.Listen("unix", fmt.Sprintf("@runlog-test-port-%d", port))
	return err == nil
}
