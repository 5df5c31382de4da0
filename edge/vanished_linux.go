package edge

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// endVanished has the kernel end a connection whose client acknowledges nothing of what it is sent, or takes nothing,
// for so long. A phone that changes networks leaves without a word: signs of life fit into the kernel's buffers, which
// it repeats for a quarter of an hour, and meanwhile the client that came back is counted twice. A listener cannot be
// told for all: Go's speaks MPTCP, which has no such option.
func endVanished(conn net.Conn, after time.Duration) {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { // a Unix socket has no such option either, and needs none
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(after.Milliseconds()))
	})
}
